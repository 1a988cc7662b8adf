"""The dispatcher: when it fetches, from where, and how it stops."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from bide.clock import SystemClock
from bide.core.pacing import PollingStrategy
from bide.engine.dispatcher import DispatcherSettings
from bide.engine.fetching import Fetcher
from bide.engine.outcome import Outcome, Retried, Succeeded
from bide.engine.stopping import Haste
from bide.errors import ProviderError
from bide.provider import Contended, Empty, Fetched, Limit, NewItem, WorkItem
from bide.providers.memory import MemoryProvider
from bide.telemetry import ProviderDown, ProviderUp, QueuePolled
from tests.engine.dispatching import (
    QUEUE,
    SECOND,
    RenewalOnLoop,
    Running,
    enqueue,
    make_rig,
    states,
    succeed,
)

MS = timedelta(milliseconds=1)
FIXED = PollingStrategy.fixed("1s")


@pytest.fixture(autouse=True)
def _virtual_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.engine.handling.RenewalThread", RenewalOnLoop)


# --- fetching --------------------------------------------------------------------------------------------------


async def test_items_are_handled_and_done() -> None:
    rig, _ = make_rig()
    handled = list[str]()

    async def handle(item: WorkItem) -> Outcome:
        handled.append(item.id)
        return Succeeded()

    async with Running(rig, handle):
        await enqueue(rig, "a", "b")
        await rig.clock.advance(0.1)
        await enqueue(rig, "c")
        await rig.clock.advance(0.1)
    assert handled == ["a", "b", "c"]
    assert set((await states(rig)).values()) == {"done"}


async def test_an_item_enqueued_while_a_fetch_waits_is_handled_at_once() -> None:
    rig, _ = make_rig()
    at = list[float]()

    async def handle(item: WorkItem) -> Outcome:
        at.append(rig.clock.monotonic())
        return Succeeded()

    async with Running(rig, handle):
        await rig.clock.advance(20)
        await enqueue(rig, "a")
        await rig.clock.advance(0)
        await enqueue(rig, "b")
        await rig.clock.advance(0)
        assert at == [20.0, 20.0], "no wait between them either, where the provider waits"


async def test_no_more_items_are_locked_than_there_are_free_places() -> None:
    rig, store = make_rig()
    running, gate = set[str](), asyncio.Event()

    async def handle(item: WorkItem) -> Outcome:
        running.add(item.id)
        await gate.wait()
        return Succeeded()

    async with Running(rig, handle, settings=DispatcherSettings(concurrency=3)):
        await enqueue(rig, *(f"i{n}" for n in range(10)))
        await rig.clock.advance(1)
        assert len(running) == 3
        assert [each for each in (await states(rig)).values() if each == "running"] == ["running"] * 3
        gate.set()
        await rig.clock.advance(1)
    assert set((await states(rig)).values()) == {"done"}
    assert max(how["limit"] for _, how in store.fetches) == 3


async def test_while_places_become_free_turn_by_turn_the_next_fetch_waits_for_more_of_them() -> None:
    rig, store = make_rig()

    async def handle(item: WorkItem) -> Outcome:
        await asyncio.sleep(0)
        return Succeeded()

    await enqueue(rig, *(f"i{n}" for n in range(400)))
    async with Running(rig, handle, settings=DispatcherSettings(concurrency=40), places={"mail": 40}):
        await rig.clock.advance(1)
    limits = [how["limit"] for _, how in store.fetches]
    assert len(limits) <= 400 / 20 + 3, limits
    assert set((await states(rig)).values()) == {"done"}


async def test_one_free_place_is_filled_while_the_others_are_busy() -> None:
    rig, _ = make_rig()
    done = list[str]()

    async def handle(item: WorkItem) -> Outcome:
        await rig.clock.sleep(3600 if item.id.startswith("long") else 1)
        done.append(item.id)
        return Succeeded()

    settings = DispatcherSettings(concurrency=20, grace=timedelta())
    async with Running(rig, handle, settings=settings, places={"mail": 20}):
        await enqueue(rig, *(f"long{n}" for n in range(19)))
        await enqueue(rig, *(f"i{n}" for n in range(5)))
        await rig.clock.advance(5.5)
        assert done == [f"i{n}" for n in range(5)]


async def test_a_name_holds_no_more_than_its_places_and_gets_the_next_as_soon_as_one_is_free() -> None:
    rig, _ = make_rig()
    running = list[str]()
    gates = {name: asyncio.Event() for name in ("s0", "s1")}

    async def handle(item: WorkItem) -> Outcome:
        running.append(item.id)
        if item.id in gates:
            await gates[item.id].wait()
        return Succeeded()

    async with Running(rig, handle, places={"slow": 1, "fast": 1}):
        await enqueue(rig, "s0", "s1", name="slow")
        await enqueue(rig, *(f"f{n}" for n in range(5)), name="fast")
        await rig.clock.advance(10)
        assert [each for each in running if each != "s0"] == ["f0", "f1", "f2", "f3", "f4"]
        assert "s0" in running
        gates["s0"].set()
        before = rig.clock.monotonic()
        await rig.clock.advance(0)
        assert "s1" in running, "no wait for the long poll to run out"
        assert rig.clock.monotonic() == before
        gates["s1"].set()
        await rig.clock.advance(1)


async def test_names_whose_places_become_free_all_the_time_keep_no_other_dispatcher_from_its_work() -> None:
    """They wake every fetch of the process."""
    rig, _ = make_rig()
    began = list[float]()

    async def busy(item: WorkItem) -> Outcome:
        await rig.clock.sleep(0.02)
        return Succeeded()

    async def note(item: WorkItem) -> Outcome:
        began.append(rig.clock.monotonic())
        return Succeeded()

    async with (
        Running(rig, busy, places={"busy": 1, "idle": 1}),
        Running(rig, note, queues=["other"], places={"note": 1}),
    ):
        await enqueue(rig, *(f"b{n}" for n in range(900)), name="busy")
        await rig.clock.advance(12)
        asked_at = rig.clock.monotonic()
        await enqueue(rig, "a", name="note", queue="other")
        await rig.clock.advance(5)
        assert began
        assert began[0] - asked_at <= 0.11


async def test_a_place_that_becomes_free_while_an_earlier_fetch_is_released_is_not_missed() -> None:
    rig, store = make_rig()
    release = store.release

    async def slow(fetch_token: str) -> int:
        await rig.clock.sleep(1)
        return await release(fetch_token)

    store.release = slow  # type: ignore[method-assign]
    store.faults["fetch_answer"] = [ProviderError("connection lost", retryable=True)]
    fetcher = Fetcher(store, [QUEUE], {}, rig.clock, Haste(rig.clock))
    with pytest.raises(ProviderError):
        await fetcher.fetch({"mail": 1}, 1, lock_timeout=SECOND, poll_timeout=timedelta())
    store.mend()
    fetching = asyncio.ensure_future(
        fetcher.fetch({"mail": 1}, 1, lock_timeout=SECOND, poll_timeout=30 * SECOND)
    )
    await rig.clock.advance(0.5)
    fetcher.wake()
    await rig.clock.advance(1)
    assert fetching.done(), "it asks for the names that were free before"


async def test_a_wake_from_another_event_loop_is_heard() -> None:
    """As where something is submitted in the app's loop, and a worker runs in a thread with a loop of its own."""
    clock = SystemClock()
    fetcher = Fetcher(MemoryProvider(clock), [QUEUE], {}, clock, Haste(clock))
    waits = threading.Event()

    async def wait() -> None:
        await fetcher.fetch({"mail": 1}, 1, lock_timeout=SECOND, poll_timeout=timedelta())
        waits.set()
        await asyncio.wait_for(fetcher.wait_for_wake(), 30)

    other = threading.Thread(target=lambda: asyncio.run(wait()))
    other.start()
    await asyncio.to_thread(waits.wait, 30)
    await asyncio.sleep(0.05)
    fetcher.wake()
    await asyncio.to_thread(other.join, 10)
    assert not other.is_alive()


async def test_queues_are_served_in_turn_however_much_waits_in_one_of_them() -> None:
    rig, _ = make_rig()
    handled = list[str]()

    async def handle(item: WorkItem) -> Outcome:
        handled.append(item.queue)
        await rig.clock.sleep(1)
        return Succeeded()

    for queue, count in (("crowded", 300), ("quiet", 5), ("other", 5)):
        await enqueue(rig, *(f"{queue}{n}" for n in range(count)), queue=queue)
    settings = DispatcherSettings(concurrency=3)
    async with Running(rig, handle, queues=("crowded", "quiet", "other"), settings=settings):
        await rig.clock.advance(9.5)
    assert handled[:15].count("quiet") == 5
    assert handled[:15].count("other") == 5


async def test_limits_of_the_fleet_hold_over_two_dispatchers() -> None:
    rig, _ = make_rig()
    running, most = 0, 0

    async def handle(item: WorkItem) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await rig.clock.sleep(1)
        running -= 1
        return Succeeded()

    await enqueue(rig, *(f"i{n}" for n in range(20)))
    limits = {QUEUE: Limit(queue=2)}
    async with Running(rig, handle, limits=limits), Running(rig, handle, limits=limits):
        await rig.clock.advance(30)
    assert most == 2
    assert set((await states(rig)).values()) == {"done"}


async def test_each_fetch_is_told() -> None:
    rig, store = make_rig()
    store.waits = False
    async with Running(rig, succeed, queues=("mail", "sms"), strategy=FIXED):
        await rig.clock.advance(1)
        await enqueue(rig, "a", "b")
        await rig.clock.advance(1)
        store.fail("fetch")
        await rig.clock.advance(1)
    first, *_ = told = rig.told_of(QueuePolled)
    assert first == QueuePolled("mail,sms", "empty", 0, 1.0)
    assert QueuePolled("mail,sms", "found", 2, 1.0) in told
    assert QueuePolled("mail,sms", "failed", 0, 0.1, backed_off=True) in told
    assert len(told) == len(store.fetches)


async def test_losing_to_others_slows_down_as_finding_nothing_and_is_told_apart() -> None:
    rig, store = make_rig()

    async def lose(*args: object, **how: object) -> Fetched:
        store.fetches.append((rig.clock.monotonic(), {}))
        return Contended()

    store.fetch_work_items = lose  # type: ignore[method-assign]
    async with Running(rig, succeed):
        await rig.clock.advance(1.5)
        assert store.fetched_at == pytest.approx([0, 0.2, 0.6, 1.4])
        assert [told.outcome for told in rig.told_of(QueuePolled)] == ["contended"] * 4


# --- settings, by their effect -----------------------------------------------------------------------------------


async def test_the_long_poll_timeout_reaches_the_provider_and_one_that_ran_out_is_followed_at_once() -> None:
    rig, store = make_rig()
    async with Running(rig, succeed, settings=DispatcherSettings(long_poll_timeout=2 * SECOND)):
        await rig.clock.advance(10.5)
        assert store.fetched_at == [0, 2, 4, 6, 8, 10]
    assert {how["poll_timeout"] for _, how in store.fetches} == {2 * SECOND}


async def test_the_adaptive_strategy_slows_down_while_nothing_is_there_and_starts_anew() -> None:
    rig, store = make_rig()
    store.waits = False
    strategy = PollingStrategy.adaptive("100ms", "800ms")
    async with Running(rig, succeed, strategy=strategy):
        await rig.clock.advance(3.05)
        assert store.fetched_at == pytest.approx([0, 0.2, 0.6, 1.36, 2.12, 2.88])
        await enqueue(rig, "a")
        await rig.clock.advance(0.8)
        assert store.fetched_at[6:] == pytest.approx([3.64, 3.74])


async def test_the_fixed_strategy_keeps_its_interval() -> None:
    rig, store = make_rig()
    store.waits = False
    async with Running(rig, succeed, strategy=FIXED):
        await rig.clock.advance(4.5)
        assert store.fetched_at == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("minimum", [100 * MS, 500 * MS])
async def test_the_least_interval_holds_whatever_strategy_and_provider_do(minimum: timedelta) -> None:
    rig, store = make_rig()
    store.waits = False

    async def lying(*args: object, **how: object) -> Fetched:
        store.fetches.append((rig.clock.monotonic(), {}))
        return Empty(timedelta(), blocked=True)

    store.fetch_work_items = lying  # type: ignore[method-assign]
    hasty = PollingStrategy.fixed("1ms")
    settings = DispatcherSettings(min_poll_interval=minimum)
    async with Running(rig, succeed, strategy=hasty, settings=settings):
        await rig.clock.advance(10)
        assert len(store.fetches) == 10 / minimum.total_seconds() + 1


async def test_it_asks_again_when_something_will_be_eligible_and_after_a_wake() -> None:
    rig, store = make_rig()
    store.waits = False
    async with Running(rig, succeed, strategy=PollingStrategy.fixed("5s")) as running:
        await rig.provider.enqueue([NewItem("a", QUEUE, "mail", "{}", delay=7 * SECOND)])
        await rig.clock.advance(7)
        assert store.fetched_at == [0, 5, 7]
        running.dispatcher.wake()
        await rig.clock.advance(0)
        assert store.fetched_at == [0, 5, 7, 7]


async def test_names_with_longer_locks_are_fetched_with_the_shortest_and_renewed_at_once() -> None:
    rig, store = make_rig()

    async def handle(item: WorkItem) -> Outcome:
        await rig.clock.sleep(100)
        return Succeeded()

    timeouts = {"long": 600 * SECOND}
    settings = DispatcherSettings(lock_timeout=3 * SECOND)
    await enqueue(rig, "a", name="short")
    await enqueue(rig, "b", name="long")
    async with Running(
        rig, handle, places={"short": 5, "long": 5}, lock_timeouts=timeouts, settings=settings
    ) as running:
        await rig.clock.advance(0)
        assert store.fetches[0][1]["lock_timeout"] == 3 * SECOND
        ((at, tokens, length),) = store.renewals
        assert (at, len(tokens), length) == (0, 1, 600 * SECOND)
        await rig.clock.advance(99)
        assert sum(length == 600 * SECOND for _, _, length in store.renewals) == 1
        assert sum(length == 3 * SECOND for _, _, length in store.renewals) == 99, (
            "each second, a third of it"
        )
        await rig.clock.advance(10)
        assert [(each, lost) for each, _, lost in running.told] == [("a", False), ("b", False)]


# --- failing providers -------------------------------------------------------------------------------------------


async def test_while_the_provider_is_away_it_backs_off_and_tells_the_edges_only() -> None:
    """A flood of logs, and a storm of requests, while the server is down."""
    rig, store = make_rig()
    store.fail("fetch")
    async with Running(rig, succeed):
        await enqueue(rig, "a")
        await rig.clock.advance(600)
        (down,) = rig.told_of(ProviderDown)
        assert "connection lost" in down.error
        assert 20 <= len(store.fetches) <= 40, "100 ms doubling to 30 s, not a storm"
        store.mend()
        await rig.clock.advance(60)
        (up,) = rig.told_of(ProviderUp)
        assert up.failures == sum(told.outcome == "failed" for told in rig.told_of(QueuePolled))
        assert set((await states(rig)).values()) == {"done"}


async def test_what_is_enqueued_meanwhile_makes_no_storm_of_requests_to_a_provider_that_is_away() -> None:
    rig, store = make_rig()
    store.fail("fetch")
    async with Running(rig, succeed) as running:
        for _ in range(100):
            running.dispatcher.wake()
            await rig.clock.advance(0.1)
        assert len(store.fetches) <= 8


async def test_fetches_that_succeed_between_settlements_that_fail_make_no_edges() -> None:
    rig, store = make_rig()
    store.fail("settle")
    async with Running(rig, succeed, settings=DispatcherSettings(long_poll_timeout=SECOND)):
        await enqueue(rig, "a")
        await rig.clock.advance(25)
        assert len(rig.told_of(ProviderDown)) == 1
        assert rig.told_of(ProviderUp) == []
        store.mend()
        await rig.clock.advance(20)
        assert len(rig.told_of(ProviderUp)) == 1
        assert set((await states(rig)).values()) == {"done"}


async def test_a_provider_whose_calls_end_cancelled_by_nobody_is_one_that_is_away() -> None:
    rig, store = make_rig()
    lost: list[BaseException] = [asyncio.CancelledError()]
    store.faults |= {"fetch": lost, "settle": lost, "renew": lost}

    async def handle(item: WorkItem) -> Outcome:
        await rig.clock.sleep(40)
        return Succeeded()

    async with Running(rig, handle) as running:
        await enqueue(rig, "a")
        await rig.clock.advance(5)
        del store.faults["fetch"]
        await rig.clock.advance(20)
        assert await states(rig) == {"a": "running"}
        assert len(store.renewals) > 1
        del store.faults["renew"]
        await rig.clock.advance(30)
        assert running.told == []
        store.mend()
        await rig.clock.advance(20)
        assert running.told == [("a", Succeeded(), False)]
    assert [type(each) for each in rig.told_of(ProviderDown) + rig.told_of(ProviderUp)] == [
        *(ProviderDown, ProviderDown),
        *(ProviderUp, ProviderUp),
    ]


async def test_an_error_that_will_not_pass_ends_the_loop_with_it() -> None:
    rig, store = make_rig()
    store.fail("fetch", ProviderError("the file is not a database"))
    running = Running(rig, succeed)
    running.start()
    await rig.clock.advance(30)
    with pytest.raises(ProviderError, match="not a database"):
        running.task.result()


async def test_what_a_fetch_took_whose_answer_was_lost_is_given_back_and_not_left_to_die() -> None:
    rig, store = make_rig()
    store.fail("fetch_answer")
    store.faults["release"] = [ProviderError("still away", retryable=True)]
    await enqueue(rig, "a")
    async with Running(rig, succeed) as running:
        await rig.clock.advance(2)
        assert await states(rig) == {"a": "running"}, "taken, and nobody knows"
        store.mend()
        await rig.clock.advance(5)
        assert [each for each, _, _ in running.told] == ["a"]
    (item,) = await rig.provider.items(QUEUE)
    assert (item.state, item.attempts, item.deaths) == ("done", 1, 0)


# --- stopping ----------------------------------------------------------------------------------------------------


async def test_stop_takes_in_nothing_more_and_lets_running_handlers_end() -> None:
    rig, _ = make_rig()
    handled = list[str]()

    async def handle(item: WorkItem) -> Outcome:
        await rig.clock.sleep(5)
        handled.append(item.id)
        return Succeeded()

    running = Running(rig, handle)
    task = running.start()
    await enqueue(rig, "a")
    await rig.clock.advance(1)
    running.stopping.set()
    await rig.clock.advance(0)
    await enqueue(rig, "b")
    await rig.clock.advance(3.5)
    assert not task.done(), "it is not over before the handlers are"
    await rig.clock.advance(0.5)
    assert task.done()
    assert handled == ["a"]
    assert await states(rig) == {"a": "done", "b": "ready"}


async def test_what_arrives_while_it_stops_is_at_once_visible_to_others() -> None:
    """Stopped in the moment in which a blocked fetch returns."""
    for ticks in range(12):
        rig, _ = make_rig()
        handled = list[str]()

        async def handle(item: WorkItem, handled: list[str] = handled) -> Outcome:
            handled.append(item.id)
            return Succeeded()

        running = Running(rig, handle, settings=DispatcherSettings(concurrency=20))
        task = running.start()
        await rig.clock.advance(5)
        await enqueue(rig, *(f"i{n}" for n in range(10)))
        for _ in range(ticks):
            await asyncio.sleep(0)
        running.stopping.set()
        await rig.clock.advance(0)
        assert task.done()
        left = {id: state for id, state in (await states(rig)).items() if id not in handled}
        assert set(left.values()) <= {"ready"}, (ticks, left)
        assert {state for id, state in (await states(rig)).items() if id in handled} <= {"done"}
        assert all(not item.attempts for item in await rig.provider.items(QUEUE) if item.id in left)


@pytest.mark.parametrize("pausing", ["long poll", "pause", "back-off"])
async def test_a_stop_ends_every_wait_at_once(pausing: str) -> None:
    rig, store = make_rig()
    store.waits = pausing != "pause"
    if pausing == "back-off":
        store.fail("fetch")
    running = Running(rig, succeed, strategy=PollingStrategy.fixed("1h"))
    task = running.start()
    await rig.clock.advance(20)
    running.stopping.set()
    await rig.clock.advance(0)
    assert task.done()


@pytest.mark.parametrize("hurry", [False, True])
async def test_after_the_grace_or_a_second_signal_handlers_are_cancelled_and_items_given_back_uncounted(
    hurry: bool,
) -> None:
    """Deploys use up no attempts."""
    rig, _ = make_rig()

    async def handle(item: WorkItem) -> Outcome:
        await rig.clock.sleep(10_000)
        return Succeeded()

    await enqueue(rig, "a", max_attempts=3)
    for _ in range(4):
        running = Running(rig, handle, settings=DispatcherSettings(grace=timedelta(seconds=20)))
        task = running.start()
        await rig.clock.advance(1)
        assert await states(rig) == {"a": "running"}
        running.stopping.set()
        await rig.clock.advance(1)
        assert not task.done()
        if hurry:
            running.dispatcher.stop_now()
            await rig.clock.advance(0)
        else:
            await rig.clock.advance(19)
        assert task.done()
        (item,) = await rig.provider.items(QUEUE)
        assert (item.state, item.attempts, item.deaths) == ("ready", 0, 0)


async def test_a_handler_that_swallows_its_cancellation_does_not_hold_up_the_stop() -> None:
    rig, _ = make_rig()
    released = asyncio.Event()

    async def handle(item: WorkItem) -> Outcome:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return Succeeded()

    running = Running(rig, handle, settings=DispatcherSettings(grace=SECOND))
    task = running.start()
    await enqueue(rig, "a", "b", max_attempts=1)
    await rig.clock.advance(1)
    running.stopping.set()
    await rig.clock.advance(15)
    assert task.done()
    items = await rig.provider.items(QUEUE)
    assert {(item.state, item.attempts, item.deaths) for item in items} == {("ready", 0, 0)}
    async with Running(rig, succeed) as other:
        await rig.clock.advance(10)
        assert other.told == [], "they may still be at work: nobody has them before their lock would be over"
        released.set()
        await rig.clock.advance(30)
        assert sorted(id for id, _, _ in other.told) == ["a", "b"]
    assert running.told == [("a", running.told[0][1], False), ("b", running.told[0][1], False)]


async def test_a_fetch_that_swallows_its_cancellation_does_not_hold_up_the_stop() -> None:
    rig, store = make_rig()
    fetch = store.fetch_work_items

    async def stubborn(*args: Any, **how: Any) -> Fetched:
        while True:
            try:
                return await fetch(*args, **how)
            except asyncio.CancelledError:
                await enqueue(rig, "a")

    store.fetch_work_items = stubborn  # type: ignore[method-assign]
    running = Running(rig, succeed)
    task = running.start()
    await rig.clock.advance(1)
    running.stopping.set()
    await rig.clock.advance(15)
    assert task.done()
    assert await states(rig) == {"a": "ready"}
    assert running.told == []


async def test_a_stop_at_any_tick_ends_and_loses_nothing() -> None:
    """A cancellation may arrive in the tick in which what is waited for ends."""

    async def handle(item: WorkItem) -> Outcome:
        await asyncio.sleep(0)
        return Succeeded()

    for ticks in range(200):
        rig, store = make_rig()
        store.waits = bool(ticks % 2)
        running = Running(rig, handle, settings=DispatcherSettings(concurrency=2))
        task = running.start()
        await enqueue(rig, "a", "b", "c", max_attempts=1)
        for _ in range(ticks // 2):
            await asyncio.sleep(0)
        running.stopping.set()
        await rig.clock.advance(0)
        assert task.done(), ticks
        items = await rig.provider.items(QUEUE)
        assert {(item.state, item.attempts) for item in items} <= {("done", 1), ("ready", 0)}, ticks


async def test_cancelling_the_loop_itself_at_any_tick_ends_it() -> None:
    for ticks in range(0, 100, 3):
        rig, _ = make_rig()
        running = Running(rig, succeed)
        task = running.start()
        await enqueue(rig, "a", "b")
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await rig.clock.advance(60)
        assert task.cancelled(), ticks


# --- one pass ------------------------------------------------------------------------------------------------------


async def test_a_run_whose_stop_was_cancelled_too_leaves_no_place_taken() -> None:
    rig, _ = make_rig()

    async def handle(item: WorkItem) -> Outcome:
        await rig.clock.sleep(20 if item.id == "a" else 0)
        return Succeeded()

    running = Running(rig, handle, settings=DispatcherSettings(concurrency=1))
    await enqueue(rig, "a")
    first = running.start()
    await rig.clock.advance(1)
    for _ in range(3):
        first.cancel()
        await rig.clock.advance(1)
    await rig.clock.advance(30)
    assert first.done()
    async with running:
        await enqueue(rig, "b")
        await rig.clock.advance(60)
        assert "b" in [each for each, _, _ in running.told]


async def test_a_drain_handles_what_is_there_once_and_returns() -> None:
    rig, _ = make_rig()
    tries = list[str]()

    async def handle(item: WorkItem) -> Outcome:
        tries.append(item.id)
        if item.id == "i0":
            await rig.clock.sleep(5)
        return Retried("no", timedelta()) if item.id == "b" else Succeeded()

    await enqueue(rig, *(f"i{n}" for n in range(50)), "b")
    running = Running(rig, handle, settings=DispatcherSettings(concurrency=4))
    draining = asyncio.ensure_future(running.dispatcher.drain(timedelta(minutes=1)))
    await rig.clock.advance(6)
    assert draining.done()
    assert sorted(tries) == sorted([*(f"i{n}" for n in range(50)), "b"])
    (left,) = [item for item in await rig.provider.items(QUEUE) if item.state != "done"]
    assert (left.id, left.state, left.attempts, left.error) == ("b", "ready", 1, "no")
    assert left.given_back < 20, "what was tried is not asked for over and over while another is at work"


async def test_a_drain_takes_in_nothing_more_once_its_time_is_over() -> None:
    rig, _ = make_rig()
    tries = list[str]()

    async def handle(item: WorkItem) -> Outcome:
        tries.append(item.id)
        await rig.clock.sleep(10)
        return Succeeded()

    await enqueue(rig, *(f"i{n}" for n in range(90)))
    running = Running(rig, handle, places={"mail": 1})
    draining = asyncio.ensure_future(running.dispatcher.drain(timedelta(minutes=1)))
    await rig.clock.advance(100)
    assert draining.done()
    assert 6 <= len(tries) <= 8
    assert sum(state == "ready" for state in (await states(rig)).values()) == 90 - len(tries)
