"""Slots: fair, shared by threads and event loops, and never lost, whichever way their holders end."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.errors import NoFreeSlot, SettingError
from bide.slots import NoWait, SlotId, Slots, SlotTable, no_wait


async def settle() -> None:
    """Let everything run that can; what waits for a slot stays waiting."""
    for _ in range(10):
        await asyncio.sleep(0)


def taken(slots: Slots) -> SlotId:
    slot = slots.try_acquire()
    assert slot is not None
    return slot


# --- the cap ----------------------------------------------------------------------------------------------------


def test_no_more_than_the_cap_are_out() -> None:
    slots = Slots("eu", 2)
    first, second = taken(slots), taken(slots)
    assert first != second
    assert slots.try_acquire() is None
    assert (slots.in_use, slots.waiting, slots.cap, slots.name) == (2, 0, 2, "eu")
    slots.release(first)
    assert slots.in_use == 1
    assert taken(slots) not in (first, second)


def test_without_a_cap_they_are_counted_all_the_same() -> None:
    slots = Slots("eu")
    out = [taken(slots) for _ in range(1000)]
    assert slots.in_use == 1000
    for slot in out:
        slots.release(slot)
    assert slots.in_use == 0


@pytest.mark.parametrize("cap", [0, -1, 1.5, 2.0, True, False, "2", float("nan")])
def test_a_cap_is_a_whole_number_from_1_up(cap: Any) -> None:
    with pytest.raises(SettingError, match=r"^max_concurrent: .*whole number of at least 1"):
        Slots("eu", cap)
    slots = Slots("eu", 3)
    with pytest.raises(SettingError):
        slots.set_cap(cap)
    assert slots.cap == 3


def test_giving_back_late_or_twice_is_harmless() -> None:
    slots, other = Slots("eu", 1), Slots("us", 1)
    first = taken(slots)
    others = taken(other)
    slots.release(first)
    second = taken(slots)
    slots.release(first)
    slots.release(others)
    assert slots.try_acquire() is None
    assert (slots.in_use, other.in_use) == (1, 1)
    slots.release(second)
    slots.release(second)
    assert slots.in_use == 0


async def test_an_uncontended_acquire_makes_neither_future_nor_task_and_does_not_yield() -> None:
    slots = Slots("eu", 1)
    acquiring = slots.acquire()
    with pytest.raises(StopIteration) as finished:
        acquiring.send(None)  # a coroutine that yielded to the loop would not be finished here
    slots.release(finished.value.value)
    assert slots.in_use == 0


# --- the line -----------------------------------------------------------------------------------------------


async def test_first_come_first_served() -> None:
    slots, order = Slots("eu", 1), list[int]()

    async def call(number: int) -> None:
        async with slots.hold():
            order.append(number)
            await asyncio.sleep(0)

    first = taken(slots)
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(call(number))
        await settle()
        assert slots.waiting == 20
        slots.release(first)
        assert slots.try_acquire() is None  # it went to the first in line, and nobody overtakes
    assert order == list(range(20))
    assert (slots.in_use, slots.waiting) == (0, 0)


async def test_a_waiter_that_is_cancelled_leaves_the_line() -> None:
    slots = Slots("eu", 1)
    first = taken(slots)
    waiters = [asyncio.create_task(slots.acquire()) for _ in range(3)]
    await settle()
    waiters[1].cancel()
    await settle()
    assert slots.waiting == 2
    slots.release(first)
    slots.release(await waiters[0])
    slots.release(await waiters[2])
    assert (slots.in_use, slots.waiting) == (0, 0)
    assert waiters[1].cancelled()


async def test_a_waiter_that_is_cancelled_just_as_it_is_served_passes_the_slot_on() -> None:
    slots = Slots("eu", 1)
    first = taken(slots)
    waiters = [asyncio.create_task(slots.acquire()) for _ in range(3)]
    await settle()
    slots.release(first)
    waiters[0].cancel()  # it has the slot and has not run yet
    waiters[1].cancel()
    assert await waiters[2]
    assert waiters[0].cancelled()
    assert waiters[1].cancelled()
    assert (slots.in_use, slots.waiting) == (1, 0)


async def test_a_slot_that_comes_to_a_waiter_already_cancelled_is_passed_on() -> None:
    slots = Slots("eu", 1)
    first = taken(slots)
    waiters = [asyncio.create_task(slots.acquire()) for _ in range(2)]
    await settle()
    waiters[0].cancel()  # it has not left the line yet
    slots.release(first)
    assert await waiters[1]
    assert waiters[0].cancelled()
    assert slots.in_use == 1


async def test_a_slot_given_back_between_trying_and_waiting_is_taken() -> None:
    slots = Slots("eu", 1)
    first = taken(slots)

    original = slots.try_acquire

    def try_and_give_back() -> SlotId | None:
        slot = original()
        slots.release(first)
        return slot

    slots.try_acquire = try_and_give_back  # type: ignore[method-assign]  # the other thread's moment
    assert await slots.acquire() != first
    assert slots.in_use == 1


# --- changing the cap -----------------------------------------------------------------------------------------


async def test_lowering_the_cap_strands_nobody() -> None:
    slots = Slots("eu", 3)
    out = [taken(slots) for _ in range(3)]
    waiters = [asyncio.create_task(slots.acquire()) for _ in range(3)]
    await settle()
    slots.set_cap(1)
    assert (slots.in_use, slots.waiting) == (3, 3)
    slots.release(out[0])
    slots.release(out[1])
    await settle()
    assert (slots.in_use, slots.waiting) == (1, 3)
    slots.release(out[2])
    for waiter in waiters:
        slots.release(await waiter)
    assert (slots.in_use, slots.waiting) == (0, 0)


@pytest.mark.parametrize(("cap", "served"), [(2, 1), (3, 2), (None, 4)])
async def test_raising_the_cap_serves_the_line_at_once(cap: int | None, served: int) -> None:
    slots = Slots("eu", 1)
    taken(slots)
    waiters = [asyncio.create_task(slots.acquire()) for _ in range(4)]
    await settle()
    slots.set_cap(cap)
    await settle()
    assert [waiter.done() for waiter in waiters] == [True] * served + [False] * (4 - served)
    for waiter in waiters:
        waiter.cancel()
    await settle()
    assert (slots.in_use, slots.waiting) == (1 + served, 0)


# --- holders that end badly -----------------------------------------------------------------------------------


class Burst(Exception):
    pass


async def _answer(slots: Slots) -> None:
    async with slots.hold():
        await asyncio.sleep(0)


async def _raise(slots: Slots) -> None:
    async with slots.hold():
        await asyncio.sleep(0)
        raise Burst


async def _time_out(slots: Slots) -> None:
    async with asyncio.timeout(0), slots.hold():
        await asyncio.Event().wait()


async def _wait_for(slots: Slots) -> None:
    slots.release(await asyncio.wait_for(slots.acquire(), 30))


ENDINGS = [_answer, _raise, _time_out, _wait_for]


@pytest.mark.parametrize("ending", ENDINGS)
async def test_slots_at_rest_are_all_free(ending: Callable[[Slots], Coroutine[Any, Any, None]]) -> None:
    slots = Slots("eu", 2)
    await asyncio.gather(*(ending(slots) for _ in range(20)), return_exceptions=True)
    assert (slots.in_use, slots.waiting) == (0, 0)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("moment", range(12))
@pytest.mark.parametrize("free_first", [True, False])
async def test_cancelling_at_each_moment_loses_no_slot(
    ending: Callable[[Slots], Coroutine[Any, Any, None]], moment: int, free_first: bool
) -> None:
    slots = Slots("eu", 1)
    held = None if free_first else taken(slots)
    calls = [asyncio.create_task(ending(slots)) for _ in range(3)]
    for turn in range(moment):
        if turn == moment // 2 and held is not None:
            slots.release(held)
        await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    if held is not None:
        slots.release(held)
    assert (slots.in_use, slots.waiting) == (0, 0)
    slots.release(await slots.acquire())


def test_an_event_loop_dropped_with_its_waiters_gives_back_what_they_were_served() -> None:
    slots = Slots("eu", 1)
    first = taken(slots)
    loop = asyncio.new_event_loop()
    waiting = slots.acquire()
    loop.run_until_complete(_start_and_leave(waiting))
    assert slots.waiting == 1
    loop.close()
    slots.release(first)  # the waiter's loop is closed, so it cannot be woken
    assert (slots.in_use, slots.waiting) == (0, 0)
    waiting.close()
    assert (slots.in_use, slots.waiting) == (0, 0)


async def _start_and_leave(waiting: Coroutine[Any, Any, SlotId]) -> None:
    waiting.send(None)  # until it waits, and no further


def test_many_waiters_of_closed_loops_are_passed_over() -> None:
    slots = Slots("eu", 1)
    first = taken(slots)
    loop = asyncio.new_event_loop()
    dead = [slots.acquire() for _ in range(2000)]
    for waiting in dead:
        loop.run_until_complete(_start_and_leave(waiting))
    loop.close()

    async def live() -> None:
        waiter = asyncio.create_task(slots.acquire())
        await settle()
        slots.release(first)
        slots.release(await waiter)

    asyncio.run(live())
    assert (slots.in_use, slots.waiting) == (0, 0)
    for waiting in dead:
        waiting.close()


def test_waiters_that_are_collected_leave_the_line() -> None:
    slots = Slots("eu", 1)
    first = taken(slots)
    loop = asyncio.new_event_loop()
    waiting = slots.acquire()
    loop.run_until_complete(_start_and_leave(waiting))
    loop.close()
    del waiting
    gc.collect()
    assert slots.waiting == 0
    slots.release(first)
    assert slots.in_use == 0


def test_a_slot_collected_in_the_middle_of_serving_breaks_nothing() -> None:
    slots = Slots("eu", 2)
    out = [taken(slots) for _ in range(2)]
    loop = asyncio.new_event_loop()
    waiting = slots.acquire()
    loop.run_until_complete(_start_and_leave(waiting))
    loop.close()
    original = slots._take

    def collect_and_take() -> SlotId:
        waiting.close()  # what the garbage collector does at any allocation
        return original()

    slots._take = collect_and_take  # type: ignore[method-assign]  # the collector's moment
    slots.release(out[0])
    assert (slots.in_use, slots.waiting) == (1, 0)


# --- deliveries do not wait -------------------------------------------------------------------------------------


async def test_where_nobody_may_wait_a_full_connection_refuses_and_says_which() -> None:
    slots = Slots("eu", 1)
    mark = NoWait()
    token = no_wait.set(mark)
    try:
        held = await slots.acquire()
        with pytest.raises(NoFreeSlot, match="'eu' has no free slot"):
            await slots.acquire()
        with pytest.raises(NoFreeSlot):
            await slots.hold().__aenter__()
        assert (slots.in_use, slots.waiting, mark.starved) == (1, 0, "eu")
        slots.release(held)
        async with slots.hold():
            pass
    finally:
        no_wait.reset(token)
    assert slots.in_use == 0


async def test_a_free_slot_is_taken_without_a_mark() -> None:
    mark = NoWait()
    token = no_wait.set(mark)
    async with Slots("eu", 1).hold():
        assert mark.starved is None
    no_wait.reset(token)


async def test_the_mark_survives_a_handler_that_swallows_the_error_in_a_task_of_its_own() -> None:
    slots = Slots("eu", 1)
    taken(slots)
    mark = NoWait()

    async def handler() -> None:
        async def inner() -> None:
            try:
                await slots.acquire()
            except Exception:  # a handler that swallows everything
                return

        await asyncio.create_task(inner())

    async def delivery() -> None:
        no_wait.set(mark)
        await handler()

    await asyncio.create_task(delivery())
    assert mark.starved == "eu"
    assert no_wait.get() is None


# --- one table for each app ---------------------------------------------------------------------------------


def test_a_table_has_one_set_of_slots_for_each_connection() -> None:
    table, other = SlotTable(), SlotTable()
    slots = table.of("eu", 2)
    assert table.of("eu", 2) is slots
    assert table.of("us", 2) is not slots
    assert other.of("eu", 2) is not slots
    table.of("eu", 1)
    assert slots.cap == 1
    table.of("eu", None)
    assert slots.cap is None


# --- threads and event loops ----------------------------------------------------------------------------------


def test_threads_and_event_loops_share_the_slots() -> None:
    slots, cap, most = Slots("eu", 3), 3, 0
    holding = 0
    guard = threading.Lock()
    chance = random.Random(7)
    failures: list[BaseException] = []

    async def call(cancel: bool) -> None:
        nonlocal holding, most
        async with slots.hold():
            with guard:
                holding += 1
                most = max(most, holding)
            try:
                await asyncio.sleep(0)
            finally:
                with guard:
                    holding -= 1
        if cancel:
            raise Burst

    async def worker() -> None:
        calls = [asyncio.create_task(call(chance.random() < 0.2)) for _ in range(100)]
        for chosen in calls[::7]:
            await asyncio.sleep(0)
            chosen.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def run() -> None:
        try:
            asyncio.run(worker())
        except BaseException as error:
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)
    assert most <= cap
    assert (slots.in_use, slots.waiting) == (0, 0)


async def test_a_slot_given_back_by_a_thread_without_a_loop_wakes_the_waiter() -> None:
    slots = Slots("eu", 1)
    first = taken(slots)
    waiter = asyncio.create_task(slots.acquire())
    await settle()
    thread = threading.Thread(target=slots.release, args=(first,))
    thread.start()
    slots.release(await asyncio.wait_for(waiter, 30))
    thread.join()
    assert slots.in_use == 0


# --- any order ------------------------------------------------------------------------------------------------


async def give_all_back(slots: Slots, asked: list[asyncio.Task[SlotId]]) -> None:
    """Until everybody was served, had not cancelled, and gave back."""
    while asked:
        await settle()
        served = [call for call in asked if call.done()]
        assert served
        for call in served:
            asked.remove(call)
            if not call.cancelled():
                slots.release(call.result())


acts = st.lists(
    st.tuples(st.sampled_from(["ask", "give", "cancel", "cap", "run"]), st.integers(0, 9)), max_size=60
)


@given(acts)
@settings(deadline=None)
def test_in_any_order_the_cap_holds_the_line_is_kept_and_nothing_is_lost(
    acts: list[tuple[str, int]],
) -> None:
    async def play() -> None:
        slots = Slots("eu", 2)
        asked: list[asyncio.Task[SlotId]] = []
        served: list[int] = []

        async def ask(number: int) -> SlotId:
            slot = await slots.acquire()
            served.append(number)
            return slot

        for act, number in acts:
            match act:
                case "ask":
                    asked.append(asyncio.create_task(ask(len(asked))))
                case "give" | "cancel" if asked:
                    call = asked[number % len(asked)]
                    if act == "cancel":
                        call.cancel()
                    elif call.done() and not call.cancelled():
                        slots.release(call.result())
                case "cap":
                    lowered = (slots.cap or 99) > (number or 99)
                    slots.set_cap(number or None)
                    assert lowered or not slots.waiting or slots.in_use == slots.cap
                case _:
                    await settle()
            if slots.waiting:
                assert slots.cap is not None
                assert slots.in_use >= slots.cap
        await settle()
        assert served == sorted(served)
        await give_all_back(slots, asked)
        assert (slots.in_use, slots.waiting) == (0, 0)

    asyncio.run(play())
