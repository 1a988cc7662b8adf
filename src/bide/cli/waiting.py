"""How a wait is watched: one line on a terminal that is written over, and lines elsewhere when something changes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

from bide.cli.answers import Teller
from bide.cli.instants import seconds_of
from bide.cli.output import write_err
from bide.cli.outside import safe_line
from bide.clock import Clock
from bide.core.waited import AttemptEnded

_CLEARED = "\r\x1b[2K"
_FRAME_S = 0.25
_NARROWEST = 20


class Watched:
    """What is known of a wait: its attempts so far, what came of the last one, and when the next begins.

    ``timeout``: how long it may take from when it is first shown, or None.
    """

    def __init__(self, clock: Clock, teller: Teller, timeout: timedelta | None, *, quiet: bool) -> None:
        self._clock = clock
        self._teller = teller
        self._timeout = timeout
        self._ends_at: float | None = None
        self._quiet = quiet
        self._drawn = sys.stderr.isatty() and not quiet
        self._next_at: float | None = None
        self._told = ""
        self.attempts = 0
        self.last = ""
        """What came of the last attempt, but for one that was cut short at the deadline; empty before its end."""
        self.answer = ""
        """The last answer that there was."""

    def heard(self, ended: AttemptEnded) -> None:
        """Hear that an attempt ended."""
        self.attempts = ended.number
        if ended.error is None:
            self.last = self.answer = self._teller.value(ended.value)
        elif not self.last or ended.outcome != "timed_out" or ended.next_in is not None:
            self.last = self._teller.error(ended.error)
        next_in = None if ended.next_in is None else ended.next_in.total_seconds()
        self._next_at = None if next_in is None else self._clock.monotonic() + next_in
        if self._drawn:
            self._draw()
        elif next_in is not None and self.last != self._told and not self._quiet:
            self._told = self.last
            write_err(f"attempt {ended.number}: {self.last}{self._left()}")

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Keep the line of a terminal up to date while the block runs, and take it away behind it."""
        if self._timeout is not None:
            self._ends_at = self._clock.monotonic() + self._timeout.total_seconds()
        if not self._drawn:
            yield
            return
        self._draw()
        drawing = asyncio.ensure_future(self._keep_drawing())
        try:
            yield
        finally:
            drawing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await drawing
            _write(_CLEARED)

    async def _keep_drawing(self) -> None:
        while True:
            await self._clock.sleep(_FRAME_S)
            self._draw()

    def _draw(self) -> None:
        width = shutil.get_terminal_size().columns - 1  # a full line would move the cursor to the next
        _write(f"{_CLEARED}{self.line(width)}")

    def line(self, width: int) -> str:
        """All of it in at most ``width`` columns: what came of the last attempt is what is cut."""
        head, then = f"attempt {self.attempts or 1}", ", asking"
        if self.last and self._next_at is None:
            then = ""
        elif self._next_at is not None:
            wait_s = self._next_at - self._clock.monotonic()
            if wait_s > 0:
                then = f", next in {_countdown(wait_s)}"
            else:
                head = f"attempt {self.attempts + 1}"
        from rich.cells import cell_len, set_cell_size  # characters may be two columns wide

        last = safe_line(self.last)
        left = self._left(_countdown)
        for tail in (f"{left}{then}", left, ""):  # where there is little room, what came of it is worth more
            room = width - len(head) - len(tail) - 2
            if room >= min(cell_len(last), _NARROWEST):
                break
        if cell_len(last) > room:
            last = set_cell_size(last, max(room - 1, 0)).rstrip() + "…"
        return f"{head}{': ' if last else ''}{last}{tail}"[:width]

    def _left(self, told: Callable[[float], str] = seconds_of) -> str:
        if self._ends_at is None:
            return ""
        return f" ({told(max(self._ends_at - self._clock.monotonic(), 0))} left)"


def _countdown(seconds: float) -> str:
    """As ``seconds_of``, with tenths of seconds to the end, so that the line does not flicker."""
    return f"{seconds:.1f}s" if seconds < 1 else seconds_of(seconds)


def _write(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
