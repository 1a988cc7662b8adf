"""The SQLite provider keeps every promise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from bide.providers.sqlite import SqliteProvider
from bide.testing import VirtualClock
from bide.testing.conformance import Bench, ProviderSuite


class SqliteBench(Bench):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = VirtualClock()
        self.clock.busy_while(lambda: self.sqlite.pending)
        self.provider = self.sqlite = self._made()

    def _made(self) -> SqliteProvider:
        return SqliteProvider(self.path, clock=self.clock, synchronous="NORMAL")

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        self.clock.step_wall(-seconds)

    async def corrupt(self, item_id: str) -> None:
        connection = apsw.Connection(str(self.path))
        connection.execute("UPDATE work_items SET payload = CAST(x'7bff7d' AS TEXT) WHERE id = ?", (item_id,))
        connection.close()

    async def reopen(self) -> None:
        await self.provider.close()
        self.provider = self.sqlite = self._made()
        await self.provider.open()

    def now_ms(self) -> int:
        return self.clock.utc_ms()


class TestSqliteProvider(ProviderSuite):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[Bench]:
        bench = SqliteBench(tmp_path / "bide.db")
        await bench.provider.open()
        yield bench
        await bench.provider.close()
