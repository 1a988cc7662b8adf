"""Looking, mending by hand, retention; and promise 15: errors that say whether asking again may help."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bide.errors import ProviderError
from bide.provider import DELIVERIES, Abandon, Ack, Bury, Enqueued, ItemRow, Pruned, QueueCounts
from bide.testing.conformance.bench import ITEM, KEPT, Bench

_MONTH = timedelta(days=30)


class InspectingSuite:
    """Counts, listings, and what a person can do."""

    async def test_counts_are_by_queue_and_state(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", "d", template=KEPT)
        await bench.put("x", queue="p", template=replace(ITEM, queue="p", delay=timedelta(minutes=1)))
        done, dead, _ = await bench.take(3)
        await bench.provider.settle([Ack(done.token), Bury(dead.token, "bad")])
        await bench.advance(7)
        assert await bench.provider.counts() == [
            QueueCounts("p", ready=1),
            QueueCounts("q", ready=1, running=1, done=1, dead=1, oldest_ms=7000),
        ]
        await bench.advance(58)
        assert (await bench.provider.counts())[0] == QueueCounts("p", ready=1, oldest_ms=5000)

    async def test_an_expired_lock_holds_nothing_for_those_who_look(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", template=KEPT)
        await bench.take(1)
        await bench.advance(20)
        await bench.take(1)
        await bench.advance(10)
        assert await bench.provider.counts() == [QueueCounts("q", ready=2, running=1, oldest_ms=30_000)]
        listed = {
            state: [row.id for row in await bench.provider.items("q", states=[state])]
            for state in ("ready", "running", "done", "dead")
        }
        assert listed == {"ready": ["c", "a"], "running": ["b"], "done": [], "dead": []}
        assert await bench.states() == {"a": "ready", "b": "running", "c": "ready"}
        row = await bench.provider.item("a")
        assert row is not None
        assert (row, row.state, row.attempts, row.deaths) == (await bench.item("a"), "ready", 1, 0)
        await bench.advance(20)
        assert await bench.provider.counts() == [QueueCounts("q", ready=3, oldest_ms=50_000)]
        assert [(item.id, item.deaths) for item in await bench.take()] == [("a", 1), ("b", 1), ("c", 0)]

    async def test_a_fleet_that_died_shows_by_age_though_nothing_else_waits(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, order_key="k"))
        await bench.put("b", template=replace(ITEM, order_key="k"))
        await bench.take()
        assert await bench.provider.counts() == [QueueCounts("q", ready=1, running=1)]
        await bench.advance(30)
        assert await bench.provider.counts() == [QueueCounts("q", ready=2, oldest_ms=30_000)]

    async def test_a_lock_that_was_renewed_still_holds(self, bench: Bench) -> None:
        await bench.put("a")
        (item,) = await bench.take()
        await bench.advance(29)
        await bench.provider.renew([item.token], timedelta(seconds=30))
        await bench.advance(29)
        assert await bench.provider.counts() == [QueueCounts("q", running=1)]
        assert await bench.provider.discard(["a"], "not wanted") == []
        assert await bench.provider.purge("q", states=["ready", "running"]) == 0
        assert await bench.provider.settle([Ack(item.token)]) == ["settled"]

    async def test_discard_buries_what_a_dead_worker_holds(self, bench: Bench) -> None:
        await bench.put("a", "b", template=replace(ITEM, order_key="k"))
        (item,) = await bench.take()
        assert await bench.provider.discard(["a"], "not wanted") == []
        await bench.advance(30)
        assert await bench.provider.discard(["a"], "not wanted") == ["a"]
        row = await bench.item("a")
        assert (row.state, row.error, row.ended_at) == ("dead", "not wanted", bench.now_ms())
        assert await bench.provider.settle([Ack(item.token)]) == ["stale"]
        assert [next_one.id for next_one in await bench.take()] == ["b"]

    async def test_purge_takes_what_a_dead_worker_holds(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", template=replace(ITEM, order_key="k"))
        (item,) = await bench.take()
        assert await bench.provider.purge("q", states=["ready"], limit=1) == 1
        assert await bench.states() == {"a": "running", "c": "ready"}
        await bench.advance(30)
        assert await bench.provider.purge("q", states=["done", "dead", "running"]) == 0
        assert await bench.provider.purge("q", states=["ready"], limit=1) == 1
        assert await bench.states() == {"c": "ready"}
        assert await bench.provider.settle([Ack(item.token)]) == ["stale"]
        assert [next_one.id for next_one in await bench.take()] == ["c"]

    async def test_items_are_listed_newest_first_in_pages(self, bench: Bench) -> None:
        await bench.put(*(f"i{number}" for number in range(5)))
        await bench.put("other", queue="p", template=replace(ITEM, queue="p"))
        pages = []
        after = None
        while page := await bench.provider.items("q", after=after, limit=2):
            pages.append([row.id for row in page])
            after = page[-1].id
        assert pages == [["i4", "i3"], ["i2", "i1"], ["i0"]]
        assert await bench.provider.items("q", after="none") == []

    async def test_items_are_listed_by_state_and_name(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", "d", "e", template=KEPT)
        await bench.put("m", name="other", template=replace(ITEM, name="other"))
        one, two, three, _ = await bench.take(4)
        await bench.provider.settle(
            [Ack(one.token), Bury(two.token, "bad"), Abandon(three.token, timedelta(minutes=1))]
        )
        listed = {
            state: [row.id for row in await bench.provider.items("q", states=[state])]
            for state in ("ready", "running", "done", "dead")
        }
        assert listed == {"ready": ["m", "e", "c"], "running": ["d"], "done": ["a"], "dead": ["b"]}
        both = await bench.provider.items("q", states=["done", "dead"])
        assert [row.id for row in both] == ["b", "a"]
        assert [row.id for row in await bench.provider.items("q", name="other")] == ["m"]

    async def test_requeue_begins_the_life_of_ended_items_anew(self, bench: Bench) -> None:
        template = replace(KEPT, max_attempts=1, within=timedelta(hours=1), priority=2)
        await bench.put("a", "b", "c", template=template)
        first, second = await bench.take(2)
        await bench.provider.settle([Abandon(first.token, timedelta(), "bad"), Ack(second.token)])
        await bench.advance(7200)
        assert await bench.provider.requeue(["a", "b", "c", "none"]) == ["a", "b"]
        row = await bench.item("a")
        assert (row.state, row.attempts, row.deaths, row.error, row.ended_at) == ("ready", 0, 0, None, None)
        now = bench.now_ms()
        assert (row.enqueued_at, row.visible_at, row.expires_at) == (now, now, now + 3_600_000)
        assert [(item.id, item.attempt) for item in await bench.take()] == [("a", 1), ("b", 1)]

    async def test_discard_buries_what_waits(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", template=replace(ITEM, order_key="k"))
        await bench.take()
        assert await bench.provider.discard(["a", "b", "none"], "not wanted") == ["b"]
        row = await bench.item("b")
        assert (row.state, row.error, row.ended_at) == ("dead", "not wanted", bench.now_ms())
        (holder,) = await bench.provider.items("q", states=["running"])
        assert holder.id == "a"
        assert await bench.provider.discard(["b"], "again") == []

    async def test_one_item_is_shown_with_all_that_belongs_to_it(self, bench: Bench) -> None:
        now = bench.now_ms()
        template = replace(
            KEPT,
            payload='{"n":1}',
            priority=2,
            max_attempts=3,
            within=timedelta(hours=1),
            key="k",
            limit_key="l",
        )
        await bench.put("a", template=template)
        assert await bench.provider.item("a") == ItemRow(
            id="a",
            queue="q",
            name="n",
            state="ready",
            payload='{"n":1}',
            attempts=0,
            deaths=0,
            enqueued_at=now,
            visible_at=now,
            expires_at=now + 3_600_000,
            ended_at=None,
            error=None,
            max_attempts=3,
            priority=2,
            key="k",
            limit_key="l",
            given_back=0,
            result=None,
        )
        assert await bench.provider.item("a") == await bench.item("a")
        assert await bench.provider.item("none") is None

    async def test_purge_removes_for_good_and_never_what_runs(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", "d", "e", template=KEPT)
        await bench.put("other", queue="p")
        done, dead, running = await bench.take(3)
        await bench.provider.settle([Ack(done.token), Bury(dead.token, "bad")])
        assert await bench.provider.purge("q", states=["running"]) == 0
        assert await bench.provider.purge("q", states=[]) == 0
        assert await bench.provider.purge("none", states=["ready"]) == 0
        assert await bench.provider.purge("q", states=["done", "dead"]) == 2
        assert await bench.provider.purge("q", states=["ready", "running"], limit=1) == 1
        assert await bench.states() == {"e": "ready", running.id: "running"}
        assert await bench.provider.purge("q", states=["ready"]) == 1
        assert await bench.provider.settle([Ack(running.token)]) == ["settled"]
        assert await bench.states("p") == {"other": "ready"}

    async def test_purge_frees_ids_and_keys(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, key="k"))
        await bench.provider.purge("q", states=["ready"])
        again = replace(ITEM, id="a", key="k", payload="[]")
        assert await bench.provider.enqueue([again]) == [Enqueued("a", new=True)]

    async def test_prune_removes_what_ended_long_ago(self, bench: Bench) -> None:
        await bench.subscribe("s")
        await bench.change("eu.price", 1)
        (delivery,) = await bench.deliveries("s")
        await bench.put("dead", "ready")
        (dead,) = await bench.take(1)
        await bench.provider.settle([Ack(delivery.token), Bury(dead.token, "bad")])
        await bench.advance(_MONTH.total_seconds())
        assert await bench.provider.prune(_MONTH) == Pruned()
        await bench.advance(1)
        assert await bench.provider.prune(_MONTH) == Pruned(items=2)
        assert await bench.states() == {"ready": "ready"}
        assert await bench.states(DELIVERIES) == {}

    async def test_prune_keeps_the_last_event_of_each_poll(self, bench: Bench) -> None:
        for name, prices in (("eu.price", (1, 2, 3)), ("us.price", (1,))):
            for price in prices:
                await bench.change(name, price)
        await bench.advance(_MONTH.total_seconds() + 1)
        assert await bench.provider.prune(_MONTH) == Pruned(events=2)
        kept = await bench.provider.events()
        assert [(event.poll, event.payload) for event in kept] == [
            ("eu.price", '{"price":3}'),
            ("us.price", '{"price":1}'),
        ]
        await bench.subscribe("a")
        await bench.change("eu.price", 4)
        (item,) = await bench.deliveries("a")
        assert '"previous":{"price":3}' in item.payload

    async def test_prune_goes_in_small_steps(self, bench: Bench) -> None:
        for price in range(5):
            await bench.change("eu.price", price)
        await bench.put(*(f"i{number}" for number in range(5)))
        await bench.provider.settle([Bury(item.token, "bad") for item in await bench.take()])
        await bench.advance(_MONTH.total_seconds() + 1)
        steps = []
        while (step := await bench.provider.prune(_MONTH, limit=2)).any:
            steps.append((step.events, step.items))
        assert steps == [(2, 2), (2, 2), (0, 1)]

    async def test_prune_buries_what_nobody_fetches(self, bench: Bench) -> None:
        await bench.put("a", "b", template=replace(ITEM, name="nobody", within=timedelta(hours=1)))
        await bench.advance(3600)
        assert await bench.provider.prune(_MONTH, limit=1) == Pruned(expired=1)
        assert await bench.provider.prune(_MONTH, limit=1) == Pruned(expired=1)
        rows = await bench.provider.items("q", states=["dead"])
        assert {row.error for row in rows} == {"not done within 1h"}

    async def test_deliveries_outlive_their_event(self, bench: Bench) -> None:
        await bench.subscribe("a")
        await bench.change("eu.price", 1)
        await bench.change("eu.price", 2)
        await bench.provider.prune(timedelta(0))
        await bench.advance(1)
        await bench.provider.prune(timedelta(0))
        assert len(await bench.provider.events()) == 1
        assert len(await bench.provider.items(DELIVERIES)) == 2
        assert len(await bench.deliveries("a")) == 2

    async def test_09_now_is_the_stores_clock(self, bench: Bench) -> None:
        assert await bench.provider.now() == bench.now_ms()
        await bench.advance(5)
        assert await bench.provider.now() == bench.now_ms()

    async def test_15_what_can_never_be_stored_is_not_worth_a_retry(self, bench: Bench) -> None:
        with pytest.raises(ProviderError) as raised:
            await bench.provider.enqueue([replace(ITEM, id="a", payload="\udfff")])
        assert raised.value.retryable is False

    async def test_15_a_fetch_of_nothing_is_a_mistake_of_the_caller(self, bench: Bench) -> None:
        with pytest.raises(ValueError, match="at least one"):
            await bench.fetch(0)
