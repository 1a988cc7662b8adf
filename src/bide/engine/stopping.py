"""The limits of a stop: each of its steps has one, and whoever asks a second time cuts them short.

A store that hangs, or a handler that does, must not hold up the end of a process for longer than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from bide.clock import Clock
from bide.engine.waiting import ends_within

HURRIED_S = 1.0
"""Seconds that a step may still take once the stop was hurried."""


class Haste:
    """Whether a stop is to be cut short, and waits that heed it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Cut short every wait here, those that go on and those that follow."""
        self._asked.set()

    def forget(self) -> None:
        """The stop is over; the next one has its full limits again."""
        self._asked.clear()

    async def ends_within(
        self, seconds: float, *futures: asyncio.Future[Any], hurried_s: float = HURRIED_S
    ) -> bool:
        """Wait until one of ``futures`` is done; whether one is. None of them is cancelled.

        For up to ``seconds``, and no longer than ``hurried_s`` after it was asked to hurry.
        """
        until = self._clock.monotonic() + seconds
        asking = asyncio.ensure_future(self._asked.wait())
        try:
            await ends_within(self._clock, seconds, *futures, asking)
        finally:
            asking.cancel()
        if self._asked.is_set():
            left = min(until - self._clock.monotonic(), hurried_s)
            return await ends_within(self._clock, max(left, 0.0), *futures)
        return any(future.done() for future in futures)

    async def end(self, task: asyncio.Future[Any], seconds: float, *, hurried_s: float = HURRIED_S) -> None:
        """Cancel ``task`` and wait for its end; one that swallows its cancellation is left behind after the limit."""
        task.cancel()
        await self.ends_within(seconds, task, hurried_s=hurried_s)

    async def run_within(self, seconds: float, work: Coroutine[Any, Any, Any]) -> None:
        """Await ``work`` up to the limit, then cancel it. What it raises is raised."""
        running = asyncio.ensure_future(work)
        try:
            if await self.ends_within(seconds, running):
                running.result()
        finally:
            running.cancel()


async def side_by_side(*steps: Coroutine[Any, Any, Any]) -> None:
    """Take ``steps`` at the same time, each to its end; then raise what the first that failed has raised."""
    for answer in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer
