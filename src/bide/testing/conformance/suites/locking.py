"""Promises 5 to 7: locks, tokens, settling, attempts and deaths."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from bide.errors import ProviderError
from bide.provider import DELIVERIES, Abandon, Ack, Bury, Empty, Items, Settlement, WorkItem
from bide.testing.conformance.bench import ITEM, KEPT, LOCK, Bench, subscription

_LATER = timedelta(seconds=10)


def _settlements(token: str) -> list[Settlement]:
    """One of each kind."""
    return [
        Ack(token, enqueue=(replace(ITEM, id="child"),)),
        Abandon(token, timedelta(), "failed"),
        Bury(token, "bad"),
    ]


class LockingSuite:
    """Locks and what ends them."""

    async def test_05_an_item_is_held_by_one_fetch_at_a_time(self, bench: Bench) -> None:
        await bench.put("a")
        assert len(await bench.take()) == 1
        assert await bench.take() == []

    async def test_05_tokens_are_unique_to_the_fetch(self, bench: Bench) -> None:
        await bench.put("a")
        (first,) = await bench.take()
        await bench.advance(LOCK.total_seconds())
        (second,) = await bench.take()
        assert first.token != second.token

    @pytest.mark.parametrize("kind", range(3))
    async def test_05_an_expired_token_is_dead_though_nobody_took_the_item(
        self, bench: Bench, kind: int
    ) -> None:
        await bench.put("a")
        (item,) = await bench.take()
        await bench.advance(LOCK.total_seconds())
        assert await bench.provider.renew([item.token], LOCK) == [False]
        assert await bench.provider.settle([_settlements(item.token)[kind]]) == ["stale"]
        assert (await bench.item("a")).ended_at is None
        assert list(await bench.states()) == ["a"]

    @pytest.mark.parametrize("kind", range(3))
    async def test_05_a_stale_settle_changes_nothing(self, bench: Bench, kind: int) -> None:
        await bench.put("a")
        (late,) = await bench.take()
        await bench.advance(LOCK.total_seconds())
        (holder,) = await bench.take()
        before = await bench.provider.items("q")
        assert await bench.provider.settle([_settlements(late.token)[kind]]) == ["stale"]
        assert await bench.provider.items("q") == before
        assert await bench.provider.settle([Ack(holder.token)]) == ["settled"]

    @pytest.mark.parametrize("kind", range(3))
    async def test_05_settling_twice_is_stale_the_second_time(self, bench: Bench, kind: int) -> None:
        await bench.put("a", template=KEPT)
        (item,) = await bench.take()
        assert await bench.provider.settle([Ack(item.token)]) == ["settled"]
        assert await bench.provider.settle([_settlements(item.token)[kind]]) == ["stale"]
        assert await bench.states() == {"a": "done"}

    async def test_05_a_token_given_twice_settles_once(self, bench: Bench) -> None:
        await bench.put("a")
        (item,) = await bench.take()
        assert await bench.provider.settle([Ack(item.token), Ack(item.token)]) == ["settled", "stale"]

    @pytest.mark.parametrize("token", ["", "0:x", "not a token", "1:", "99999999999999999999:x", "🙂"])
    async def test_05_a_token_that_never_was_is_stale(self, bench: Bench, token: str) -> None:
        await bench.put("a")
        await bench.take()
        assert await bench.provider.settle([Ack(token), Bury(token, "x")]) == ["stale", "stale"]
        assert await bench.provider.renew([token], LOCK) == [False]

    async def test_05_renewing_prolongs_from_now(self, bench: Bench) -> None:
        await bench.put("a")
        (item,) = await bench.take()
        for _ in range(4):
            await bench.advance(20)
            assert await bench.provider.renew([item.token, "0:x"], LOCK) == [True, False]
        await bench.advance(29)
        assert await bench.take() == []
        assert await bench.provider.settle([Ack(item.token)]) == ["settled"]

    async def test_05_locks_can_be_renewed_and_settled_from_other_threads(self, bench: Bench) -> None:
        await bench.put(*(f"i{number}" for number in range(20)), template=KEPT)
        tokens = [item.token for item in await bench.take(20)]

        async def renew_and_settle(token: str) -> bool:
            renewed = await bench.provider.renew([token], LOCK)
            return renewed == [True] and await bench.provider.settle([Ack(token)]) == ["settled"]

        def elsewhere(token: str) -> bool:
            return asyncio.run(renew_and_settle(token))

        threads = [asyncio.to_thread(elsewhere, token) for token in tokens]
        assert await asyncio.gather(*threads) == [True] * 20
        assert set((await bench.states()).values()) == {"done"}

    async def test_06_ack_and_what_it_enqueues_happen_together(self, bench: Bench) -> None:
        await bench.put("a", template=KEPT)
        (item,) = await bench.take()
        await bench.provider.settle([Ack(item.token, enqueue=(replace(ITEM, id="b"), replace(ITEM, id="c")))])
        assert await bench.states() == {"a": "done", "b": "ready", "c": "ready"}

    async def test_06_what_cannot_be_enqueued_leaves_everything_as_it_was(self, bench: Bench) -> None:
        await bench.put("a", "b")
        first, second = await bench.take()
        bad = replace(ITEM, id="c", payload="\ud800")
        with pytest.raises(ProviderError, match="surrogate"):
            await bench.provider.settle([Ack(first.token), Ack(second.token, enqueue=(bad,))])
        assert await bench.states() == {"a": "running", "b": "running"}
        assert await bench.provider.settle([Ack(first.token), Ack(second.token)]) == ["settled"] * 2

    async def test_06_one_call_that_fails_leaves_the_others_alone(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", template=KEPT)
        first, second, third = await bench.take()
        bad = (replace(ITEM, id="d", payload="\ud800"),)
        results = await asyncio.gather(
            bench.provider.settle([Ack(first.token)]),
            bench.provider.settle([Ack(second.token, enqueue=bad)]),
            bench.provider.enqueue([replace(ITEM, id="e")]),
            bench.provider.settle([Ack(third.token)]),
            return_exceptions=True,
        )
        assert results[0] == ["settled"]
        assert isinstance(results[1], ProviderError)
        assert results[3] == ["settled"]
        assert await bench.states() == {"a": "done", "b": "running", "c": "done", "e": "ready"}

    async def test_06_each_settlement_goes_by_its_own_token(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", "d", template=KEPT)
        one, two, three, _ = await bench.take()
        settled = await bench.provider.settle(
            [Bury(one.token, "bad"), Ack("0:x"), Abandon(two.token, _LATER, "later"), Ack(three.token)]
        )
        assert settled == ["settled", "stale", "settled", "settled"]
        assert await bench.states() == {"a": "dead", "b": "ready", "c": "done", "d": "running"}
        assert (await bench.item("a")).error == "bad"
        assert (await bench.item("b")).error == "later"

    async def test_07_attempts_are_counted_at_fetch(self, bench: Bench) -> None:
        await bench.put("a")
        for attempt in (1, 2, 3):
            (item,) = await bench.take()
            assert item.attempt == attempt
            assert (await bench.item("a")).attempts == attempt
            await bench.provider.settle([Abandon(item.token, timedelta(), "failed")])

    async def test_07_an_uncounted_abandon_gives_the_attempt_back(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, max_attempts=1))
        for _ in range(20):
            (item,) = await bench.take()
            assert item.attempt == 1
            await bench.provider.settle([Abandon(item.token, timedelta(), count_attempt=False)])
        assert (await bench.item("a")).attempts == 0

    async def test_07_an_item_out_of_attempts_is_dead_with_its_reason(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, max_attempts=2))
        for error in ("first", "second"):
            (item,) = await bench.take()
            assert item.max_attempts == 2
            await bench.provider.settle([Abandon(item.token, timedelta(), error)])
        assert await bench.take() == []
        row = await bench.item("a")
        assert (row.state, row.error) == ("dead", "gave up after 2 attempts: second")
        assert row.ended_at == bench.now_ms()

    async def test_07_an_attempt_that_ended_by_lock_expiry_is_a_death(self, bench: Bench) -> None:
        await bench.put("a")
        await bench.take()
        await bench.advance(LOCK.total_seconds())
        (item,) = await bench.take()
        assert (item.attempt, item.deaths) == (2, 1)

    async def test_07_deaths_count_as_attempts(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, max_attempts=1))
        await bench.take()
        await bench.advance(LOCK.total_seconds())
        assert await bench.take() == []
        row = await bench.item("a")
        assert row.state == "dead"
        assert row.error is not None
        assert row.error.startswith("gave up after 1 attempt: its lock expired")

    async def test_07_an_item_with_two_deaths_is_fetched_alone_and_buried_at_the_third(
        self, bench: Bench
    ) -> None:
        await bench.put("killer")
        for _ in range(2):
            await bench.take()
            await bench.advance(LOCK.total_seconds())
        await bench.put("good", "fine")
        (alone,) = await bench.take()
        assert (alone.id, alone.deaths) == ("killer", 2)
        assert [item.id for item in await bench.take()] == ["good", "fine"]
        await bench.advance(LOCK.total_seconds() - 1)
        await bench.advance(1)
        assert "killer" not in [item.id for item in await bench.take()]
        row = await bench.item("killer")
        assert (row.state, row.error) == ("dead", "the worker died 3 times while handling it")

    async def test_07_an_item_with_two_deaths_takes_no_neighbours_along(self, bench: Bench) -> None:
        await bench.put("killer", template=replace(ITEM, priority=-2))
        for _ in range(2):
            await bench.take()
            await bench.advance(LOCK.total_seconds())
        await bench.put("good", "fine")
        assert [item.id for item in await bench.take()] == ["good", "fine"]
        assert [item.id for item in await bench.take()] == ["killer"]

    async def test_07_a_death_is_not_counted_where_the_lock_was_given_back(self, bench: Bench) -> None:
        await bench.put("a")
        for _ in range(4):
            await bench.fetch(by="f")
            await bench.provider.release("f")
        (item,) = await bench.take()
        assert (item.attempt, item.deaths) == (1, 0)

    async def test_07_within_bounds_the_whole_life(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, within=timedelta(hours=1)))
        (item,) = await bench.take()
        assert item.expires_at == bench.now_ms() + 3_600_000
        await bench.provider.settle([Abandon(item.token, timedelta(minutes=50), "no route")])
        await bench.advance(3600)
        assert await bench.fetch() == Empty()
        row = await bench.item("a")
        assert (row.state, row.error) == ("dead", "not done within 1h: no route")

    async def test_07_a_delivery_past_its_life_was_not_delivered(self, bench: Bench) -> None:
        await bench.subscribe("a", template=replace(subscription(), within=timedelta(hours=1)))
        await bench.change("eu.price", 1)
        (item,) = await bench.deliveries("a")
        await bench.provider.settle([Abandon(item.token, timedelta(), "no route")])
        await bench.advance(3600)
        assert await bench.deliveries("a") == []
        row = await bench.item(item.id, DELIVERIES)
        assert (row.state, row.error) == ("dead", "not delivered within 1h: no route")

    async def test_07_within_counts_waits(self, bench: Bench) -> None:
        template = replace(ITEM, within=timedelta(seconds=10), delay=timedelta(seconds=20))
        await bench.put("a", template=template)
        await bench.advance(21)
        assert await bench.take() == []
        row = await bench.item("a")
        assert (row.state, row.error) == ("dead", "not done within 10s")

    async def test_07_what_is_running_may_end_after_its_life(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, within=timedelta(seconds=10)))
        (item,) = await bench.take()
        await bench.advance(15)
        await bench.take()
        assert await bench.provider.settle([Ack(item.token)]) == ["settled"]

    async def test_07_work_survives_a_restart_of_its_worker(self, bench: Bench) -> None:
        await bench.put("a")
        (item,) = await bench.take()
        await bench.reopen()
        assert await bench.take() == []
        await bench.advance(LOCK.total_seconds())
        fetched = await bench.fetch()
        assert isinstance(fetched, Items)
        again: WorkItem = fetched.items[0]
        assert (again.id, again.attempt, again.deaths) == ("a", 2, 1)
        assert await bench.provider.settle([Ack(item.token), Ack(again.token)]) == ["stale", "settled"]
