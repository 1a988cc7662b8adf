"""What happens when the store's clock is set back: nothing stops, and nothing runs twice for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from bide.provider import Abandon, Ack
from bide.testing.conformance.bench import ITEM, LOCK, MINUTE, Bench

_YEARS_S = 8 * 365 * 86_400


class ClocksSuite:
    """Steps of the wall clock."""

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
