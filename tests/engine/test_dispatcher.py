"""The dispatcher: fetching, handing on, settling, losing locks and stopping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from bide.clock import SystemClock
from bide.engine.dispatcher import Dispatcher, DispatcherSettings
from bide.engine.outcome import Dead, GivenBack, Outcome, Retried, Succeeded
from bide.errors import ProviderError
from bide.provider import NewItem, Settled, Settlement, WorkItem
from bide.providers.memory import MemoryProvider
from bide.telemetry import ProviderDown, ProviderUp, Telemetry
from tests.engine.rig import Rig

QUEUE = "deliveries"
SECOND = timedelta(seconds=1)
Handler = Callable[[WorkItem], Coroutine[Any, Any, Outcome]]


class Work:
    """A dispatcher over the rig's provider, and a record of what its handlers did."""

    def __init__(
        self,
        rig: Rig,
        handler: Handler,
        *,
        places: Mapping[str, int] | None = None,
        settings: DispatcherSettings | None = None,
    ) -> None:
        self.rig = rig
        self.told: list[tuple[str, Outcome, bool]] = []
        self.dispatcher = Dispatcher(
            rig.provider,
            handler,
            queues=[QUEUE],
            places=places or {"mail": 100},
            clock=rig.clock,
            telemetry=rig.telemetry,
            told=lambda item, outcome, lost, elapsed: self.told.append((item.id, outcome, lost)),
            settings=settings,
        )
        self.stopping = asyncio.Event()

    async def __aenter__(self) -> Work:
        self.task = asyncio.ensure_future(self.dispatcher.run(self.stopping))
        await self.rig.clock.advance(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopping.set()
        self.dispatcher.stop_now()
        await asyncio.wait({self.task})
        self.task.result()


async def enqueue(rig: Rig, *ids: str, name: str = "mail", max_attempts: int | None = None) -> None:
    await rig.provider.enqueue([NewItem(each, QUEUE, name, "{}", max_attempts=max_attempts) for each in ids])


async def states(rig: Rig) -> dict[str, str]:
    return {item.id: item.state for item in await rig.provider.items(QUEUE)}


async def test_items_are_handled_and_done() -> None:
    rig, handled = Rig.make(), list[str]()

    async def handle(item: WorkItem) -> Outcome:
        handled.append(item.id)
        return Succeeded()

    async with Work(rig, handle):
        await enqueue(rig, "a", "b")
        await rig.clock.advance(0.1)
        await enqueue(rig, "c")
        await rig.clock.advance(0.1)
    assert handled == ["a", "b", "c"]
    assert set((await states(rig)).values()) == {"done"}


async def test_an_item_enqueued_while_a_fetch_waits_is_handled_at_once() -> None:
    rig, at = Rig.make(), list[float]()

    async def handle(item: WorkItem) -> Outcome:
        at.append(rig.clock.monotonic())
        return Succeeded()

    async with Work(rig, handle):
        await rig.clock.advance(20)
        await enqueue(rig, "a")
        await rig.clock.advance(0)
        assert at == [20.0]


async def test_no_more_items_are_locked_than_there_are_free_places() -> None:
    rig, running = Rig.make(), set[str]()
    gate = asyncio.Event()

    async def handle(item: WorkItem) -> Outcome:
        running.add(item.id)
        await gate.wait()
        return Succeeded()

    async with Work(rig, handle, settings=DispatcherSettings(concurrency=3)):
        await enqueue(rig, *(f"i{n}" for n in range(10)))
        await rig.clock.advance(1)
        assert len(running) == 3
        locked = [each for each in (await states(rig)).values() if each == "running"]
        assert len(locked) == 3
        gate.set()
        await rig.clock.advance(1)
    assert set((await states(rig)).values()) == {"done"}


async def test_a_name_holds_no_more_than_its_places_and_gets_the_next_as_soon_as_one_is_free() -> None:
    rig, running = Rig.make(), list[str]()
    gates = {name: asyncio.Event() for name in ("s0", "s1")}

    async def handle(item: WorkItem) -> Outcome:
        running.append(item.id)
        if item.id in gates:
            await gates[item.id].wait()
        return Succeeded()

    async with Work(rig, handle, places={"slow": 1, "fast": 1}):
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


async def test_one_failing_and_one_hanging_subscriber_hold_up_no_other() -> None:
    rig = Rig.make()
    got: dict[str, list[tuple[float, str]]] = {"raises": [], "hangs": [], "fine": []}

    async def handle(item: WorkItem) -> Outcome:
        got[item.name].append((rig.clock.monotonic(), item.id))
        if item.name == "raises":
            raise RuntimeError("no")
        if item.name == "hangs":
            await rig.clock.sleep(3600)
        return Succeeded()

    async with Work(rig, handle, places=dict.fromkeys(got, 1)):
        for name in got:
            await enqueue(rig, *(f"{name}{n}" for n in range(20)), name=name)
        await rig.clock.advance(1)
        assert [each for _, each in got["fine"]] == [f"fine{n}" for n in range(20)]
        assert all(at < 1 for at, _ in got["fine"])
        assert len(got["hangs"]) == 1
        assert len({each for _, each in got["raises"]}) == 20


async def test_a_failed_attempt_is_tried_again_later_and_dead_after_the_last_with_its_reason() -> None:
    rig, tries = Rig.make(), list[int]()

    async def handle(item: WorkItem) -> Outcome:
        tries.append(item.attempt)
        return Retried("no answer", SECOND)

    async with Work(rig, handle):
        await enqueue(rig, "a", max_attempts=3)
        await rig.clock.advance(10)
    assert tries == [1, 2, 3]
    (item,) = await rig.provider.items(QUEUE)
    assert item.state == "dead"
    assert item.error is not None
    assert "3 attempts" in item.error
    assert "no answer" in item.error


async def test_giving_back_counts_no_attempt() -> None:
    rig, tries = Rig.make(), list[int]()

    async def handle(item: WorkItem) -> Outcome:
        tries.append(item.attempt)
        return GivenBack("no free slot", SECOND) if len(tries) < 500 else Succeeded()

    async with Work(rig, handle):
        await enqueue(rig, "a", max_attempts=2)
        await rig.clock.advance(600)
    assert set(tries) == {1}
    assert await states(rig) == {"a": "done"}


async def test_a_handler_that_raises_a_cancellation_of_its_own_is_a_failed_attempt() -> None:
    rig, tries = Rig.make(), list[int]()

    async def handle(item: WorkItem) -> Outcome:
        tries.append(item.attempt)
        raise asyncio.CancelledError

    async with Work(rig, handle):
        await enqueue(rig, "a", max_attempts=3)
        await rig.clock.advance(60)
    assert tries == [1, 2, 3]
    assert await states(rig) == {"a": "dead"}


async def test_a_fault_of_the_provider_while_settling_costs_no_place() -> None:
    rig = Rig.make()
    settle, faults = rig.provider.settle, [RuntimeError("a fault")]

    async def faulty(settlements: Sequence[Settlement]) -> list[Settled]:
        if faults:
            raise faults.pop()
        return await settle(settlements)

    rig.provider.settle = faulty  # type: ignore[method-assign]

    async def handle(item: WorkItem) -> Outcome:
        return Succeeded()

    async with Work(rig, handle, settings=DispatcherSettings(concurrency=1)):
        await enqueue(rig, "a", "b")
        await rig.clock.advance(120)
    assert await states(rig) == {"a": "done", "b": "done"}


async def test_dead_is_dead_at_once() -> None:
    rig = Rig.make()

    async def handle(item: WorkItem) -> Outcome:
        return Dead("the receiver is gone")

    async with Work(rig, handle):
        await enqueue(rig, "a")
        await rig.clock.advance(1)
    (item,) = await rig.provider.items(QUEUE)
    assert (item.state, item.error) == ("dead", "the receiver is gone")


async def test_a_lock_is_renewed_while_its_handler_runs_and_a_second_worker_does_not_get_the_item() -> None:
    """On the real clock, since renewal has a thread of its own."""
    clock = SystemClock()
    provider = MemoryProvider(clock)
    starts: list[float] = []

    async def handle(item: WorkItem) -> Outcome:
        starts.append(time.monotonic())
        time.sleep(0.5)  # noqa: ASYNC251 - the handler that blocks the loop is what is tested
        await asyncio.sleep(0.2)
        return Succeeded()

    settings = DispatcherSettings(lock_timeout=timedelta(milliseconds=240))
    told: list[tuple[Outcome, bool]] = []
    stopping = asyncio.Event()

    def tell(item: WorkItem, outcome: Outcome, lost: bool, elapsed: float) -> None:
        told.append((outcome, lost))
        stopping.set()

    def dispatcher() -> Dispatcher:
        return Dispatcher(
            provider,
            handle,
            queues=[QUEUE],
            places={"mail": 5},
            clock=clock,
            telemetry=Telemetry(),
            told=tell,
            settings=settings,
        )

    await provider.enqueue([NewItem("a", QUEUE, "mail", "{}")])
    await asyncio.gather(dispatcher().run(stopping), dispatcher().run(stopping))
    assert len(starts) == 1
    assert told == [(Succeeded(), False)]


async def test_a_lost_lock_cancels_the_handler_and_its_result_is_discarded() -> None:
    rig, ended = Rig.make(), list[str]()

    async def handle(item: WorkItem) -> Outcome:
        try:
            await rig.clock.sleep(1000)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return Succeeded()

    work = Work(rig, handle)
    async with work:
        await enqueue(rig, "a")
        await rig.clock.advance(0)
        (item,) = work.dispatcher._hands._running.values()
        work.dispatcher._hands._held.lose(item.item.token)
        await rig.clock.advance(0)
        assert ended == ["cancelled"]
    assert [(each, lost) for each, _, lost in work.told] == [("a", True)]


async def test_a_stale_settlement_is_told_as_lost() -> None:
    rig = Rig.make()

    async def handle(item: WorkItem) -> Outcome:
        rig.clock.step_wall(3600)  # the lock is over before the handler is
        return Succeeded()

    async with Work(rig, handle) as work:
        await enqueue(rig, "a")
        await rig.clock.advance(0)
        assert work.told[0] == ("a", Succeeded(), True)


async def test_stop_takes_in_nothing_more_and_lets_running_handlers_end() -> None:
    rig, handled = Rig.make(), list[str]()

    async def handle(item: WorkItem) -> Outcome:
        await rig.clock.sleep(5)
        handled.append(item.id)
        return Succeeded()

    work = Work(rig, handle)
    task = asyncio.ensure_future(work.dispatcher.run(work.stopping))
    await enqueue(rig, "a")
    await rig.clock.advance(1)
    work.stopping.set()
    await rig.clock.advance(0)
    await enqueue(rig, "b")
    await rig.clock.advance(10)
    assert task.done()
    assert handled == ["a"]
    assert await states(rig) == {"a": "done", "b": "ready"}


@pytest.mark.parametrize("hurry", [False, True])
async def test_after_the_grace_or_a_second_signal_handlers_are_cancelled_and_items_given_back_uncounted(
    hurry: bool,
) -> None:
    rig = Rig.make()

    async def handle(item: WorkItem) -> Outcome:
        await rig.clock.sleep(10_000)
        return Succeeded()

    work = Work(rig, handle, settings=DispatcherSettings(grace=timedelta(seconds=20)))
    task = asyncio.ensure_future(work.dispatcher.run(work.stopping))
    for deploy in range(4):
        if deploy:
            work = Work(rig, handle, settings=DispatcherSettings(grace=timedelta(seconds=20)))
            task = asyncio.ensure_future(work.dispatcher.run(work.stopping))
        else:
            await enqueue(rig, "a", max_attempts=3)
        await rig.clock.advance(1)
        work.stopping.set()
        await rig.clock.advance(1)
        assert not task.done()
        if hurry:
            work.dispatcher.stop_now()
            await rig.clock.advance(0)
        else:
            await rig.clock.advance(20)
        assert task.done()
        (item,) = await rig.provider.items(QUEUE)
        assert (item.state, item.attempts) == ("ready", 0)


async def test_a_handler_that_swallows_its_cancellation_does_not_hold_up_the_stop() -> None:
    rig, released = Rig.make(), asyncio.Event()

    async def handle(item: WorkItem) -> Outcome:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return Succeeded()

    work = Work(rig, handle, settings=DispatcherSettings(grace=SECOND))
    task = asyncio.ensure_future(work.dispatcher.run(work.stopping))
    await enqueue(rig, "a")
    await rig.clock.advance(1)
    work.stopping.set()
    await rig.clock.advance(30)
    assert task.done()
    released.set()
    await rig.clock.advance(0)


@pytest.mark.parametrize("ticks", range(0, 80, 9))
async def test_a_stop_at_any_moment_loses_nothing(ticks: int) -> None:
    rig = Rig.make()

    async def handle(item: WorkItem) -> Outcome:
        return Succeeded()

    work = Work(rig, handle)
    task = asyncio.ensure_future(work.dispatcher.run(work.stopping))
    await enqueue(rig, "a", "b", "c")
    for _ in range(ticks):
        await asyncio.sleep(0)
    work.stopping.set()
    await rig.clock.advance(60)
    assert task.done()
    assert set((await states(rig)).values()) <= {"done", "ready"}
    async with Work(rig, handle):
        await rig.clock.advance(60)
    assert set((await states(rig)).values()) == {"done"}


class Flaky(MemoryProvider):
    """A provider that is away until told otherwise."""

    away = False

    async def fetch_work_items(self, *args: object, **settings: object):  # type: ignore[no-untyped-def]
        if self.away:
            raise ProviderError("connection lost", retryable=True)
        return await super().fetch_work_items(*args, **settings)  # type: ignore[arg-type]


async def test_while_the_provider_is_away_it_backs_off_and_tells_the_edges_only() -> None:
    rig = Rig.make()
    provider = Flaky(rig.clock)
    rig = Rig(rig.clock, provider, rig.telemetry, rig.told, rig.api)
    handled: list[str] = []

    async def handle(item: WorkItem) -> Outcome:
        handled.append(item.id)
        return Succeeded()

    provider.away = True
    async with Work(rig, handle):
        await enqueue(rig, "a")
        await rig.clock.advance(600)
        (down,) = rig.told_of(ProviderDown)
        assert "connection lost" in down.error
        provider.away = False
        await rig.clock.advance(60)
        (up,) = rig.told_of(ProviderUp)
        assert 20 <= up.failures <= 40, "100 ms doubling to 30 s, not a storm"
        assert handled == ["a"]


async def test_an_error_that_will_not_pass_ends_the_loop_with_it() -> None:
    rig = Rig.make()

    class Broken(MemoryProvider):
        async def fetch_work_items(self, *args: object, **settings: object):  # type: ignore[no-untyped-def]
            raise ProviderError("the file is not a database")

    rig = Rig(rig.clock, Broken(rig.clock), rig.telemetry, rig.told, rig.api)

    async def handle(item: WorkItem) -> Outcome:
        return Succeeded()

    work = Work(rig, handle)
    with pytest.raises(ProviderError, match="not a database"):
        await work.dispatcher.run(work.stopping)


async def test_a_drain_handles_what_is_there_once_and_returns() -> None:
    rig, tries = Rig.make(), list[str]()

    async def handle(item: WorkItem) -> Outcome:
        tries.append(item.id)
        return Retried("no", timedelta()) if item.id == "b" else Succeeded()

    await enqueue(rig, *(f"i{n}" for n in range(50)), "b")
    work = Work(rig, handle, settings=DispatcherSettings(concurrency=4))
    await work.dispatcher.drain(timedelta(minutes=1))
    assert sorted(tries) == sorted([*(f"i{n}" for n in range(50)), "b"])
    (left,) = [item for item in await rig.provider.items(QUEUE) if item.state != "done"]
    assert (left.id, left.state, left.attempts, left.error) == ("b", "ready", 1, "no")


async def test_a_drain_takes_in_nothing_more_once_its_time_is_over() -> None:
    rig, tries = Rig.make(), list[str]()

    async def handle(item: WorkItem) -> Outcome:
        tries.append(item.id)
        await rig.clock.sleep(10)
        return Succeeded()

    await enqueue(rig, *(f"i{n}" for n in range(100)))
    work = Work(rig, handle, places={"mail": 1})
    draining = asyncio.ensure_future(work.dispatcher.drain(timedelta(minutes=1)))
    await rig.clock.advance(100)
    assert draining.done()
    assert 6 <= len(tries) <= 8
    assert sum(item.state == "ready" for item in await rig.provider.items(QUEUE)) == 100 - len(tries)
