"""Ending a probe at an instant, at the cost of one timer for all attempts of a wait."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from bide.clock import Clock, Timer


class RanOut(Exception):
    """The limit of an attempt was over before it had an answer."""


class Limit:
    """Cancels the present ``asyncio.Task`` at an instant, in the way of ``asyncio.timeout``.

    Between attempts the timer stays: it is armed anew only where it would come too late, and one that comes too
    early goes on. So the attempts of a wait cost a timer now and then rather than one each, of which most would
    be cancelled.
    """

    __slots__ = ("_armed_for", "_cancelling", "_clock", "_ends_at", "_fired", "_task", "_timer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer: Timer | None = None
        self._armed_for = math.inf
        self._ends_at = math.inf
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._fired = False

    def begin(self, ends_at: float) -> None:
        """What follows must have ended at ``ends_at``."""
        self._fired = False
        self._task = asyncio.current_task()
        self._cancelling = 0 if self._task is None else self._task.cancelling()
        self._ends_at = ends_at
        if self._armed_for > ends_at:
            self._arm()

    def is_what_cancelled(self) -> bool:
        """Whether a cancellation that came was asked for by this limit and by nobody else."""
        return self._fired and self._task is not None and self._task.cancelling() <= self._cancelling + 1

    def end(self) -> None:
        """It has ended, in whichever way."""
        if self._fired and self._task is not None:
            self._task.uncancel()
        self._task = None

    def close(self) -> None:
        """No timer is left; the next attempt, if there is one, arms another."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_for = math.inf

    def _arm(self) -> None:
        self.close()
        self._armed_for = self._ends_at
        self._timer = self._clock.call_later(self._ends_at - self._clock.monotonic(), self)

    def __call__(self) -> None:
        """The timer has run out. (The limit is its own callback: there may be very many.)"""
        self._timer = None
        self._armed_for = math.inf
        if self._task is None:  # between two attempts
            return
        if self._clock.monotonic() < self._ends_at:
            self._arm()
            return
        self._fired = True
        self._task.cancel()
