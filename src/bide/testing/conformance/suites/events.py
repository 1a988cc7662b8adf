"""Subscriptions as rows, the list of events, and sending again."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from bide.provider import DELIVERIES, Abandon, Ack, Bury, SubscriptionRow
from bide.testing.conformance.bench import Bench, subscription


class EventsSuite:
    """Who hears what."""

    async def test_subscriptions_are_kept_by_name(self, bench: Bench) -> None:
        assert await bench.provider.register_subscriptions([subscription("b"), subscription("a")]) == [
            "a",
            "b",
        ]
        first = bench.now_ms()
        await bench.advance(5)
        assert await bench.provider.register_subscriptions([subscription("a")]) == ["a"]
        assert await bench.provider.subscriptions() == [
            SubscriptionRow(subscription("a"), first, first + 5000, None, None),
            SubscriptionRow(subscription("b"), first, first, None, None),
        ]
        assert await bench.provider.register_subscriptions([]) == []

    async def test_what_is_declared_now_counts(self, bench: Bench) -> None:
        await bench.subscribe("a")
        changed = replace(
            subscription("a"), within=timedelta(hours=1), ordered=True, max_attempts=3, event="shop.Other"
        )
        await bench.provider.register_subscriptions([changed])
        (row,) = await bench.provider.subscriptions()
        assert row.subscription == changed

    async def test_an_ended_subscription_stays_ended(self, bench: Bench) -> None:
        await bench.subscribe("a", "b")
        ended_at = bench.now_ms()
        assert await bench.provider.end_subscriptions(["a", "none"], "410 Gone") == ["a"]
        assert await bench.provider.end_subscriptions(["a"], "again") == []
        await bench.advance(5)
        assert await bench.provider.register_subscriptions([subscription("a"), subscription("b")]) == ["b"]
        ended = (await bench.provider.subscriptions())[0]
        assert (ended.ended_at, ended.ended_reason) == (ended_at, "410 Gone")

    async def test_another_target_or_event_lets_it_live_again(self, bench: Bench) -> None:
        others = [
            replace(subscription("a"), target="http://localhost/other"),
            replace(subscription("a"), event="shop.Other"),
            replace(subscription("a"), kind="command"),
        ]
        for other in others:
            await bench.subscribe("a")
            await bench.provider.end_subscriptions(["a"], "410")
            assert await bench.provider.register_subscriptions([other]) == ["a"]
            (row,) = await bench.provider.subscriptions()
            assert (row.ended_at, row.ended_reason) == (None, None)

    async def test_resuming_lets_it_hear_what_is_to_come(self, bench: Bench) -> None:
        await bench.subscribe("a")
        await bench.provider.end_subscriptions(["a"], "by hand")
        await bench.change("eu.price", 1)
        assert await bench.provider.resume_subscriptions(["a", "none"]) == ["a"]
        assert await bench.provider.resume_subscriptions(["a"]) == []
        changed = await bench.change("eu.price", 2)
        assert [item.id for item in await bench.deliveries("a")] == [f"{changed.event_id}.a"]

    async def test_ending_takes_its_waiting_deliveries_along(self, bench: Bench) -> None:
        await bench.subscribe("a", "b")
        await bench.subscribe("o", template=replace(subscription(), ordered=True))
        for price in (1, 2, 3):
            await bench.change("eu.price", price)
        (running,) = await bench.take(1, queues=[DELIVERIES], names=["a"])
        await bench.provider.end_subscriptions(["a", "o"], "410 Gone")
        rows = await bench.provider.items(DELIVERIES, states=["dead"])
        assert sorted(row.name for row in rows) == ["a", "a", "o", "o", "o"]
        assert {row.error for row in rows} == {"the subscription ended: 410 Gone"}
        assert len(await bench.deliveries("a", "b", "o")) == 3
        assert await bench.provider.settle([Ack(running.token)]) == ["settled"]

    async def test_a_delivery_given_back_after_its_subscription_ended_is_dead(self, bench: Bench) -> None:
        await bench.subscribe("a")
        await bench.change("eu.price", 1)
        (item,) = await bench.deliveries("a")
        await bench.provider.end_subscriptions(["a"], "410 Gone")
        assert await bench.provider.settle([Abandon(item.token, timedelta(), "late")]) == ["settled"]
        row = await bench.item(item.id, DELIVERIES)
        assert (row.state, row.error) == ("dead", "the subscription ended: 410 Gone")

    async def test_events_are_listed_in_order(self, bench: Bench) -> None:
        for price in range(5):
            await bench.change("eu.price", price)
        seqs = [event.seq for event in await bench.provider.events()]
        assert seqs == sorted(seqs)
        assert [event.seq for event in await bench.provider.events(limit=2)] == seqs[:2]
        assert [event.seq for event in await bench.provider.events(after=seqs[1], limit=2)] == seqs[2:4]
        assert [event.seq for event in await bench.provider.events(newest=True, limit=2)] == seqs[3:]
        newest = await bench.provider.events(newest=True, limit=9, after=seqs[2])
        assert [event.seq for event in newest] == seqs[3:]
        assert await bench.provider.events(names=["shop.Other"]) == []
        assert len(await bench.provider.events(names=["shop.PriceChanged", "shop.Other"])) == 5
        assert await bench.provider.events(names=[]) == []

    async def test_replay_sends_again_to_one_subscriber_only(self, bench: Bench) -> None:
        await bench.subscribe("a", "b")
        for price in (1, 2, 3):
            await bench.change("eu.price", price)
            await bench.advance(10)
        items = await bench.deliveries("a", "b")
        await bench.provider.settle([Ack(item.token) for item in items])
        since = bench.now_ms() - 20_000
        assert await bench.provider.replay("a", since) == 2
        again = await bench.deliveries("a", "b")
        assert [item.id for item in again] == [item.id for item in items if item.name == "a"][1:]
        assert [item.attempt for item in again] == [1, 1]
        assert [item.payload for item in again] == [item.payload for item in items if item.name == "a"][1:]

    async def test_replay_leaves_what_is_under_way(self, bench: Bench) -> None:
        await bench.subscribe("a")
        for price in (1, 2, 3):
            await bench.change("eu.price", price)
        first, second = await bench.take(2, queues=[DELIVERIES], names=["a"])
        await bench.provider.settle([Bury(first.token, "bad")])
        assert await bench.provider.replay("a", 0) == 1
        assert await bench.provider.settle([Ack(second.token)]) == ["settled"]
        assert len(await bench.deliveries("a")) == 2

    async def test_replay_makes_deliveries_that_never_were(self, bench: Bench) -> None:
        for price in (1, 2):
            await bench.change("eu.price", price)
        await bench.subscribe("late", template=replace(subscription(), within=timedelta(hours=1)))
        assert await bench.provider.replay("late", 0) == 2
        items = await bench.deliveries("late")
        assert [json.loads(item.payload)["data"] for item in items] == [{"price": 1}, {"price": 2}]
        assert [json.loads(item.payload)["previous"] for item in items] == [None, {"price": 1}]
        assert {item.expires_at for item in items} == {bench.now_ms() + 3_600_000}

    async def test_replay_to_an_ordered_subscriber_is_in_order(self, bench: Bench) -> None:
        await bench.subscribe("o", template=replace(subscription(), ordered=True))
        for price in (1, 2, 3):
            await bench.change("eu.price", price)
        (first,) = await bench.deliveries("o")
        await bench.provider.settle([Ack(first.token)])
        assert await bench.provider.replay("o", 0) == 1
        prices = []
        while items := await bench.deliveries("o"):
            prices += [json.loads(item.payload)["data"]["price"] for item in items]
            await bench.provider.settle([Ack(item.token) for item in items])
        assert prices == [1, 2, 3]

    async def test_replay_to_nobody_is_nothing(self, bench: Bench) -> None:
        await bench.change("eu.price", 1)
        assert await bench.provider.replay("none", 0) == 0
        await bench.subscribe("a", "deaf", template=replace(subscription(), event="shop.Other"))
        assert await bench.provider.replay("deaf", 0) == 0
        await bench.subscribe("b")
        await bench.provider.end_subscriptions(["b"], "410")
        assert await bench.provider.replay("b", 0) == 0
