"""The S3 provider keeps its promises, on a durable server and on the emulator."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bide.testing.conformance import Bench, ProviderSuite
from tests.providers.s3_bench import S3Bench
from tests.providers.s3_server import S3Server


class TestS3Provider(ProviderSuite):
    @pytest.fixture
    async def bench(self, s3_server: S3Server) -> AsyncIterator[Bench]:
        bench = S3Bench(s3_server)
        await bench.open()
        yield bench
        await bench.close()
