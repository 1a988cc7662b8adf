"""The clock that tests move: order, exact instants, settling, jumping, and honest failures."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from types import SimpleNamespace

import pytest

from bide.clock import Clock
from bide.testing import VirtualClock


async def sleep_and_note(clock: VirtualClock, seconds: float, notes: list[object], note: object) -> None:
    await clock.sleep(seconds)
    notes.append((note, clock.monotonic()))


def test_it_is_a_clock_at_rest() -> None:
    clock: Clock = VirtualClock(start_ms=5)
    assert (clock.monotonic(), clock.utc_ms(), clock.draw()) == (0.0, 5, 0.5)
    assert (clock.monotonic(), clock.utc_ms()) == (0.0, 5)


async def test_sleepers_wake_in_order_each_at_its_own_instant() -> None:
    clock, notes = VirtualClock(), list[object]()
    async with asyncio.TaskGroup() as group:
        for seconds in (3.0, 1.0, 2.0, 1.0):
            group.create_task(sleep_and_note(clock, seconds, notes, seconds))
        await clock.advance(2.5)
        assert notes == [(1.0, 1.0), (1.0, 1.0), (2.0, 2.0)]
        assert clock.monotonic() == 2.5
        assert clock.sleeping == 1
        assert clock.next_in == 0.5
        await clock.advance(0.5)
    assert notes[-1] == (3.0, 3.0)
    assert clock.sleeping == 0
    assert clock.next_in is None


async def test_sleepers_that_sleep_again_are_woken_again_on_the_way() -> None:
    clock, ticks = VirtualClock(start_ms=1000), list[int]()

    async def tick() -> None:
        while True:
            await clock.sleep(0.1)
            ticks.append(clock.utc_ms())

    ticker = asyncio.create_task(tick())
    await clock.advance(1)
    assert ticks == [1100, 1200, 1300, 1400, 1500, 1600, 1700, 1800, 1900, 2000]
    ticker.cancel()


async def test_everything_that_can_run_has_run_before_time_moves_on() -> None:
    clock, seen = VirtualClock(), list[float]()

    async def chain(depth: int) -> None:
        if depth:
            await asyncio.create_task(chain(depth - 1))
        await asyncio.sleep(0)
        seen.append(clock.monotonic())

    async def sleeper() -> None:
        await clock.sleep(1)
        await chain(30)

    other = asyncio.create_task(clock.sleep(1.000001))
    asleep = asyncio.create_task(sleeper())
    await clock.advance(5)
    assert asleep.done()
    assert other.done()
    assert seen == [1.0] * 31


async def test_advancing_by_nothing_settles() -> None:
    clock, event = VirtualClock(), asyncio.Event()

    async def later() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        event.set()

    running = asyncio.create_task(later())
    await clock.advance(0)
    assert running.done()
    assert clock.monotonic() == 0


async def test_sleeping_for_nothing_only_yields() -> None:
    clock = VirtualClock()
    for seconds in (0, -1.0):
        await clock.sleep(seconds)
    assert clock.monotonic() == 0


async def test_the_wall_clock_steps_alone() -> None:
    clock = VirtualClock(start_ms=1_000_000)
    asleep = asyncio.create_task(clock.sleep(10))
    await clock.advance(4)
    clock.step_wall(-3600)
    assert clock.utc_ms() == 1_000_000 + 4_000 - 3_600_000
    assert clock.monotonic() == 4
    await clock.advance(6)
    assert asleep.done()
    clock.step_wall(3600)
    assert clock.utc_ms() == 1_010_000


async def test_cancelled_sleepers_are_forgotten() -> None:
    clock = VirtualClock()
    asleep = asyncio.create_task(clock.sleep(1))
    await clock.advance(0)
    assert clock.sleeping == 1
    asleep.cancel()
    await clock.advance(0)
    assert clock.sleeping == 0
    assert clock.next_in is None
    await clock.advance(5)
    assert clock.monotonic() == 5


async def test_of_two_sleepers_of_one_instant_one_may_cancel_the_other() -> None:
    clock = VirtualClock()
    first, second = asyncio.create_task(clock.sleep(1)), asyncio.create_task(clock.sleep(1))
    await clock.advance(0)
    second.cancel()
    await clock.advance(1)
    assert (first.done(), first.cancelled(), second.cancelled()) == (True, False, True)


def test_draws_are_one_number_or_many_in_turn() -> None:
    clock = VirtualClock(draws=[0.1, 0.9])
    assert [clock.draw() for _ in range(5)] == [0.1, 0.9, 0.1, 0.9, 0.1]
    clock.draws = 0
    assert (clock.draw(), clock.draw(), clock.draws) == (0.0, 0.0, (0.0,))


@pytest.mark.parametrize("draws", [1, -0.1, math.nan, [], [0.5, 1.0]])
def test_draws_out_of_range_are_refused(draws: float | list[float]) -> None:
    with pytest.raises(ValueError, match=r"in \[0, 1\)"):
        VirtualClock(draws=draws)


async def test_identifiers_are_the_same_in_every_run_and_sort_by_time() -> None:
    one, other = VirtualClock(), VirtualClock()
    identifiers = [one.new_id() for _ in range(3)]
    assert identifiers == [other.new_id() for _ in range(3)]
    await one.advance(0.001)
    identifiers.append(one.new_id())
    assert identifiers == sorted(set(identifiers))
    assert identifiers[0].endswith("001")


async def test_a_loop_that_spins_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.testing.clock._MOST_ROUNDS", 1000)
    clock = VirtualClock()

    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    spinning = asyncio.create_task(spin())
    with pytest.raises(RuntimeError, match="something spins"):
        await clock.advance(1)
    spinning.cancel()


async def test_only_one_moves_the_clock() -> None:
    clock = VirtualClock()

    async def meddle() -> None:
        await clock.sleep(1)
        with pytest.raises(RuntimeError, match="being moved by another advance"):
            await clock.advance(1)

    meddling = asyncio.create_task(meddle())
    await clock.advance(2)
    await meddling
    with pytest.raises(RuntimeError, match="autojump"):
        await VirtualClock(autojump=True).advance(1)


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
async def test_time_does_not_go_back_or_end(seconds: float) -> None:
    with pytest.raises(ValueError, match="cannot be moved on"):
        await VirtualClock().advance(seconds)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf])
async def test_nobody_sleeps_for_ever(seconds: float) -> None:
    with pytest.raises(ValueError, match="cannot sleep"):
        await VirtualClock().sleep(seconds)


async def test_time_stands_still_while_a_thread_is_busy() -> None:
    clock, notes, pending, go = VirtualClock(), list[object](), 0, threading.Event()
    clock.busy_while(lambda: pending)

    async def work() -> None:
        nonlocal pending
        await clock.sleep(1)
        pending += 1
        try:
            await asyncio.to_thread(go.wait, 30)
        finally:
            pending -= 1
        notes.append(clock.monotonic())
        await clock.sleep(1)
        notes.append(clock.monotonic())

    asyncio.get_running_loop().call_later(0.01, go.set)
    working = asyncio.create_task(work())
    await clock.advance(60)
    assert notes == [1.0, 2.0]
    await working


# --- autojump ---------------------------------------------------------------------------------------------------


async def test_the_clock_jumps_when_everybody_waits() -> None:
    clock, notes = VirtualClock(autojump=True), list[object]()
    async with asyncio.TaskGroup() as group:
        for hours in (5, 1, 3):
            group.create_task(sleep_and_note(clock, hours * 3600, notes, hours))
    assert notes == [(1, 3600.0), (3, 10800.0), (5, 18000.0)]
    await clock.sleep(1)
    assert clock.monotonic() == 18001


async def test_the_clock_does_not_jump_while_anybody_can_run() -> None:
    clock, moved = VirtualClock(autojump=True), list[float]()

    async def work() -> None:
        for _ in range(200):
            await asyncio.sleep(0)
            moved.append(clock.monotonic())

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        group.create_task(clock.sleep(1))
    assert moved == [0.0] * 200


async def test_jumping_waits_for_busy_threads() -> None:
    clock, pending, go = VirtualClock(autojump=True), 0, threading.Event()
    clock.busy_while(lambda: pending)

    async def work() -> float:
        nonlocal pending
        pending += 1
        try:
            await asyncio.to_thread(go.wait, 30)
        finally:
            pending -= 1
        return clock.monotonic()

    asyncio.get_running_loop().call_later(0.01, go.set)
    asleep = asyncio.create_task(clock.sleep(100))
    assert await work() == 0.0
    await asleep
    assert clock.monotonic() == 100.0


async def test_jumping_survives_cancelled_sleepers() -> None:
    clock = VirtualClock(autojump=True)
    asleep = asyncio.create_task(clock.sleep(100))
    await asyncio.sleep(0)
    asleep.cancel()
    await asyncio.gather(asleep, return_exceptions=True)
    for _ in range(10):
        await asyncio.sleep(0)
    assert clock.monotonic() == 0.0
    await clock.sleep(5)
    assert clock.monotonic() == 5.0


async def test_jumping_rests_where_nobody_sleeps_and_begins_again() -> None:
    clock = VirtualClock(autojump=True)
    await clock.sleep(5)
    await asyncio.sleep(0.01)  # the event loop comes to rest
    assert clock.monotonic() == 5.0
    await clock.sleep(5)
    assert clock.monotonic() == 10.0


def test_a_clock_may_serve_one_event_loop_after_the_other() -> None:
    clock = VirtualClock(autojump=True)
    asyncio.run(clock.sleep(10))
    asyncio.run(clock.sleep(10))
    assert clock.monotonic() == 20.0


async def test_sleepers_hear_that_something_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.testing.clock._MOST_ROUNDS", 1000)
    clock = VirtualClock(autojump=True)

    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    spinning, cancelled = asyncio.create_task(spin()), asyncio.create_task(clock.sleep(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(RuntimeError, match="something spins"):
        await clock.sleep(1)
    spinning.cancel()


async def test_other_event_loops_are_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock(autojump=True)
    opaque = SimpleNamespace(
        create_future=asyncio.get_running_loop().create_future
    )  # shows nothing of itself
    monkeypatch.setattr("bide.testing.clock.asyncio", SimpleNamespace(get_running_loop=lambda: opaque))
    with pytest.raises(RuntimeError, match="needs asyncio's own event loop"):
        await clock.sleep(1)


async def test_timers_come_at_their_instants_unless_they_are_cancelled() -> None:
    clock, came = VirtualClock(), list[float]()
    timers = [clock.call_later(seconds, lambda: came.append(clock.monotonic())) for seconds in (3, 1, 2, 0)]
    timers[2].cancel()
    await clock.advance(0.5)
    assert len(came) == 1
    await clock.advance(10)
    assert [round(each, 6) for each in came] == [0, 1, 3]
    assert clock.sleeping == 0
    with pytest.raises(ValueError, match="no timer runs"):
        clock.call_later(math.nan, came.clear)


async def test_a_timer_may_be_cancelled_in_its_own_instant() -> None:
    clock, came = VirtualClock(), list[str]()
    second = clock.call_later(1, lambda: came.append("second"))
    first = clock.call_later(0.999_999_999, second.cancel)
    await clock.advance(2)
    assert came == []
    first.cancel()


def test_without_a_loop_a_pause_moves_the_clock_on_unless_the_event_is_set() -> None:
    clock, event = VirtualClock(), threading.Event()
    assert clock.pause(5, event) is False
    assert clock.expect(event, 2) is False
    event.set()
    assert clock.pause(5, event) is True
    assert clock.monotonic() == 7


def test_without_a_loop_too_it_stands_still_while_something_is_busy() -> None:
    clock, event, busy = VirtualClock(), threading.Event(), threading.Event()
    clock.busy_while(lambda: not busy.is_set())
    threading.Timer(0.01, busy.set).start()
    assert clock.pause(5, event) is False
    assert clock.monotonic() == 5
    busy.clear()
    threading.Timer(0.01, event.set).start()
    assert clock.expect(event, 5) is True
    assert clock.monotonic() == 5
