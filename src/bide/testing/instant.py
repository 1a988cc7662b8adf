"""Waits that take no time, for tests of programs that wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta

from bide.clock import SystemClock, Timer, stands_in
from bide.core.waited import AttemptEnded
from bide.engine.hooks import on_every_attempt

MOST_WAITS = 10_000
"""After so many pauses in one wait it is taken to be one that never ends."""


class InstantPolling:
    """What was seen while waits were instant. ``ended``: every attempt as hooks are told of it, in order."""

    def __init__(self) -> None:
        self.ended: list[AttemptEnded] = []

    @property
    def attempts(self) -> int:
        """How many attempts were made, over all waits."""
        return len(self.ended)

    @property
    def delays(self) -> list[timedelta]:
        """The pauses that would have been made between attempts, in order."""
        return [ended.next_in for ended in self.ended if ended.next_in is not None]

    def clear(self) -> None:
        """Count from zero again."""
        self.ended.clear()


@contextmanager
def instant() -> Iterator[InstantPolling]:
    """Until the end of the block, pauses of ``poll_until``, ``attempts`` and ``Poller`` take no time::

        with instant() as polling:
            await wait_for_job(7)
        assert polling.attempts == 3

    Each wait has a clock of its own, which its pauses move on, so that limits come when they should by the pauses
    alone; the time that probes really take does not count, but one that hangs is still ended at its limit. Waits
    that were given a clock are left alone. Raises ``RuntimeError`` in a wait that pauses 10 000 times.
    """
    seen = InstantPolling()
    forget = on_every_attempt(seen.ended.append)
    try:
        with stands_in(InstantClock):
            yield seen
    finally:
        forget()


class InstantClock(SystemClock):
    """A clock on which only pauses take time, and those none of the real one."""

    def __init__(self) -> None:
        self._now = 0.0
        self._pauses = 0

    def monotonic(self) -> float:
        """Seconds that were skipped so far."""
        return self._now

    def sleep(self, seconds: float) -> Coroutine[None, None, None]:
        """Skip ``seconds``, and let others run."""
        self._skip(seconds)
        return asyncio.sleep(0)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call after ``seconds`` of real time, which then were."""

        def come() -> None:
            self._now = max(self._now, due_at)
            callback()

        due_at = self._now + seconds
        return super().call_later(seconds, come)

    def draw(self) -> float:
        """Always the middle: no jitter."""
        return 0.5

    def pause(self, seconds: float, until: threading.Event) -> bool:
        """Skip ``seconds``."""
        self._skip(seconds)
        return until.is_set()

    def expect(self, done: threading.Event, seconds: float) -> bool:
        """Wait for another thread, really; where it is not ``done`` in time, that time was."""
        if not super().expect(done, seconds):
            self._now += seconds
        return done.is_set()

    def _skip(self, seconds: float) -> None:
        self._now += seconds
        self._pauses += 1
        if self._pauses > MOST_WAITS:
            raise RuntimeError(
                f"{MOST_WAITS} pauses in one wait: what it waits for never comes, and it has no timeout that does"
            )
