"""The SQLite provider on its bench."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw

from bide.provider import Provider
from bide.providers.sqlite import SqliteProvider
from bide.testing.clock import VirtualClock
from bide.testing.conformance import Bench


class SqliteBench(Bench):
    """A file of its own, on a virtual clock. ``synchronous`` is as the provider has it."""

    def __init__(self, path: Path, *, synchronous: str = "NORMAL") -> None:
        self.path = path
        self.clock = VirtualClock()
        self.clock.busy_while(lambda: any(provider.pending for provider in self._open))
        self._synchronous = synchronous
        self._open: list[SqliteProvider] = []
        self.provider = self._made()

    async def open(self) -> None:
        await self.provider.open()

    async def close(self) -> None:
        await self.provider.close()

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        self.clock.step_wall(-seconds)

    async def corrupt(self, item_id: str) -> None:
        self._sql("UPDATE work_items SET payload = CAST(x'7bff7d' AS TEXT) WHERE id = ?", (item_id,))

    async def reopen(self) -> None:
        await self.provider.close()
        self._open.clear()
        self.provider = self._made()
        await self.provider.open()

    @asynccontextmanager
    async def another(self, *, ahead: float = 0) -> AsyncIterator[Provider]:
        provider = self._made()
        await provider.open()
        try:
            yield provider
        finally:
            await provider.close()
            self._open.remove(provider)

    async def open_as_older(self) -> None:
        self._sql("UPDATE meta SET schema_version = schema_version + 1")
        try:
            async with self.another():
                pass
        finally:
            self._sql("UPDATE meta SET schema_version = schema_version - 1")

    def now_ms(self) -> int:
        return self.clock.utc_ms()

    def _made(self) -> SqliteProvider:
        provider = SqliteProvider(self.path, clock=self.clock, synchronous=self._synchronous)
        self._open.append(provider)
        return provider

    def _sql(self, statement: str, bindings: tuple[object, ...] = ()) -> None:
        """Go round the provider."""
        connection = apsw.Connection(str(self.path))
        try:
            connection.execute(statement, bindings)
        finally:
            connection.close()
