"""What is left of an item once it is done: its result on request, and otherwise nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bide.errors import ProviderError
from bide.provider import DELIVERIES, Ack, Bury, Pruned
from bide.testing.conformance.bench import ITEM, KEPT, Bench

_MONTH = timedelta(days=30)
_HOUR = timedelta(hours=1)


class KeepingSuite:
    """Results, and how long ended items stay."""

    async def test_a_done_item_leaves_nothing_behind(self, bench: Bench) -> None:
        await bench.put("a", "b")
        first, _ = await bench.take()
        assert not first.keeps_result
        assert await bench.provider.settle([Ack(first.token, "dropped")]) == ["settled"]
        assert await bench.provider.item("a") is None
        assert await bench.states() == {"b": "running"}
        assert await bench.provider.requeue(["a"]) == []
        (counts,) = await bench.provider.counts()
        assert (counts.running, counts.done) == (1, 0)

    async def test_a_result_is_kept_on_request(self, bench: Bench) -> None:
        results = ["42", "", None, "\x00é🙂\u2028", "x" * 100_000]
        await bench.put(*(f"i{at}" for at in range(len(results))), template=KEPT)
        items = await bench.take()
        assert all(item.keeps_result for item in items)
        await bench.provider.settle(
            [Ack(item.token, result) for item, result in zip(items, results, strict=True)]
        )
        rows = [await bench.item(item.id) for item in items]
        assert [row.result for row in rows] == results
        assert {row.state for row in rows} == {"done"}
        assert {row.ended_at for row in rows} == {bench.now_ms()}

    async def test_a_result_is_kept_for_as_long_as_was_asked(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, keep_result=_HOUR))
        await bench.put("b", template=replace(ITEM, keep_result=60 * timedelta(days=1)))
        items = await bench.take()
        await bench.provider.settle([Ack(item.token, "r") for item in items])
        await bench.advance(_HOUR.total_seconds())
        assert await bench.provider.prune(_MONTH) == Pruned()
        await bench.advance(1)
        assert await bench.provider.prune(_MONTH) == Pruned(items=1)
        assert await bench.states() == {"b": "done"}
        await bench.advance(_MONTH.total_seconds() + 1)
        assert await bench.provider.prune(_MONTH) == Pruned()

    async def test_a_dead_item_stays_for_the_retention(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, keep_result=_HOUR))
        (item,) = await bench.take()
        await bench.provider.settle([Bury(item.token, "bad")])
        await bench.advance(_MONTH.total_seconds())
        assert await bench.provider.prune(_MONTH) == Pruned()
        await bench.advance(1)
        assert await bench.provider.prune(_MONTH) == Pruned(items=1)

    async def test_a_delivery_stays_for_the_retention(self, bench: Bench) -> None:
        await bench.subscribe("a")
        await bench.change("eu.price", 1)
        (item,) = await bench.deliveries("a")
        await bench.provider.settle([Ack(item.token, "dropped")])
        row = await bench.item(item.id, DELIVERIES)
        assert (row.state, row.result) == ("done", None)
        await bench.advance(_MONTH.total_seconds())
        assert await bench.provider.prune(_MONTH) == Pruned()
        await bench.advance(1)
        assert await bench.provider.prune(_MONTH) == Pruned(items=1)

    async def test_a_result_that_cannot_be_kept_leaves_the_item_running(self, bench: Bench) -> None:
        await bench.put("a", template=KEPT)
        (item,) = await bench.take()
        with pytest.raises(ProviderError, match="surrogate"):
            await bench.provider.settle([Ack(item.token, "\ud800")])
        assert await bench.states() == {"a": "running"}
        assert await bench.provider.settle([Ack(item.token, "fine")]) == ["settled"]

    async def test_a_requeued_item_has_no_result_until_it_is_done_again(self, bench: Bench) -> None:
        await bench.put("a", template=KEPT)
        (item,) = await bench.take()
        await bench.provider.settle([Ack(item.token, "first")])
        await bench.provider.requeue(["a"])
        assert (await bench.item("a")).result is None
        (item,) = await bench.take()
        await bench.provider.settle([Ack(item.token, "second")])
        assert (await bench.item("a")).result == "second"
