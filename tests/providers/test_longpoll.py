"""Waiting for work: rung, timed, cancelled, in this process and for what others do."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from bide.provider import Empty, Items
from bide.providers.longpoll import Bell, long_poll
from bide.testing import VirtualClock

SECOND = timedelta(seconds=1)


class Shelf:
    """Something to take from. ``announced``: whether those who put something there ring."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.bell = Bell()
        self.full = False
        self.takes = 0
        self.peeks = 0
        self.next_in: timedelta | None = None

    async def take(self) -> Items | Empty:
        self.takes += 1
        return Items(()) if self.full else Empty(self.next_in)

    async def peek(self) -> timedelta | None:
        self.peeks += 1
        return timedelta() if self.full else self.next_in

    def wait(self, seconds: float) -> asyncio.Task[Items | Empty]:
        return asyncio.create_task(
            long_poll(
                self.take,
                self.peek,
                bell=self.bell,
                clock=self.clock,
                poll_timeout=timedelta(seconds=seconds),
            )
        )


async def test_what_nobody_announced_is_found_within_a_second() -> None:
    shelf = Shelf()
    waiting = shelf.wait(30)
    await shelf.clock.advance(10.5)
    assert (shelf.takes, shelf.peeks) == (1, 10)
    shelf.full = True
    await shelf.clock.advance(0.5)
    assert await waiting == Items((), blocked=True)
    assert shelf.clock.monotonic() == 11


async def test_what_is_known_to_come_is_waited_for_exactly() -> None:
    shelf = Shelf()
    shelf.next_in = timedelta(seconds=0.25)
    waiting = shelf.wait(30)
    await shelf.clock.advance(0.24)
    shelf.full = True
    assert not waiting.done()
    await shelf.clock.advance(0.01)
    assert await waiting == Items((), blocked=True)


async def test_an_instant_that_never_comes_does_not_spin() -> None:
    shelf = Shelf()
    shelf.next_in = timedelta()
    waiting = shelf.wait(1)
    await shelf.clock.advance(1)
    assert isinstance(await waiting, Empty)
    assert shelf.takes <= 1002


@pytest.mark.parametrize("turns", range(12))
async def test_cancelling_at_any_moment_ends_it_and_leaves_no_sleeper(turns: int) -> None:
    shelf = Shelf()
    waiting = shelf.wait(30)
    for _ in range(turns):
        await asyncio.sleep(0)
    shelf.bell.ring_everywhere()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    assert shelf.bell.loops() == []
    await shelf.clock.advance(0)
    assert shelf.clock.sleeping == 0


async def test_a_ring_during_the_look_is_not_lost() -> None:
    shelf = Shelf()

    async def take() -> Items | Empty:
        found = await shelf.take()
        if shelf.takes == 1:
            shelf.full = True
            shelf.bell.ring_everywhere()
            await asyncio.sleep(0)
        return found

    found = await long_poll(
        take, shelf.peek, bell=shelf.bell, clock=shelf.clock, poll_timeout=timedelta(seconds=30)
    )
    assert (found, shelf.clock.monotonic()) == (Items((), blocked=True), 0)


async def test_a_clock_that_fails_is_heard_of() -> None:
    class Broken(VirtualClock):
        async def sleep(self, seconds: float) -> None:
            raise RuntimeError(f"no clock to wait {seconds} s by")

    shelf = Shelf()
    shelf.clock = Broken()
    with pytest.raises(RuntimeError, match="no clock"):
        await shelf.wait(30)


async def test_a_ring_for_a_loop_that_is_gone_is_ignored() -> None:
    bell = Bell()

    async def leave() -> None:
        bell.sleeper().__enter__()

    loop = asyncio.new_event_loop()
    await asyncio.to_thread(loop.run_until_complete, leave())
    loop.close()
    bell.ring_everywhere()
