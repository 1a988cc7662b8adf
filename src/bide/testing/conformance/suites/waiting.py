"""Promises 1 to 4: how a fetch waits, and what it says when there is nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from bide.provider import Abandon, Ack, Empty, Items
from bide.testing.conformance.bench import ITEM, KEPT, LOCK, Bench, ids_of, items_of


class WaitingSuite:
    """Long polling."""

    async def test_01_a_poll_timeout_of_zero_never_blocks(self, bench: Bench) -> None:
        assert await bench.fetch(wait=0) == Empty(next_eligible_in=None, blocked=False)

    async def test_01_poll_timeout_is_a_maximum(self, bench: Bench) -> None:
        began = bench.now_ms()
        fetching = bench.begin_fetch(wait=5)
        await bench.advance(4.9)
        assert not fetching.done()
        await bench.advance(0.1 + bench.slack)
        assert await bench.ended(fetching) == Empty(next_eligible_in=None, blocked=True)
        assert bench.now_ms() - began <= (5 + bench.slack) * 1000

    async def test_01_a_fetch_that_need_not_wait_says_so(self, bench: Bench) -> None:
        await bench.put("a")
        fetched = await bench.fetch(wait=5)
        assert isinstance(fetched, Items)
        assert not fetched.blocked

    async def test_01_a_blocked_fetch_ends_when_an_item_is_enqueued(self, bench: Bench) -> None:
        fetching = bench.begin_fetch(wait=20)
        await bench.advance(3)
        await bench.put("a")
        fetched = await bench.ended(fetching)
        assert isinstance(fetched, Items)
        assert [item.id for item in fetched.items] == ["a"]
        assert fetched.blocked

    async def test_01_a_blocked_fetch_ends_when_a_delay_is_over(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, delay=timedelta(seconds=7)))
        await self._ends_after(bench, 7)

    async def test_01_a_blocked_fetch_ends_when_a_lock_expires(self, bench: Bench) -> None:
        await bench.put("a")
        await bench.take(lock=timedelta(seconds=9))
        await self._ends_after(bench, 9)

    async def test_01_a_blocked_fetch_ends_when_an_abandon_delay_is_over(self, bench: Bench) -> None:
        await bench.put("a")
        (item,) = await bench.take()
        await bench.provider.settle([Abandon(item.token, timedelta(seconds=6))])
        await self._ends_after(bench, 6)

    async def test_01_a_blocked_fetch_ends_when_an_instant_of_the_user_comes(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, at=bench.now_ms() + 8_000))
        await self._ends_after(bench, 8)

    async def test_01_a_blocked_fetch_hears_of_what_becomes_visible_sooner(self, bench: Bench) -> None:
        await bench.put("late", template=replace(ITEM, delay=timedelta(seconds=50)))
        fetching = bench.begin_fetch(wait=60)
        await bench.advance(1)
        await bench.put("a", template=replace(ITEM, delay=timedelta(seconds=4)))
        await bench.advance(3.9)
        assert not fetching.done()
        await bench.advance(0.1 + bench.slack)
        assert ids_of(await bench.ended(fetching)) == ["a"]

    async def test_01_a_blocked_fetch_is_not_ended_by_a_lock_that_is_renewed(self, bench: Bench) -> None:
        await bench.put("a")
        (item,) = await bench.take(lock=timedelta(seconds=9))
        fetching = bench.begin_fetch(wait=30)
        for _ in range(5):
            await bench.advance(5)
            assert await bench.provider.renew([item.token], timedelta(seconds=9)) == [True]
        assert not fetching.done()
        await bench.advance(9 - bench.slack)
        assert fetching.done() or (await bench.provider.settle([Ack(item.token)])) == ["settled"]
        fetching.cancel()

    async def test_01_a_blocked_fetch_ends_when_what_it_is_behind_is_discarded_or_purged(
        self, bench: Bench
    ) -> None:
        await bench.put("a", "b", "c", template=replace(ITEM, order_key="k", delay=timedelta(hours=1)))
        for id, mend in (("d", "discard"), ("e", "purge")):
            await bench.put(id, template=replace(ITEM, order_key="k"))
            fetching = bench.begin_fetch(wait=20, by=id)
            await bench.advance(1)
            assert not fetching.done()
            if mend == "discard":
                await bench.provider.discard(["a", "b", "c"], "not wanted")
            else:
                await bench.provider.purge("q", states=["ready"], limit=1)
            fetched = await bench.ended(fetching)
            assert ids_of(fetched) == [id]
            await bench.provider.settle([Ack(items_of(fetched)[0].token)])
            await bench.put("f", template=replace(ITEM, order_key="k", delay=timedelta(hours=1)))

    async def test_01_a_blocked_fetch_ends_when_an_item_is_abandoned(self, bench: Bench) -> None:
        await bench.put("a")
        (item,) = await bench.take()
        fetching = bench.begin_fetch(wait=20)
        await bench.advance(1)
        assert not fetching.done()
        await bench.provider.settle([Abandon(item.token, timedelta())])
        assert isinstance(await bench.ended(fetching), Items)

    async def test_01_a_blocked_fetch_ends_when_an_ack_enqueues(self, bench: Bench) -> None:
        await bench.put("a")
        (item,) = await bench.take()
        fetching = bench.begin_fetch(wait=20)
        await bench.advance(1)
        await bench.provider.settle([Ack(item.token, enqueue=(replace(ITEM, id="b"),))])
        fetched = await bench.ended(fetching)
        assert isinstance(fetched, Items)
        assert [item.id for item in fetched.items] == ["b"]

    async def test_01_a_blocked_fetch_ends_when_what_it_is_behind_ends(self, bench: Bench) -> None:
        await bench.put("a", "b", template=replace(ITEM, order_key="k"))
        (item,) = await bench.take()
        fetching = bench.begin_fetch(wait=20)
        await bench.advance(1)
        assert not fetching.done()
        await bench.provider.settle([Ack(item.token)])
        fetched = await bench.ended(fetching)
        assert isinstance(fetched, Items)
        assert [item.id for item in fetched.items] == ["b"]

    async def test_01_a_blocked_fetch_ends_when_others_release_or_requeue(self, bench: Bench) -> None:
        await bench.put("a", template=KEPT)
        await bench.fetch(by="other")
        fetching = bench.begin_fetch(wait=20)
        await bench.advance(1)
        await bench.provider.release("other")
        fetched = await bench.ended(fetching)
        assert isinstance(fetched, Items)
        await bench.provider.settle([Ack(item.token) for item in fetched.items])
        fetching = bench.begin_fetch(wait=20)
        await bench.advance(1)
        await bench.provider.requeue(["a"])
        assert isinstance(await bench.ended(fetching), Items)

    async def test_01_an_item_of_another_name_does_not_end_the_wait(self, bench: Bench) -> None:
        fetching = bench.begin_fetch(wait=5)
        await bench.advance(1)
        await bench.put("a", name="other")
        await bench.advance(1)
        assert not fetching.done()
        await bench.advance(3 + bench.slack)
        assert isinstance(await bench.ended(fetching), Empty)

    async def test_01_every_waiting_fetch_is_served(self, bench: Bench) -> None:
        fetches = [bench.begin_fetch(wait=20, by=f"f{number}") for number in range(3)]
        await bench.advance(1)
        for number in range(3):
            await bench.provider.enqueue([replace(ITEM, id=f"i{number}")])
            await bench.advance(0)
        taken: list[str] = []
        for fetching in fetches:
            if fetching.done():
                fetched = await bench.ended(fetching)
                taken += [item.id for item in fetched.items] if isinstance(fetched, Items) else []
            else:
                fetching.cancel()
        assert sorted(taken) == ["i0", "i1", "i2"]

    async def test_01_wake_ends_every_wait(self, bench: Bench) -> None:
        fetches = [bench.begin_fetch(wait=20, by=f"f{number}") for number in range(2)]
        await bench.advance(1)
        await bench.provider.wake()
        assert [await bench.ended(fetching) for fetching in fetches] == [Empty(blocked=True)] * 2

    async def test_02_a_cancelled_wait_takes_nothing_with_it(self, bench: Bench) -> None:
        fetching = bench.begin_fetch(wait=20)
        await bench.advance(1)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        await bench.put("a")
        assert [item.id for item in await bench.take()] == ["a"]

    @pytest.mark.parametrize("turns", range(12))
    async def test_02_a_fetch_cancelled_at_any_moment_loses_nothing(self, bench: Bench, turns: int) -> None:
        await bench.put("a", "b")
        fetching = bench.begin_fetch(wait=20)
        for _ in range(turns):
            await asyncio.sleep(0)
        fetching.cancel()
        try:
            fetched = await bench.ended(fetching)
        except asyncio.CancelledError:
            pass
        else:
            assert isinstance(fetched, Items)
            await bench.provider.release("blocked")
        taken = await bench.take()
        assert [(item.id, item.attempt) for item in taken] == [("a", 1), ("b", 1)]

    @pytest.mark.parametrize("turns", range(12))
    async def test_02_a_fetch_cancelled_as_its_item_comes_loses_nothing(
        self, bench: Bench, turns: int
    ) -> None:
        fetching = bench.begin_fetch(wait=20)
        await bench.advance(1)
        await bench.put("a")
        for _ in range(turns):
            await asyncio.sleep(0)
        fetching.cancel()
        await asyncio.wait({fetching})
        await bench.provider.release("blocked")
        assert [(item.id, item.attempt, item.deaths) for item in await bench.take()] == [("a", 1, 0)]

    async def test_02_a_cancelled_wait_leaves_the_others_waiting(self, bench: Bench) -> None:
        first, second = (bench.begin_fetch(wait=20, by=by) for by in ("first", "second"))
        await bench.advance(1)
        first.cancel()
        await asyncio.wait({first})
        await bench.advance(1)
        assert not second.done()
        await bench.put("a")
        assert ids_of(await bench.ended(second)) == ["a"]

    async def test_02_release_gives_back_what_a_fetch_took_and_no_more(self, bench: Bench) -> None:
        await bench.put("a", "b", "c")
        await bench.fetch(2, by="lost")
        kept = await bench.take(1)
        assert await bench.provider.release("lost") == 2
        assert await bench.provider.release("lost") == 0
        assert [(item.id, item.attempt) for item in await bench.take()] == [("a", 1), ("b", 1)]
        assert await bench.provider.settle([Ack(item.token) for item in kept]) == ["settled"]

    async def test_03_the_lock_starts_when_items_are_taken(self, bench: Bench) -> None:
        fetching = bench.begin_fetch(wait=60)
        await bench.advance(40)
        await bench.put("a")
        fetched = await bench.ended(fetching)
        assert isinstance(fetched, Items)
        await bench.advance(LOCK.total_seconds() - 1)
        assert await bench.take() == []
        assert await bench.provider.settle([Ack(fetched.items[0].token)]) == ["settled"]

    async def test_03_the_lock_ends_when_it_is_over_however_long_the_wait_was(self, bench: Bench) -> None:
        fetching = bench.begin_fetch(wait=60)
        await bench.advance(40)
        await bench.put("a")
        assert ids_of(await bench.ended(fetching)) == ["a"]
        await bench.advance(LOCK.total_seconds())
        assert [item.id for item in await bench.take()] == ["a"]

    async def test_04_empty_says_when_something_will_be_eligible(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, delay=timedelta(seconds=40)))
        assert await bench.fetch() == Empty(next_eligible_in=timedelta(seconds=40))
        await bench.put("b")
        await bench.take(lock=timedelta(seconds=10))
        assert await bench.fetch() == Empty(next_eligible_in=timedelta(seconds=10))

    async def test_04_empty_says_nothing_of_other_names(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, name="other", delay=timedelta(seconds=40)))
        assert await bench.fetch() == Empty(next_eligible_in=None)

    async def test_04_what_is_eligible_is_found_at_once_however_many_fetch(self, bench: Bench) -> None:
        await bench.put(*(f"i{number}" for number in range(20)))
        fetches = [bench.fetch(1, by=f"f{number}") for number in range(20)]
        fetched = await asyncio.gather(*fetches)
        taken = [item.id for one in fetched if isinstance(one, Items) for item in one.items]
        assert sorted(taken) == sorted(f"i{number}" for number in range(20))

    async def _ends_after(self, bench: Bench, seconds: float) -> None:
        """A fetch that begins now ends with an item after so long, and no sooner."""
        fetching = bench.begin_fetch(wait=60)
        await bench.advance(seconds - 0.1)
        assert not fetching.done()
        await bench.advance(0.1 + bench.slack)
        assert fetching.done()
        fetched = await bench.ended(fetching)
        assert isinstance(fetched, Items)
        assert [item.id for item in fetched.items] == ["a"]
