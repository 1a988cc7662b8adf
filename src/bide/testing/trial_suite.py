"""The suite on a scratch place, as ``bide provider test`` has pytest run it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bide.testing.conformance import Bench, ProviderSuite
from bide.testing.scratch import Scratch


class TestProvider(ProviderSuite):
    """Every test; the fixture ``scratch`` comes from who runs them."""

    @pytest.fixture
    async def bench(self, scratch: Scratch) -> AsyncIterator[Bench]:
        async with scratch.bench() as bench:
            yield bench
