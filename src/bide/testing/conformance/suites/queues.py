"""Promises 10 to 12, 14 and 16: identity, names, order, damage, and what outlives a restart."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from bide.errors import ProviderError
from bide.provider import Abandon, Ack, Alike, Bury, Empty, Enqueued
from bide.testing.conformance.bench import ITEM, KEPT, LOCK, Bench

_ORDERED = replace(ITEM, order_key="k")


class QueuesSuite:
    """Which item comes when."""

    async def test_10_enqueueing_a_known_id_changes_nothing(self, bench: Bench) -> None:
        await bench.put("a", template=KEPT)
        before = await bench.item("a")
        await bench.advance(5)
        await bench.put("a", template=replace(ITEM, payload="other", priority=5))
        assert await bench.item("a") == before
        (item,) = await bench.take()
        await bench.provider.settle([Ack(item.token)])
        await bench.put("a")
        assert await bench.take() == []

    async def test_10_one_of_many_enqueued_at_once_with_one_id_is_kept(self, bench: Bench) -> None:
        await bench.provider.enqueue([replace(ITEM, id="a", payload=str(number)) for number in range(3)])
        await asyncio.gather(*(bench.put("a", template=replace(ITEM, payload="late")) for _ in range(5)))
        assert [item.payload for item in await bench.take()] == ["0"]

    async def test_10_all_of_a_batch_or_none(self, bench: Bench) -> None:
        with pytest.raises(ProviderError, match="surrogate"):
            await bench.provider.enqueue([replace(ITEM, id="a"), replace(ITEM, id="b", payload="\ud800")])
        assert await bench.states() == {}

    async def test_10_payloads_come_back_as_they_were(self, bench: Bench) -> None:
        payloads = ["", "\x00nul\x00", "é🙂\u2028", "x" * 100_000, '{"a": "\\ud83d"}']
        await bench.provider.enqueue(
            [replace(ITEM, id=f"i{at}", payload=payload) for at, payload in enumerate(payloads)]
        )
        assert [item.payload for item in await bench.take()] == payloads

    async def test_10_items_that_are_alike_are_as_any_others(self, bench: Bench) -> None:
        payloads = {"a": "", "b": "\x00", "c": "\ufdd0,\ufdd0", "d": "a,b", "e": "é🙂"}
        alike = Alike(replace(ITEM, max_attempts=7), list(payloads), list(payloads.values()))
        assert await bench.provider.enqueue(alike[:1]) == [Enqueued("a", new=True)]
        assert await bench.provider.enqueue(alike[1:]) == [Enqueued(id, new=True) for id in "bcde"]
        taken = await bench.take()
        assert {item.id: item.payload for item in taken} == payloads
        assert {item.max_attempts for item in taken} == {7}

    async def test_11_only_items_of_the_names_given_are_fetched(self, bench: Bench) -> None:
        await bench.put(*(f"other{number}" for number in range(200)), name="other")
        await bench.put("mine")
        assert [item.id for item in await bench.take(3)] == ["mine"]
        assert (await bench.item("other0")).attempts == 0

    async def test_11_only_items_of_the_queues_given_are_fetched(self, bench: Bench) -> None:
        await bench.put("a", queue="other")
        assert await bench.take() == []
        assert [item.id for item in await bench.take(queues=["q", "other"])] == ["a"]

    async def test_11_no_names_and_no_queues_mean_none(self, bench: Bench) -> None:
        await bench.put("a")
        assert await bench.take(names=[]) == []
        assert await bench.take(queues=[]) == []
        assert await bench.fetch(names=[]) == Empty()

    async def test_11_limits_bound_each_name(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", name="slow")
        await bench.put("d", "e", name="fast")
        taken = await bench.take(names=["slow", "fast", "none"], most={"slow": 1, "none": 3})
        assert [item.id for item in taken] == ["a", "d", "e"]
        taken = await bench.take(names=["slow"], most={"slow": 0})
        assert taken == []
        assert await bench.fetch(names=["slow"], most={"slow": 0}) == Empty()

    async def test_11_a_name_at_its_limit_does_not_hide_the_others(self, bench: Bench) -> None:
        await bench.put(*(f"s{number}" for number in range(50)), name="slow")
        await bench.put("d", name="fast")
        taken = await bench.take(5, names=["slow", "fast"], most={"slow": 2})
        assert [item.id for item in taken] == ["s0", "s1", "d"]

    async def test_12_first_come_first_served(self, bench: Bench) -> None:
        await bench.put("c", "a", "b")
        assert [item.id for item in await bench.take(2)] == ["c", "a"]
        assert [item.id for item in await bench.take(2)] == ["b"]

    async def test_12_a_step_of_priority_is_worth_a_minute(self, bench: Bench) -> None:
        await bench.put("old")
        await bench.advance(30)
        await bench.put("urgent", template=replace(ITEM, priority=1))
        await bench.put("idle", template=replace(ITEM, priority=-1))
        await bench.put("new")
        taken = [(await bench.take(1))[0].id for _ in range(4)]
        assert taken == ["urgent", "old", "new", "idle"]

    async def test_12_nothing_starves(self, bench: Bench) -> None:
        await bench.put("patient")
        for number in range(3):
            await bench.advance(50)
            await bench.put(f"urgent{number}", template=replace(ITEM, priority=1))
        assert [(await bench.take(1))[0].id for _ in range(2)] == ["urgent0", "patient"]

    async def test_12_an_urgent_item_waits_for_its_instant(self, bench: Bench) -> None:
        await bench.put("later", template=replace(ITEM, priority=100, delay=timedelta(minutes=1)))
        await bench.put("now")
        (item,) = await bench.take()
        assert item.id == "now"
        await bench.provider.settle([Ack(item.token)])
        await bench.advance(60)
        assert [item.id for item in await bench.take()] == ["later"]

    async def test_12_queues_are_served_in_turn(self, bench: Bench) -> None:
        for queue in ("busy", "calm", "third"):
            count = 50 if queue == "busy" else 3
            await bench.put(*(f"{queue}{number}" for number in range(count)), queue=queue)
        queues = ["busy", "calm", "third"]
        taken = [(await bench.take(1, queues=queues))[0].queue for _ in range(9)]
        assert {queue: taken.count(queue) for queue in queues} == dict.fromkeys(queues, 3)

    async def test_12_one_fetch_takes_of_every_queue(self, bench: Bench) -> None:
        await bench.put(*(f"busy{number}" for number in range(50)), queue="busy")
        await bench.put("calm0", "calm1", queue="calm")
        taken = await bench.take(6, queues=["busy", "calm"])
        assert sorted(item.id for item in taken) == ["busy0", "busy1", "busy2", "busy3", "calm0", "calm1"]

    async def test_12_items_of_an_order_key_come_one_after_the_other(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", template=_ORDERED)
        await bench.put("free")
        first, free = await bench.take()
        assert (first.id, free.id) == ("a", "free")
        assert await bench.take() == []
        await bench.provider.settle([Ack(first.token)])
        (second,) = await bench.take()
        assert second.id == "b"
        await bench.provider.settle([Bury(second.token, "bad")])
        assert [item.id for item in await bench.take()] == ["c"]

    async def test_12_nothing_of_an_order_key_passes_one_that_waits(self, bench: Bench) -> None:
        await bench.put("a", "b", template=_ORDERED)
        (item,) = await bench.take()
        await bench.provider.settle([Abandon(item.token, timedelta(minutes=1), "later")])
        assert await bench.fetch() == Empty(next_eligible_in=timedelta(minutes=1))
        await bench.put("urgent", template=replace(_ORDERED, priority=100))
        await bench.advance(60)
        assert [item.id for item in await bench.take()] == ["a"]

    async def test_12_an_order_key_goes_on_after_a_death_and_an_expiry(self, bench: Bench) -> None:
        await bench.put("a", template=replace(_ORDERED, within=timedelta(minutes=1)))
        await bench.put("b", template=_ORDERED)
        await bench.take()
        await bench.advance(LOCK.total_seconds())
        assert [item.id for item in await bench.take()] == ["a"]
        await bench.advance(LOCK.total_seconds())
        assert [item.id for item in await bench.take()] == ["b"]
        assert (await bench.item("a")).state == "dead"

    async def test_12_order_keys_do_not_wait_for_each_other(self, bench: Bench) -> None:
        await bench.put("a", "b", template=_ORDERED)
        await bench.put("c", template=replace(_ORDERED, order_key="other"))
        await bench.put("d", template=replace(_ORDERED, queue="p"))
        assert sorted(item.id for item in await bench.take(queues=["p", "q"])) == ["a", "c", "d"]

    async def test_12_a_requeued_item_takes_its_place_again(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", template=replace(KEPT, order_key="k"))
        for _ in range(2):
            (item,) = await bench.take()
            await bench.provider.settle([Ack(item.token)])
        await bench.provider.requeue(["a", "b"])
        order = []
        while taken := await bench.take():
            assert len(taken) == 1
            order.append(taken[0].id)
            await bench.provider.settle([Ack(taken[0].token)])
        assert order == ["a", "b", "c"]

    async def test_12_a_requeued_item_waits_for_the_one_that_runs(self, bench: Bench) -> None:
        await bench.put("a", "b", template=replace(KEPT, order_key="k"))
        (item,) = await bench.take()
        await bench.provider.settle([Ack(item.token)])
        (running,) = await bench.take()
        await bench.provider.requeue(["a"])
        assert await bench.take() == []
        await bench.provider.settle([Abandon(running.token, timedelta())])
        assert [item.id for item in await bench.take()] == ["a"]

    async def test_14_a_damaged_item_is_reported_and_blocks_nobody(self, bench: Bench) -> None:
        await bench.put("a", "b")
        await bench.corrupt("a")
        damaged, good = await bench.take()
        assert (damaged.id, damaged.payload, damaged.attempt) == ("a", "", 1)
        assert damaged.unreadable
        assert (good.id, good.payload, good.unreadable) == ("b", "{}", None)
        assert [row.id for row in await bench.provider.items("q")] == ["b", "a"]

    async def test_14_a_damaged_item_counts_attempts_and_can_be_buried(self, bench: Bench) -> None:
        await bench.put("a", "b", template=replace(ITEM, max_attempts=2))
        await bench.corrupt("a")
        await bench.corrupt("b")
        first, second = await bench.take()
        await bench.provider.settle(
            [Bury(first.token, "unreadable"), Abandon(second.token, timedelta(), "x")]
        )
        (again,) = await bench.take()
        assert again.attempt == 2
        await bench.provider.settle([Abandon(again.token, timedelta(), "unreadable")])
        assert await bench.states() == {"a": "dead", "b": "dead"}

    async def test_16_everything_outlives_a_restart(self, bench: Bench) -> None:
        await bench.put("a", "b")
        await bench.subscribe("s")
        await bench.change("eu.price", 1)
        before = (
            await bench.provider.items("q"),
            await bench.provider.subscriptions(),
            await bench.provider.events(),
            await bench.provider.poll_rows(),
            await bench.provider.counts(),
        )
        await bench.reopen()
        after = (
            await bench.provider.items("q"),
            await bench.provider.subscriptions(),
            await bench.provider.events(),
            await bench.provider.poll_rows(),
            await bench.provider.counts(),
        )
        assert after == before
        assert [item.id for item in await bench.take()] == ["a", "b"]
