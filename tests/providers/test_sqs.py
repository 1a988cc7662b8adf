"""The SQS provider keeps the promises that it makes, on an emulator."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from bide.testing.conformance import Bench, ProviderSuite
from tests.providers.sqs_bench import SqsBench
from tests.providers.sqs_server import CREDENTIALS, Emulator

_numbers = itertools.count(1)


class TestSqsProvider(ProviderSuite):
    @pytest.fixture
    async def bench(self, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        bench = SqsBench(emulator, f"bide{next(_numbers)}")
        await bench.open()
        yield bench
        await bench.close()
