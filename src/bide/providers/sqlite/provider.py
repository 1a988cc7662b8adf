"""The default store: one file of SQLite."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bide.clock import Clock
from bide.errors import SettingError
from bide.providers.choosing import Turns
from bide.providers.sqlite.database import Database
from bide.providers.sqlite.events import SqliteEvents
from bide.providers.sqlite.inspection import SqliteInspection
from bide.providers.sqlite.joining import SqliteJoining
from bide.providers.sqlite.occurring import SqliteOccurrences
from bide.providers.sqlite.polls import SqlitePolls
from bide.providers.sqlite.work import SqliteWork

_SYNCHRONOUS = ("FULL", "NORMAL")


class SqliteProvider(
    SqliteWork, SqliteJoining, SqliteOccurrences, SqlitePolls, SqliteEvents, SqliteInspection
):
    """Keeps everything in the file ``path``, which ``open()`` makes where there is none.

    ``synchronous``: with ``"FULL"``, the default, whatever was answered is on disk and outlives a power cut; with
    ``"NORMAL"`` it outlives the process but perhaps not the power, and writes are several times as fast.

    Several processes of one machine may use one file. A provider serves any number of event loops.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock, synchronous: str = "FULL") -> None:
        if str(path) in {"", ":memory:"}:
            raise SettingError(
                "path", f"{str(path)!r} is not a file; for a store in memory use MemoryProvider"
            )
        if synchronous.upper() not in _SYNCHRONOUS:
            raise SettingError("synchronous", f"{synchronous!r} is neither 'FULL' nor 'NORMAL'")
        self.path = Path(path)
        self._database = Database(self.path, clock, synchronous.upper())
        self._fragments = {}
        self._turns = Turns()
        self._limited = set()

    async def open(self) -> None:
        """Open the file, or make it, and bring its tables up to this version.

        Raises :class:`~bide.errors.ProviderNewer`, :class:`~bide.errors.ProviderCorrupt` or another
        :class:`~bide.errors.ProviderError`, naming the file and what to do; then nothing was changed.
        """
        await self._database.open()

    async def close(self) -> None:
        """Finish what was begun, and close the file."""
        await self._database.close()

    def requests(self) -> Mapping[str, int]:
        """Transactions: each writing one serves all calls that waited for it."""
        return {"transaction": self._database.transactions}

    @property
    def pending(self) -> int:
        """How many calls are with the database's threads at this moment."""
        return self._database.pending
