"""Promises 8 and 9: waiting for an instant is no lock, instants are the store's, and its clock may be set back.

Then nothing stops, and nothing runs twice for it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from bide.provider import Abandon, Ack
from bide.testing.conformance.bench import ITEM, LOCK, MINUTE, Bench

_LATER = timedelta(seconds=10)
_YEARS_S = 8 * 365 * 86_400


class ClocksSuite:
    """Instants, and steps of the wall clock."""

    async def test_08_a_delayed_item_has_no_lock(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, delay=_LATER))
        row = await bench.item("a")
        assert (row.state, row.attempts) == ("ready", 0)
        assert await bench.take() == []
        await bench.advance(9.5)
        assert await bench.take() == []
        await bench.advance(0.5)
        (item,) = await bench.take()
        assert (item.attempt, item.deaths) == (1, 0)

    async def test_08_an_item_waits_for_the_instant_that_the_user_gave(self, bench: Bench) -> None:
        now = bench.now_ms()
        await bench.put("a", template=replace(ITEM, at=now + 5_000))
        await bench.put("delayed", template=replace(ITEM, at=now + 5_000, delay=_LATER))
        await bench.put("past", template=replace(ITEM, at=now - 5_000))
        await bench.put("past and delayed", template=replace(ITEM, at=now - 5_000, delay=_LATER))
        visible = {row.id: row.visible_at - now for row in await bench.provider.items("q")}
        assert visible == {"a": 5_000, "delayed": 10_000, "past": 0, "past and delayed": 10_000}
        assert [item.id for item in await bench.take()] == ["past"]
        await bench.advance(5)
        assert [item.id for item in await bench.take()] == ["a"]

    async def test_08_an_abandoned_item_has_no_lock_while_it_waits(self, bench: Bench) -> None:
        await bench.put("a")
        (item,) = await bench.take()
        await bench.provider.settle([Abandon(item.token, timedelta(hours=2), "later")])
        assert await bench.provider.settle([Ack(item.token)]) == ["stale"]
        await bench.advance(7199)
        assert await bench.take() == []
        await bench.advance(1)
        assert [(again.attempt, again.deaths) for again in await bench.take()] == [(2, 0)]

    async def test_09_instants_are_the_stores(self, bench: Bench) -> None:
        before = bench.now_ms()
        await bench.put("a", template=replace(ITEM, delay=_LATER, within=timedelta(minutes=1)))
        row = await bench.item("a")
        assert row.enqueued_at == before
        assert row.visible_at == before + 10_000
        assert row.expires_at == before + 60_000

    async def test_09_a_poll_is_due_after_the_clock_was_set_back(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.answer(claim, 1)
        bench.set_back(_YEARS_S)
        (again,) = await bench.claim("eu.price")
        assert again.lag_ms == 0
        assert 30_000 < again.next_due_at - bench.now_ms() <= 90_000
        await bench.answer(again, 1)
        assert await bench.claim("eu.price") == []

    async def test_09_a_hold_does_not_outlast_a_clock_set_back(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.provider.record_failure(claim, "refused", MINUTE)
        bench.set_back(_YEARS_S)
        assert len(await bench.claim("eu.price")) == 1

    async def test_09_a_poll_that_is_out_is_due_after_the_clock_was_set_back(self, bench: Bench) -> None:
        await bench.claim("eu.price")
        bench.set_back(_YEARS_S)
        assert len(await bench.claim("eu.price")) == 1

    async def test_09_a_little_back_never_calls_twice_within_an_interval(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.answer(claim, 1)
        bench.set_back(5)
        assert await bench.claim("eu.price") == []

    async def test_09_a_delayed_item_comes_after_the_clock_was_set_back(self, bench: Bench) -> None:
        await bench.put("delayed", template=replace(ITEM, delay=MINUTE))
        await bench.put("retried", "ready")
        item, _ = await bench.take(2)
        await bench.provider.settle([Abandon(item.token, timedelta(hours=1))])
        bench.set_back(_YEARS_S)
        assert [item.id for item in await bench.take()] == ["delayed", "retried"]

    async def test_09_an_instant_that_the_user_gave_holds_whatever_was_done_to_the_clock(
        self, bench: Bench
    ) -> None:
        await bench.put("at", template=replace(ITEM, at=bench.now_ms() + 60_000))
        bench.set_back(_YEARS_S)
        assert await bench.take() == []
        bench.set_back(-_YEARS_S)
        assert await bench.take() == []
        await bench.advance(60)
        assert [item.id for item in await bench.take()] == ["at"]

    async def test_09_a_lock_outlasts_a_clock_set_back_by_one_length(self, bench: Bench) -> None:
        await bench.put("alive", "dead")
        alive, _ = await bench.take()
        bench.set_back(_YEARS_S)
        assert await bench.take() == []
        await bench.advance(LOCK.total_seconds() - 1)
        assert await bench.provider.renew([alive.token], LOCK) == [True]
        await bench.advance(1)
        (again,) = await bench.take()
        assert (again.id, again.deaths) == ("dead", 1)
        assert await bench.provider.settle([Ack(alive.token)]) == ["settled"]

    async def test_09_a_clock_set_forward_is_one_call_and_no_burst(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.answer(claim, 1)
        bench.set_back(-3600)
        (late,) = await bench.claim("eu.price")
        await bench.answer(late, 1)
        assert await bench.claim("eu.price") == []
