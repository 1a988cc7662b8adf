"""The PostgreSQL provider keeps every promise, on every version that is supported."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bide.testing.conformance import Bench, ProviderSuite
from tests.providers.postgres_bench import PostgresBench
from tests.providers.postgres_server import Server


class TestPostgresProvider(ProviderSuite):
    @pytest.fixture
    async def bench(self, server: Server) -> AsyncIterator[Bench]:
        bench = PostgresBench(server)
        await bench.open()
        yield bench
        await bench.provider.close()
