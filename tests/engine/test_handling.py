"""Items in hand: handlers, their locks, and what becomes of what they say."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from bide.clock import SystemClock
from bide.engine.dispatcher import Dispatcher, DispatcherSettings
from bide.engine.outcome import Dead, GivenBack, Outcome, Retried, Succeeded
from bide.errors import ProviderError
from bide.provider import Ack, NewItem, Settled, Settlement, WorkItem
from bide.providers.memory import MemoryProvider
from bide.telemetry import Telemetry
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


@pytest.fixture
def _virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.engine.handling.RenewalThread", RenewalOnLoop)


virtual = pytest.mark.usefixtures("_virtual")

# --- outcomes ----------------------------------------------------------------------------------------------------


@virtual
async def test_one_failing_and_one_hanging_name_hold_up_no_other() -> None:
    rig, _ = make_rig()
    got: dict[str, list[tuple[float, str]]] = {"raises": [], "hangs": [], "fine": []}

    async def handle(item: WorkItem) -> Outcome:
        got[item.name].append((rig.clock.monotonic(), item.id))
        if item.name == "raises":
            raise RuntimeError("no")
        if item.name == "hangs":
            await rig.clock.sleep(3600)
        return Succeeded()

    async with Running(rig, handle, places=dict.fromkeys(got, 1)):
        for name in got:
            await enqueue(rig, *(f"{name}{n}" for n in range(20)), name=name)
        await rig.clock.advance(1)
        assert [each for _, each in got["fine"]] == [f"fine{n}" for n in range(20)]
        assert all(at < 1 for at, _ in got["fine"])
        assert len(got["hangs"]) == 1
        assert len({each for _, each in got["raises"]}) == 20


@virtual
async def test_a_failed_attempt_is_tried_again_later_and_dead_after_the_last_with_its_reason() -> None:
    rig, _ = make_rig()
    tries = list[int]()

    async def handle(item: WorkItem) -> Outcome:
        tries.append(item.attempt)
        return Retried("no answer", SECOND)

    async with Running(rig, handle):
        await enqueue(rig, "a", max_attempts=3)
        await rig.clock.advance(10)
    assert tries == [1, 2, 3]
    (item,) = await rig.provider.items(QUEUE)
    assert item.state == "dead"
    assert item.error is not None
    assert "3 attempts" in item.error
    assert "no answer" in item.error


@virtual
async def test_giving_back_counts_no_attempt_and_lengthens_no_back_off() -> None:
    rig, _ = make_rig()
    at = list[tuple[float, int]]()

    async def handle(item: WorkItem) -> Outcome:
        at.append((rig.clock.monotonic(), item.attempt))
        if len(at) <= 500:
            return GivenBack("not yet", SECOND)
        if len(at) == 501:
            raise RuntimeError("an error at last")
        return Succeeded()

    async with Running(rig, handle):
        await enqueue(rig, "a", max_attempts=2)
        await rig.clock.advance(600)
    assert [attempt for _, attempt in at] == [1] * 501 + [2]
    assert at[501][0] - at[500][0] <= 1, "the delay after a first attempt"
    (item,) = await rig.provider.items(QUEUE)
    assert (item.state, item.given_back) == ("done", 500)


@virtual
async def test_dead_is_dead_at_once_and_a_result_is_kept_with_its_item() -> None:
    rig, _ = make_rig()

    async def handle(item: WorkItem) -> Outcome:
        return Dead("the receiver is gone") if item.id == "a" else Succeeded('{"sum": 3}')

    async with Running(rig, handle):
        await enqueue(rig, "a", "b")
        await rig.clock.advance(1)
    b, a = sorted(await rig.provider.items(QUEUE), key=lambda item: item.state, reverse=True)
    assert (a.state, a.error) == ("dead", "the receiver is gone")
    assert (b.state, b.result) == ("done", '{"sum": 3}')


@virtual
@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        SystemExit(1),
        ValueError("\ud800 no text"),
        ExceptionGroup("several", [ValueError(), OSError()]),
        BaseExceptionGroup("several", [KeyboardInterrupt()]),
        type("Odd", (BaseException,), {})("no Exception"),
    ],
)
async def test_whatever_a_handler_raises_is_a_failed_attempt(error: BaseException) -> None:
    rig, _ = make_rig()
    tries = list[int]()

    async def handle(item: WorkItem) -> Outcome:
        if item.id == "fine":
            return Succeeded()
        tries.append(item.attempt)
        raise error

    async with Running(rig, handle, settings=DispatcherSettings(concurrency=1)):
        await enqueue(rig, "a", max_attempts=3)
        await enqueue(rig, "fine")
        await rig.clock.advance(60)
    assert tries == [1, 2, 3]
    assert await states(rig) == {"a": "dead", "fine": "done"}


@virtual
async def test_a_handler_that_cancels_its_own_task_harms_no_other_item() -> None:
    rig, _ = make_rig()

    async def handle(item: WorkItem) -> Outcome:
        if item.id.startswith("self"):
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            return Succeeded()
        await rig.clock.sleep(0)
        return Succeeded()

    async with Running(rig, handle, settings=DispatcherSettings(concurrency=1)) as running:
        await enqueue(rig, "self1", "a", "self2", "b")
        await rig.clock.advance(60)
        assert running.told == [(each, Succeeded(), False) for each in ("self1", "a", "self2", "b")]


@virtual
async def test_a_cancellation_that_comes_after_its_handler_has_ended_harms_nobody() -> None:
    rig, _ = make_rig()
    ended = list[asyncio.Task[object]]()

    async def handle(item: WorkItem) -> Outcome:
        current = asyncio.current_task()
        assert current is not None
        ended.append(current)
        return Succeeded()

    async with Running(rig, handle, settings=DispatcherSettings(concurrency=1)) as running:
        for item in ("a", "b", "c"):
            await enqueue(rig, item)
            await rig.clock.advance(1)
            ended[-1].cancel()
            if item == "b":
                await rig.clock.advance(1)
        assert running.told == [(each, Succeeded(), False) for each in ("a", "b", "c")]


@virtual
@pytest.mark.parametrize("attempt", ["first", "last"])
async def test_what_a_handler_raises_since_it_is_stopped_costs_no_attempt(attempt: str) -> None:
    rig, _ = make_rig()

    async def handle(item: WorkItem) -> Outcome:
        try:
            await rig.clock.sleep(60)
        except asyncio.CancelledError:
            return Retried("ConnectionError: in the middle of a statement", 60 * SECOND)
        return Succeeded()

    await enqueue(rig, "a", max_attempts=3 if attempt == "first" else 1)
    async with Running(rig, handle, settings=DispatcherSettings(grace=SECOND)):
        await rig.clock.advance(1)
    (item,) = await rig.provider.items(QUEUE)
    assert (item.state, item.attempts, item.given_back) == ("ready", 0, 1)
    assert item.visible_at <= rig.clock.utc_ms()
    assert item.error == "stopped before it was done: ConnectionError: in the middle of a statement"


# --- many handlers -------------------------------------------------------------------------------------------------


@virtual
async def test_handlers_that_wait_are_at_work_at_the_same_time() -> None:
    rig, _ = make_rig()
    began = list[float]()

    async def handle(item: WorkItem) -> Outcome:
        began.append(rig.clock.monotonic())
        await rig.clock.sleep(10)
        return Succeeded()

    await enqueue(rig, *(f"i{n}" for n in range(60)))
    async with Running(rig, handle, settings=DispatcherSettings(concurrency=30)):
        await rig.clock.advance(25)
    assert began == [0.0] * 30 + [10.0] * 30


async def test_items_are_handled_where_tasks_begin_eagerly() -> None:
    asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory", None))
    provider = MemoryProvider(SystemClock())
    stopping, done = asyncio.Event(), list[str]()

    async def handle(item: WorkItem) -> Outcome:
        await asyncio.sleep(0.001 if item.id == "a" else 0)
        return Succeeded()

    def tell(item: WorkItem, outcome: Outcome, lost: bool, elapsed: float) -> None:
        done.append(item.id)
        if len(done) == 3:
            stopping.set()

    await provider.enqueue([NewItem(each, QUEUE, "mail", "{}") for each in "abc"])
    await dispatcher(provider, handle, told=tell, lock=SECOND).run(stopping)
    assert sorted(done) == ["a", "b", "c"]


@virtual
async def test_what_a_handler_binds_to_a_context_variable_is_its_own() -> None:
    rig, _ = make_rig()
    bound: contextvars.ContextVar[str] = contextvars.ContextVar("bound", default="nothing")
    seen = dict[str, list[str]]()

    async def handle(item: WorkItem) -> Outcome:
        seen[item.id] = [bound.get()]
        bound.set(item.id)
        if item.id in "bd":
            await rig.clock.sleep(1)
        seen[item.id].append(bound.get())
        async with asyncio.timeout(None):
            await asyncio.create_task(asyncio.sleep(0))
        seen[item.id].append(bound.get())
        return Succeeded()

    async with Running(rig, handle, settings=DispatcherSettings(concurrency=2)):
        await enqueue(rig, *"abcdef")
        await rig.clock.advance(10)
    assert seen == {each: ["nothing", each, each] for each in "abcdef"}
    assert bound.get() == "nothing"


async def test_handlers_that_never_wait_leave_the_event_loop_its_turns() -> None:
    """On the real clock: a turn is a matter of time."""
    clock = SystemClock()
    provider = MemoryProvider(clock)
    stopping, turns = asyncio.Event(), 0

    async def handle(item: WorkItem) -> Outcome:
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass
        if item.id == "i99":
            stopping.set()
        return Succeeded()

    async def count() -> None:
        nonlocal turns
        while not stopping.is_set():
            turns += 1
            await asyncio.sleep(0)

    await provider.enqueue([NewItem(f"i{n}", QUEUE, "mail", "{}") for n in range(100)])
    await asyncio.gather(dispatcher(provider, handle, concurrency=100).run(stopping), count())
    assert turns >= 100


# --- locks -------------------------------------------------------------------------------------------------------


@virtual
async def test_delayed_and_long_items_are_handled_once_between_two_workers() -> None:
    """The lock must not end before a long handler does, and a delayed item must not be claimed before it is due."""
    rig, _ = make_rig()
    starts = list[tuple[str, float]]()

    async def handle(item: WorkItem) -> Outcome:
        starts.append((item.id, rig.clock.monotonic()))
        await rig.clock.sleep(6)
        return Succeeded()

    settings = DispatcherSettings(lock_timeout=2 * SECOND)
    async with Running(rig, handle, settings=settings), Running(rig, handle, settings=settings):
        await rig.provider.enqueue([NewItem("late", QUEUE, "mail", "{}", delay=5 * SECOND)])
        await enqueue(rig, "long")
        await rig.clock.advance(30)
    assert starts == [("long", 0.0), ("late", 5.0)]


@virtual
async def test_a_lost_lock_cancels_the_handler_and_its_result_is_discarded() -> None:
    """A worker thought dead finishes later: nothing of it counts, and its place is free again."""
    rig, store = make_rig()
    ended = list[str]()

    async def handle(item: WorkItem) -> Outcome:
        try:
            await rig.clock.sleep(8 if ended else 1000)
        except asyncio.CancelledError:
            ended.append("cancelled")
        return Succeeded("late" if len(ended) == 1 and item.attempt == 1 else "again")

    settings = DispatcherSettings(concurrency=1)
    async with Running(rig, handle, settings=settings, places={"mail": 1}) as running:
        await enqueue(rig, "a")
        await rig.clock.advance(1)
        rig.clock.step_wall(3600)
        await rig.clock.advance(9)
        assert ended == ["cancelled"], "at the renewal, a third of the lock after it was taken"
        assert running.told == [("a", Succeeded("late"), True)]
        assert [each for batch in store.batches for each in batch] == [], "a lost item is not settled"
        await rig.clock.advance(30)
        assert running.told[1:] == [("a", Succeeded("again"), False)]
    (item,) = await rig.provider.items(QUEUE)
    assert (item.state, item.result) == ("done", "again")


@virtual
async def test_a_stale_settlement_is_told_as_lost() -> None:
    rig, _ = make_rig()

    async def handle(item: WorkItem) -> Outcome:
        rig.clock.step_wall(3600)  # the lock is over before the handler is
        return Succeeded()

    async with Running(rig, handle) as running:
        await enqueue(rig, "a")
        await rig.clock.advance(0)
        assert running.told[0] == ("a", Succeeded(), True)


@virtual
async def test_renewals_that_fail_for_a_while_lose_nothing() -> None:
    rig, store = make_rig()

    async def handle(item: WorkItem) -> Outcome:
        await rig.clock.sleep(60)
        return Succeeded()

    async with Running(rig, handle) as running:
        await enqueue(rig, "a")
        await rig.clock.advance(5)
        store.fail("renew")
        await rig.clock.advance(20)
        store.mend()
        await rig.clock.advance(40)
        assert running.told == [("a", Succeeded(), False)]


def dispatcher(
    provider: MemoryProvider,
    handle: Callable[[WorkItem], object],
    *,
    told: Callable[[WorkItem, Outcome, bool, float], None] = lambda *_: None,
    concurrency: int = 5,
    lock: timedelta = timedelta(seconds=30),
) -> Dispatcher:
    """One on the real clock."""
    return Dispatcher(
        provider,
        handle,  # type: ignore[arg-type]
        queues=[QUEUE],
        places={"mail": concurrency},
        clock=SystemClock(),
        telemetry=Telemetry(),
        told=told,
        settings=DispatcherSettings(concurrency=concurrency, lock_timeout=lock),
    )


@pytest.mark.parametrize("spins", [False, True])
async def test_a_handler_that_blocks_the_loop_for_several_locks_keeps_its_item(spins: bool) -> None:
    """On the real clock, since renewal has a thread of its own. A second worker, on a loop of its own, looks on."""
    provider = MemoryProvider(SystemClock())
    lock = timedelta(milliseconds=300)
    starts, told = list[float](), list[tuple[Outcome, bool]]()
    stopping, stop_other = asyncio.Event(), list[Callable[[], object]]()
    looks_on = threading.Event()

    async def look_on() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        stop_other.append(lambda: loop.call_soon_threadsafe(stop.set))
        looks_on.set()
        await dispatcher(MemoryProvider(SystemClock(), beside=provider), handle, lock=lock).run(stop)

    other = threading.Thread(target=lambda: asyncio.run(look_on()))

    async def handle(item: WorkItem) -> Outcome:
        starts.append(time.monotonic())
        other.start()
        looks_on.wait()
        until = time.monotonic() + 0.9
        while spins and time.monotonic() < until:
            pass
        time.sleep(max(until - time.monotonic(), 0))  # noqa: ASYNC251 - blocking the loop is what is tested
        return Succeeded()

    def tell(item: WorkItem, outcome: Outcome, lost: bool, elapsed: float) -> None:
        told.append((outcome, lost))
        stopping.set()

    await provider.enqueue([NewItem("a", QUEUE, "mail", "{}")])
    await dispatcher(provider, handle, told=tell, lock=lock).run(stopping)
    stop_other[0]()
    await asyncio.to_thread(other.join)
    assert len(starts) == 1
    assert told == [(Succeeded(), False)]


async def test_a_handler_that_blocks_the_loop_is_named_once_and_its_end_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On the real clock, since renewal has a thread of its own."""
    provider = MemoryProvider(SystemClock())
    stopping = asyncio.Event()

    async def block(item: WorkItem) -> Outcome:
        if item.id == "blocks":
            time.sleep(0.9)  # noqa: ASYNC251 - blocking the loop is what is tested
        return Succeeded()

    def tell(item: WorkItem, outcome: Outcome, lost: bool, elapsed: float) -> None:
        if item.id == "fine":
            asyncio.get_running_loop().call_later(0.3, stopping.set)

    await provider.enqueue([NewItem(each, QUEUE, "mail", "{}") for each in ("blocks", "fine")])
    with caplog.at_level("WARNING", "bide"):
        await dispatcher(provider, block, told=tell, lock=timedelta(milliseconds=300)).run(stopping)
    blocked, over = (record.getMessage() for record in caplog.records)
    assert blocked.startswith("the event loop has not turned for 0.")
    assert "mail (item blocks of queue mail) is at " in blocked
    assert "test_handling.py" in blocked
    assert blocked.endswith(
        "in block; await what takes time, or make it a plain function, which runs on a thread"
    )
    assert over.startswith("the event loop turns again")


async def test_an_item_whose_lock_is_lost_before_its_turn_is_never_begun() -> None:
    """On the real clock: only handlers that block keep others standing in line."""

    class Forgetful(MemoryProvider):
        async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
            alive = await super().renew(tokens, lock_timeout)
            return [lives and token != last for token, lives in zip(tokens, alive, strict=True)]

    provider = Forgetful(SystemClock())
    handled, told, stopping, last = list[str](), dict[str, bool](), asyncio.Event(), ""

    async def handle(item: WorkItem) -> Outcome:
        nonlocal last
        handled.append(item.id)
        if item.id == "i0":
            last = running._hands._crew.line[-1].token
            while last in running._hands._held.tokens():  # until it is renewed, in vain
                time.sleep(0.002)  # noqa: ASYNC251 - see above
        time.sleep(0.01)  # noqa: ASYNC251
        return Succeeded()

    def tell(item: WorkItem, outcome: Outcome, lost: bool, elapsed: float) -> None:
        told.setdefault(item.id, lost)
        if len(told) == 20:
            stopping.set()

    await provider.enqueue([NewItem(f"i{n}", QUEUE, "mail", "{}") for n in range(20)])
    lock = timedelta(milliseconds=600)
    running = dispatcher(provider, handle, told=tell, concurrency=20, lock=lock)
    await running.run(stopping)
    assert handled[:19] == [f"i{n}" for n in range(19)]
    assert told["i19"], "lost, and not by its handler"


async def test_what_stands_in_line_at_a_stop_is_given_back_as_it_was() -> None:
    """On the real clock: only handlers that block keep others standing in line."""
    provider = MemoryProvider(SystemClock())
    handled, stopping = list[str](), asyncio.Event()

    async def handle(item: WorkItem) -> Outcome:
        stopping.set()
        handled.append(item.id)
        time.sleep(0.01)  # noqa: ASYNC251 - see above
        return Succeeded()

    await provider.enqueue([NewItem(f"i{n}", QUEUE, "mail", "{}") for n in range(60)])
    await dispatcher(provider, handle, concurrency=60).run(stopping)
    left = await provider.items(QUEUE, limit=100)
    assert len(handled) + len(left) == 60
    assert len(left) > 20
    assert {(item.state, item.attempts, item.deaths) for item in left} == {("ready", 0, 0)}


# --- settling ------------------------------------------------------------------------------------------------------


@virtual
async def test_a_place_is_free_while_its_item_is_being_settled_and_the_lock_is_still_kept() -> None:
    rig, store = make_rig()
    store.settling_s = 25
    handled = list[float]()

    async def handle(item: WorkItem) -> Outcome:
        handled.append(rig.clock.monotonic())
        return Succeeded()

    settings = DispatcherSettings(concurrency=1, lock_timeout=15 * SECOND)
    async with Running(rig, handle, settings=settings, places={"mail": 1}) as running:
        await enqueue(rig, "a", "b", "c", "d")
        await rig.clock.advance(20)
        assert handled == [0.0, 0.0], "no more than twice the concurrency is handled and not settled"
        await rig.clock.advance(200)
        assert [(each, lost) for each, _, lost in running.told] == [(each, False) for each in "abcd"]


@virtual
async def test_a_provider_that_cannot_be_reached_for_settling_is_asked_again_and_nothing_more_is_fetched() -> (
    None
):
    rig, store = make_rig()
    store.fail("settle")
    handled = list[str]()

    async def handle(item: WorkItem) -> Outcome:
        handled.append(item.id)
        return Succeeded()

    async with Running(rig, handle, settings=DispatcherSettings(concurrency=3)) as running:
        await enqueue(rig, *(f"i{n}" for n in range(20)))
        await rig.clock.advance(100)
        assert len(handled) == 6
        store.mend()
        await rig.clock.advance(60)
        assert len(handled) == 20, "each once: locks were kept meanwhile"
        assert not any(lost for _, _, lost in running.told)
    assert set((await states(rig)).values()) == {"done"}


@virtual
async def test_what_cannot_be_kept_harms_no_neighbour_and_is_buried_with_the_reason() -> None:
    rig, store = make_rig()
    settle = store.settle

    async def picky(settlements: Sequence[Settlement]) -> list[Settled]:
        if any(isinstance(each, Ack) and each.result == "bad" for each in settlements):
            raise ProviderError("this result cannot be stored")
        return await settle(settlements)

    store.settle = picky  # type: ignore[method-assign]

    async def handle(item: WorkItem) -> Outcome:
        return Succeeded("bad" if item.id == "b" else "good")

    async with Running(rig, handle):
        await enqueue(rig, "a", "b", "c")
        await rig.clock.advance(1)
    by_id = {item.id: item for item in await rig.provider.items(QUEUE)}
    assert {id: item.state for id, item in by_id.items()} == {"a": "done", "b": "dead", "c": "done"}
    assert "cannot be stored" in (by_id["b"].error or "")


@virtual
async def test_a_fault_of_the_provider_while_settling_costs_neither_a_place_nor_an_item() -> None:
    rig, store = make_rig()
    store.faults["settle"] = [RuntimeError("a fault"), RuntimeError("a fault"), RuntimeError("a fault")]
    store.faults["settle"].append(ProviderError("and then it is away", retryable=True))
    async with Running(rig, succeed, settings=DispatcherSettings(concurrency=1)):
        await enqueue(rig, "a", "b")
        await rig.clock.advance(1)
        store.mend()
        await rig.clock.advance(120)
    assert set((await states(rig)).values()) == {"done"}


@virtual
@pytest.mark.parametrize("part", ["listener", "worker"])
async def test_a_fault_of_ours_ends_the_loop_with_it_and_nothing_goes_on_unheard(part: str) -> None:
    rig, _ = make_rig()
    running = Running(rig, succeed)

    def broken(*_: object) -> None:
        raise RuntimeError("told in vain")

    hands = running.dispatcher._hands
    told = hands._told
    if part == "listener":
        hands._told = broken
    else:
        hands._crew.ended = broken
    task = running.start()
    await enqueue(rig, "a")
    await rig.clock.advance(60)
    assert task.done()
    with pytest.raises(RuntimeError, match="told in vain"):
        task.result()
    hands._told, hands._crew.ended = told, hands._ended
    await enqueue(rig, "b")
    async with running:
        await rig.clock.advance(1)
        assert "b" in [each for each, _, _ in running.told], "the fault is over with its run"
