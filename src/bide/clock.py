"""The only module that tells time, waits or draws chance.

Everything else is given a ``Clock``; tests give it ``bide.testing.VirtualClock`` and never sleep.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Protocol

_SLICE = 3600.0
"""Longest single sleep in seconds. Event loops turn delays into bounded integers, so long ones go in slices."""


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Make it not come."""
        ...


class Clock(Protocol):
    """Two clocks, two ways to wait and a source of chance."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps; only differences mean anything."""
        ...

    def utc_ms(self) -> int:
        """Milliseconds since the Unix epoch on the wall clock; may step."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait ``seconds`` of the monotonic clock; zero or less only yields."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback`` in the running event loop when ``seconds`` of the monotonic clock have passed."""
        ...

    def draw(self) -> float:
        """A number in [0, 1) drawn evenly."""
        ...

    def new_id(self) -> str:
        """A new unique name: 32 hexadecimal digits that sort by the time they were made."""
        ...


class BlockingClock(Protocol):
    """What code without an event loop waits by. Any thread may set the events."""

    def monotonic(self) -> float:
        """As that of :class:`Clock`."""
        ...

    def draw(self) -> float:
        """As that of :class:`Clock`."""
        ...

    def pause(self, seconds: float, until: threading.Event) -> bool:
        """Let ``seconds`` pass, or less where ``until`` is set; whether it is."""
        ...

    def expect(self, done: threading.Event, seconds: float) -> bool:
        """Wait for the work of another thread, for up to ``seconds``; whether it is ``done``."""
        ...


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)

    def utc_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> Coroutine[None, None, None]:
        # No coroutine around asyncio's own: there may be very many sleepers.
        return asyncio.sleep(seconds) if 0.0 <= seconds <= _SLICE else _slept(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        if seconds > _SLICE:
            return _LongTimer(seconds, callback)
        return asyncio.get_running_loop().call_later(max(seconds, 0.0), callback)

    def pause(self, seconds: float, until: threading.Event) -> bool:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if until.wait(min(left, _SLICE)):
                return True
        return until.is_set()

    def expect(self, done: threading.Event, seconds: float) -> bool:
        return SystemClock.pause(self, seconds, done)

    def draw(self) -> float:
        return random.random()  # noqa: S311 - jitter, not secrets

    def new_id(self) -> str:
        return make_id(self.utc_ms(), random.getrandbits(74))  # a name, not a secret


async def _slept(seconds: float) -> None:
    left = seconds
    while left > _SLICE:
        began = time.monotonic()
        await asyncio.sleep(_SLICE)
        left -= time.monotonic() - began
    await asyncio.sleep(max(left, 0.0))


class _LongTimer:
    """A timer that goes in slices, as a long sleep does."""

    __slots__ = ("_callback", "_due_at", "_slice")

    def __init__(self, seconds: float, callback: Callable[[], object]) -> None:
        self._due_at = time.monotonic() + seconds
        self._callback = callback
        self._slice = asyncio.get_running_loop().call_later(_SLICE, self._go_on)

    def _go_on(self) -> None:
        left = self._due_at - time.monotonic()
        if left > 0:
            self._slice = asyncio.get_running_loop().call_later(min(left, _SLICE), self._go_on)
        else:
            self._callback()

    def cancel(self) -> None:
        self._slice.cancel()


_SYSTEM = SystemClock()
_stand_ins: list[Callable[[], SystemClock]] = []


def present_clock() -> SystemClock:
    """The clock of whoever was given none: the machine's, or that of a test which put another in its place."""
    return _stand_ins[-1]() if _stand_ins else _SYSTEM


@contextmanager
def stands_in(make: Callable[[], SystemClock]) -> Iterator[None]:
    """Until the end of the block, answer what ``make`` answers for :func:`present_clock`, in every thread."""
    _stand_ins.append(make)
    try:
        yield
    finally:
        _stand_ins.remove(make)


def make_id(now_ms: int, chance: int) -> str:
    """An identifier of the UUIDv7 layout (RFC 9562, 5.7): 48 bits of time, then 74 bits of chance."""
    high, low = chance >> 62, chance & ((1 << 62) - 1)
    return f"{(now_ms << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low:032x}"


def is_cancelled() -> bool:
    """Whether somebody asked for the cancellation of the present task, rather than its own code raising it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
