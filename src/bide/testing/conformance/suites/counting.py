"""Requests to the store, by the class that it bills them by."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from bide.provider import ZERO, Ack, Items
from bide.testing.conformance.bench import ITEM, LOCK, Bench


class CountingSuite:
    """``requests``. A store that nothing is asked of may count none."""

    async def test_requests_are_counted_and_only_grow(self, bench: Bench) -> None:
        counts = [Counter(bench.provider.requests())]
        for at in range(3):
            await self._pass_one(bench, str(at))
            counts.append(Counter(bench.provider.requests()))
        for before, after in pairwise(counts):
            assert not before - after
            assert not before or after.total() > before.total()
        assert all(counts[-1])  # each class has a name

    async def test_requests_are_told_on_any_thread(self, bench: Bench) -> None:
        await self._pass_one(bench, "a")
        before = Counter(bench.provider.requests())
        told = await asyncio.to_thread(bench.provider.requests)
        assert not before - Counter(told)

    async def _pass_one(self, bench: Bench, id: str) -> None:
        await bench.provider.enqueue([replace(ITEM, id=id)])
        fetched = await bench.provider.fetch_work_items(
            [ITEM.queue], [ITEM.name], limit=1, lock_timeout=LOCK, poll_timeout=ZERO, fetch_token=id
        )
        assert isinstance(fetched, Items)
        await bench.provider.settle([Ack(item.token) for item in fetched.items])
