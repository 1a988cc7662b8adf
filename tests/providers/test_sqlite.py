"""The SQLite provider keeps every promise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bide.testing.benches.sqlite import SqliteBench
from bide.testing.conformance import Bench, ProviderSuite


class TestSqliteProvider(ProviderSuite):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[Bench]:
        bench = SqliteBench(tmp_path / "bide.db")
        await bench.open()
        yield bench
        await bench.close()
