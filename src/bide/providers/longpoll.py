"""Fetches that wait: rung by what happens in this process, and looking again for what others did."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial

from bide.clock import Clock
from bide.provider import Empty, Items

LOOK_AGAIN_S = 1.0
"""A waiting fetch looks at least so often for what other processes enqueued."""

LEAST_WAIT_S = 0.001
"""Timers are not finer, and an instant that has just passed must not make a loop spin."""


class Sleeper:
    """One waiting fetch. ``rung``: something happened since it last looked; ``ended``: it shall not wait on."""

    __slots__ = ("_future", "ended", "rung")

    def __init__(self) -> None:
        self.rung = False
        self.ended = False
        self._future: asyncio.Future[None] | None = None

    def ring(self, *, end: bool = False) -> None:
        """Wake it; to be called on its own event loop."""
        self.rung = True
        self.ended = self.ended or end
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, clock: Clock, seconds: float) -> bool:
        """Until it is rung from now on, or ``seconds`` have passed; whether it was rung."""
        loop = asyncio.get_running_loop()
        self._future = future = loop.create_future()
        timer = loop.create_task(clock.sleep(max(seconds, LEAST_WAIT_S)))
        timer.add_done_callback(lambda done: _pass_on(done, future))
        try:
            await future
        finally:
            self._future = None
            timer.cancel()
        return self.rung


class Bell:
    """Every waiting fetch of a provider, by its event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sleepers: dict[asyncio.AbstractEventLoop, set[Sleeper]] = {}

    @contextmanager
    def sleeper(self) -> Iterator[Sleeper]:
        """A new one on the running loop, for as long as the block lasts."""
        loop = asyncio.get_running_loop()
        sleeper = Sleeper()
        with self._lock:
            self._sleepers.setdefault(loop, set()).add(sleeper)
        try:
            yield sleeper
        finally:
            with self._lock:
                others = self._sleepers[loop]
                others.discard(sleeper)
                if not others:
                    del self._sleepers[loop]

    def loops(self) -> list[asyncio.AbstractEventLoop]:
        """Event loops on which somebody waits. From any thread."""
        with self._lock:
            return list(self._sleepers)

    def ring(self, loop: asyncio.AbstractEventLoop, *, end: bool = False) -> None:
        """Wake whoever waits on ``loop``; to be called on that loop."""
        with self._lock:
            sleepers = list(self._sleepers.get(loop, ()))
        for sleeper in sleepers:
            sleeper.ring(end=end)

    def ring_everywhere(self, *, end: bool = False) -> None:
        """Wake whoever waits, on every loop. From any thread."""
        for loop in self.loops():
            _call_on(loop, partial(self.ring, loop, end=end))


async def long_poll(
    take: Callable[[], Awaitable[Items | Empty]],
    peek: Callable[[], Awaitable[timedelta | None]],
    *,
    bell: Bell,
    clock: Clock,
    poll_timeout: timedelta,
    look_again_s: Callable[[], float] = lambda: LOOK_AGAIN_S,
) -> Items | Empty:
    """What ``take`` finds, waiting up to ``poll_timeout`` for it.

    ``peek`` says cheaply when something will be eligible (zero: now), for what happened elsewhere; it is asked
    at least every ``look_again_s()`` seconds.
    """
    if poll_timeout <= timedelta():
        return await take()
    deadline = clock.monotonic() + poll_timeout.total_seconds()
    waited = False
    with bell.sleeper() as sleeper:
        while True:
            sleeper.rung = False
            found = await take()
            if isinstance(found, Items):
                return Items(found.items, blocked=waited)
            if sleeper.ended or clock.monotonic() >= deadline:
                return Empty(found.next_eligible_in, blocked=True)
            waited = True
            await _wait(sleeper, peek, found.next_eligible_in, deadline, clock, look_again_s=look_again_s)


async def _wait(
    sleeper: Sleeper,
    peek: Callable[[], Awaitable[timedelta | None]],
    next_in: timedelta | None,
    deadline: float,
    clock: Clock,
    *,
    look_again_s: Callable[[], float],
) -> None:
    """Until it is worth looking again: rung, something became eligible, or the time is up."""
    while not sleeper.rung and (left := deadline - clock.monotonic()) > 0:
        soon = look_again_s()
        if next_in is not None:
            soon = min(soon, next_in.total_seconds())
        rung = await sleeper.wait(clock, min(left, soon))
        if rung or clock.monotonic() >= deadline:
            return  # a look at everything follows
        next_in = await peek()
        if next_in is not None and next_in <= timedelta():
            return


def _pass_on(timer: asyncio.Task[None], future: asyncio.Future[None]) -> None:
    """End the wait as its timer ended."""
    if timer.cancelled():
        return
    error = timer.exception()
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(None)


def _call_on(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Run ``call`` on ``loop``, unless that has been closed: then nobody waits there any more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
