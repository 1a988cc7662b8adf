"""Seeing from another thread that an event loop does not turn, and who keeps it from turning.

A handler that blocks the loop holds up every other handler of the process, and fetches and settlements with them;
only locks are still renewed. Nobody sees that from outside, so it is told: once when the loop has not turned for too
long, with the handler and the line at which it is, and once when it turns again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from bide.clock import Clock

Shown = Callable[[asyncio.Task[Any] | None], str | None]
"""What a task of the loop handles just now, in words; None where it handles nothing."""

_LOG = logging.getLogger("bide")


class LoopWatch:
    """Watches the running loop: one that has not turned for ``limit_s`` is told of.

    Made on the loop's thread. :meth:`look` is called now and then by another, at least once in ``limit_s``; what
    blocks for twice as long is seen at one look or the other.
    """

    def __init__(self, limit_s: float, clock: Clock, shown: Shown) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._shown = shown
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._asked_at: float | None = None
        self._told = False

    def look(self) -> None:
        """Ask the loop for a sign of life, or see for how long it has owed one."""
        now = self._clock.monotonic()
        if self._asked_at is None:
            self._asked_at = now
            with contextlib.suppress(RuntimeError):  # it is closed: nothing can be held up any more
                self._loop.call_soon_threadsafe(self._turns)
        elif not self._told and now - self._asked_at >= self._limit_s:
            self._told = True
            _LOG.warning(
                "the event loop has not turned for %.1f s, so that nothing else goes on: %s%s; "
                "await what takes time, or make it a plain function, which runs on a thread",
                now - self._asked_at,
                self._shown(asyncio.current_task(self._loop)) or "something beside the handlers",
                _place_of(self._thread),
            )

    def _turns(self) -> None:
        if self._told and self._asked_at is not None:
            lasted_s = self._clock.monotonic() - self._asked_at
            _LOG.warning("the event loop turns again, after at least %.1f s", lasted_s)
        self._told = False
        self._asked_at = None


def _place_of(thread: int) -> str:
    """Where ``thread`` is in the code just now."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    at = traceback.extract_stack(frame, limit=1)[0]
    return f" is at {at.filename}:{at.lineno}, in {at.name}"
