"""What a process asks of its store, kept for ``bide cost --observed``: a small file for each process.

It is written anew every minute, and at the end. Nobody's work depends on it: a folder that cannot be written is one
warning.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from bide.core.durations import to_ms
from bide.core.observed import Counted
from bide.metrics.readings import provider_of

if TYPE_CHECKING:
    from bide.app import App

EVERY_S = 60.0
"""Seconds between two writes."""

KEPT = timedelta(days=35)
"""For how long the counts of a process are kept after its end: a month, and a little to look back from."""

_NAME = re.compile(r"[0-9a-f]{32}\.(?:json|part)")


def folder_of(app: App) -> Path:
    """Where the processes of an app leave their counts."""
    return app.folder / ".bide" / "requests"


def kept_counts(folder: Path) -> Iterator[Path]:
    """The files of counts in a folder, oldest first. Raises ``OSError``."""
    yield from sorted(
        path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.suffix == ".json"
    )


@contextlib.asynccontextmanager
async def tallied(app: App) -> AsyncIterator[None]:
    """Keep what the open ``app`` asks of its store while the block runs."""
    tally = _Tally(app)
    await asyncio.to_thread(tally.begin)
    keeping = asyncio.ensure_future(_keep(app, tally))
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await asyncio.to_thread(tally.write)


async def _keep(app: App, tally: _Tally) -> None:
    while True:
        await app.clock.sleep(EVERY_S)
        await asyncio.to_thread(tally.write)


class _Tally:
    """The file of one process."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._folder = folder_of(app)
        self._file = self._folder / f"{app.clock.new_id()}.json"
        self._warned = False

    def begin(self) -> None:
        """Make the folder, and remove what is too old; nothing at all for a store that nothing is asked of."""
        if not self._app.requests():
            return
        with self._warning():
            self._folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError), (self._folder.parent / ".gitignore").open("x") as file:
                file.write("*\n")
            self._remove_old()
        self.write()

    def write(self) -> None:
        """Replace the file by what was counted until now."""
        app, requests = self._app, self._app.requests()
        if not requests or app.requested_since is None:
            return
        now = max(app.clock.utc_ms(), app.requested_since)
        counted = Counted(provider_of(app), app.location, app.requested_since, now, dict(requests))
        part = self._file.with_suffix(".part")
        with self._warning():
            part.write_text(counted.as_json(), encoding="utf-8")
            part.replace(self._file)

    def _remove_old(self) -> None:
        oldest_s = (self._app.clock.utc_ms() - to_ms(KEPT)) / 1000
        for entry in os.scandir(self._folder):
            if _NAME.fullmatch(entry.name) and entry.stat().st_mtime < oldest_s:
                with contextlib.suppress(FileNotFoundError):  # another process was first
                    os.unlink(entry.path)

    @contextlib.contextmanager
    def _warning(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._warned:
                self._warned = True
                logging.getLogger("bide").warning(
                    "requests are not kept for `bide cost --observed`: %s cannot be written (%s)",
                    self._folder,
                    error.strerror or error,
                )
