"""A stop has an end, whatever hangs: its steps have limits, and somebody who asks again cuts them short."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from bide.engine.dispatcher import DispatcherSettings
from bide.engine.outcome import Outcome, Succeeded
from bide.engine.stopping import HURRIED_S, Haste, side_by_side
from bide.provider import Fetched, Settled, Settlement, WorkItem
from bide.testing import VirtualClock
from tests.engine.dispatching import RenewalOnLoop, Running, Store, enqueue, make_rig, states
from tests.engine.rig import Rig


@pytest.fixture(autouse=True)
def _virtual_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.engine.handling.RenewalThread", RenewalOnLoop)


class Hanging(Store):
    """A store that answers nothing once it ``hangs``; a ``stubborn`` one does not even heed a cancellation."""

    hangs = False
    stubborn = False

    async def fetch_work_items(self, queues: Any, names: Any, **how: Any) -> Fetched:
        try:
            return await super().fetch_work_items(queues, names, **how)
        except asyncio.CancelledError:
            await (
                self._hang()
            )  # as where what was asked of a server must be known before it can be given back
            raise

    async def release(self, fetch_token: str) -> int:
        await self._hang()
        return await super().release(fetch_token)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        await self._hang()
        return await super().settle(settlements)

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        if self.hangs:
            await self.clock.sleep(1000)
        return await super().renew(tokens, lock_timeout)

    async def _hang(self) -> None:
        while self.hangs:
            try:
                await self.clock.sleep(1000)
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise


class Stop:
    """A dispatcher over a store that hangs, with one handler at work, asked to stop just now."""

    def __init__(self, *, grace: float, stubborn: bool) -> None:
        rig = Rig.make()
        self.store = Hanging(rig.clock)
        self.rig = Rig(rig.clock, self.store, rig.telemetry, rig.told, rig.api)
        self.store.stubborn = stubborn
        self.cancelled_at: float | None = None
        settings = DispatcherSettings(grace=timedelta(seconds=grace), lock_timeout=timedelta(minutes=10))
        self.running = Running(self.rig, self._handle, settings=settings)

    async def begin(self) -> None:
        self.task = self.running.start()
        await enqueue(self.rig, "long", "short")
        await self.rig.clock.advance(1)
        self.store.hangs = True
        await self.rig.clock.advance(1)  # the short one ends, and is being settled
        self.began = self.rig.clock.monotonic()
        self.running.stopping.set()
        await self.rig.clock.advance(0)

    async def ended_after(self, limit: float) -> float:
        """The seconds that the stop took."""
        while not self.task.done():
            await self.rig.clock.advance(0.25)
            assert self.rig.clock.monotonic() - self.began <= limit + 0.25
        self.task.result()
        took = self.rig.clock.monotonic() - self.began
        self.store.hangs = False
        await self.rig.clock.advance(2000)
        return took

    async def _handle(self, item: WorkItem) -> Outcome:
        try:
            await self.rig.clock.sleep(1.5 if item.id == "short" else 10_000)
        except asyncio.CancelledError:
            self.cancelled_at = self.rig.clock.monotonic()
            raise
        return Succeeded()


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("grace", [0, 3, 20])
async def test_over_a_store_that_hangs_the_grace_begins_at_once_and_ten_seconds_later_it_is_over(
    grace: float, stubborn: bool
) -> None:
    stop = Stop(grace=grace, stubborn=stubborn)
    await stop.begin()
    assert await stop.ended_after(grace + 10) <= grace + 10
    assert stop.cancelled_at == stop.began + grace


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("after", [0, 2, 4.5, 22])
async def test_asked_again_it_waits_for_a_store_that_hangs_no_longer_than_about_a_second_a_step(
    after: float, stubborn: bool
) -> None:
    stop = Stop(grace=20, stubborn=stubborn)
    await stop.begin()
    await stop.rig.clock.advance(after)
    stop.running.dispatcher.stop_now()
    await stop.rig.clock.advance(0)
    assert stop.cancelled_at == stop.began + min(after, 20)
    assert await stop.ended_after(30) <= after + 4 * HURRIED_S


async def test_a_stop_that_was_hurried_hurries_no_later_run() -> None:
    rig, _ = make_rig()

    async def handle(item: WorkItem) -> Outcome:
        await rig.clock.sleep(5)
        return Succeeded()

    running = Running(rig, handle)
    for id, hurried in (("a", True), ("b", False)):
        await enqueue(rig, id)
        task = running.start()
        await rig.clock.advance(1)
        running.stopping.set()
        if hurried:
            running.dispatcher.stop_now()
        await rig.clock.advance(1)
        assert task.done() == hurried
        await rig.clock.advance(5)
        task.result()
        running.stopping.clear()
    assert await states(rig) == {"a": "done", "b": "done"}


async def test_a_wait_is_as_long_as_its_limit_or_as_what_is_left_of_haste() -> None:
    clock = VirtualClock()
    haste = Haste(clock)
    never = asyncio.get_running_loop().create_future()

    async def took(seconds: float, *, asked_after: float | None, **how: float) -> float:
        haste.forget()
        began = clock.monotonic()
        waiting = asyncio.ensure_future(haste.ends_within(seconds, never, **how))
        if asked_after is not None:
            await clock.advance(asked_after)
            haste.ask()
        await clock.advance(0)
        while not waiting.done():
            await clock.advance(0.25)
        assert not waiting.result()
        return clock.monotonic() - began

    assert await took(5, asked_after=None) == 5
    assert await took(5, asked_after=0) == HURRIED_S
    assert await took(5, asked_after=2) == 2 + HURRIED_S
    assert await took(5, asked_after=4.5) == 5
    assert await took(5, asked_after=2, hurried_s=0) == 2
    assert await took(5, asked_after=2, hurried_s=5) == 5
    never.set_result(None)
    assert await haste.ends_within(5, never)


async def test_of_steps_taken_side_by_side_each_comes_to_its_end_and_the_first_failure_is_raised() -> None:
    ended: list[str] = []

    async def fail(name: str, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        ended.append(name)
        raise ValueError(name)

    with pytest.raises(ValueError, match="slow"):
        await side_by_side(fail("slow", 5), fail("quick", 0))
    assert ended == ["quick", "slow"]
