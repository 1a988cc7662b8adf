"""The SQS provider keeps the promises that it makes, on an emulator."""

from __future__ import annotations

import pytest

from bide.testing.conformance import Bench, ProviderSuite
from tests.providers.sqs_bench import SqsBench


class TestSqsProvider(ProviderSuite):
    @pytest.fixture
    def bench(self, sqs_bench: SqsBench) -> Bench:
        return sqs_bench
