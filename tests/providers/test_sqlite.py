"""The SQLite provider keeps every promise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bide.provider import Provider
from bide.providers.sqlite import SqliteProvider
from bide.testing import VirtualClock
from bide.testing.conformance import Bench, ProviderSuite
from tests.providers.files import sql


class SqliteBench(Bench):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = VirtualClock()
        self.opened: list[SqliteProvider] = []
        self.clock.busy_while(lambda: any(provider.pending for provider in self.opened))
        self.provider = self._made()

    def _made(self) -> SqliteProvider:
        provider = SqliteProvider(self.path, clock=self.clock, synchronous="NORMAL")
        self.opened.append(provider)
        return provider

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        self.clock.step_wall(-seconds)

    async def corrupt(self, item_id: str) -> None:
        sql(self.path, "UPDATE work_items SET payload = CAST(x'7bff7d' AS TEXT) WHERE id = ?", (item_id,))

    async def reopen(self) -> None:
        await self.provider.close()
        self.provider = self._made()
        await self.provider.open()

    @asynccontextmanager
    async def another(self, *, ahead: float = 0) -> AsyncIterator[Provider]:
        other = self._made()  # on the same machine, so by the same clock
        await other.open()
        try:
            yield other
        finally:
            await other.close()

    async def open_as_older(self) -> None:
        sql(self.path, "UPDATE meta SET schema_version = schema_version + 1")
        try:
            await self._made().open()
        finally:
            sql(self.path, "UPDATE meta SET schema_version = schema_version - 1")

    def now_ms(self) -> int:
        return self.clock.utc_ms()


class TestSqliteProvider(ProviderSuite):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[Bench]:
        bench = SqliteBench(tmp_path / "bide.db")
        await bench.provider.open()
        yield bench
        await bench.provider.close()
