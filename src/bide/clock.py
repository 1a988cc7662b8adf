"""The only module that tells time, waits or draws chance.

Everything else is given a ``Clock``; tests give it ``bide.testing.VirtualClock`` and never sleep.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Protocol

_SLICE = 3600.0
"""Longest single sleep in seconds. Event loops turn delays into bounded integers, so long ones go in slices."""


class Clock(Protocol):
    """Two clocks, a way to wait and a source of chance."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps; only differences mean anything."""
        ...

    def utc_ms(self) -> int:
        """Milliseconds since the Unix epoch on the wall clock; may step."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait ``seconds`` of the monotonic clock; zero or less only yields."""
        ...

    def draw(self) -> float:
        """A number in [0, 1) drawn evenly."""
        ...

    def new_id(self) -> str:
        """A new unique name: 32 hexadecimal digits that sort by the time they were made."""
        ...


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)

    def utc_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        left = seconds
        while left > _SLICE:
            began = time.monotonic()
            await asyncio.sleep(_SLICE)
            left -= time.monotonic() - began
        await asyncio.sleep(max(left, 0.0))

    def draw(self) -> float:
        return random.random()  # noqa: S311 - jitter, not secrets

    def new_id(self) -> str:
        return make_id(self.utc_ms(), random.getrandbits(74))  # a name, not a secret


def make_id(now_ms: int, chance: int) -> str:
    """An identifier of the UUIDv7 layout (RFC 9562, 5.7): 48 bits of time, then 74 bits of chance."""
    high, low = chance >> 62, chance & ((1 << 62) - 1)
    return f"{(now_ms << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low:032x}"


def is_cancelled() -> bool:
    """Whether somebody asked for the cancellation of the present task, rather than its own code raising it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
