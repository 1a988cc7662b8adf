"""The Redis provider keeps every promise, on Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bide.testing.benches.redis import RedisBench
from bide.testing.conformance import Bench, ProviderSuite
from tests.providers.redis_server import Server


class TestRedisProvider(ProviderSuite):
    @pytest.fixture
    async def bench(self, valkey: Server) -> AsyncIterator[Bench]:
        bench = RedisBench(valkey.address("?prefix=suite&name=suite"))
        await bench.open()
        yield bench
        await bench.provider.close()
