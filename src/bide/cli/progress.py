"""What long work says meanwhile: a line on a terminal that is written over, and nothing anywhere else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from bide.cli.output import write_err

_CLEARED = "\r\x1b[2K"


class Progress:
    """Counts, and shows the count."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._shown = False
        self.done = 0

    def add(self, number: int) -> None:
        """``number`` more are done."""
        self.done += number
        if self.done and sys.stderr.isatty():
            self._write(f"{_CLEARED}{self._doing}: {self.done:,} so far")
            self._shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._write(_CLEARED)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


@contextlib.contextmanager
def progress(doing: str) -> Iterator[Progress]:
    """Count in the block; where it is interrupted, say how far it came."""
    shown = Progress(doing)
    try:
        yield shown
    except BaseException:
        shown.clear()
        if shown.done:
            write_err(f"{doing}: {shown.done:,} done before this")
        raise
    shown.clear()
