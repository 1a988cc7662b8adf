"""Promise 12, second half: what a limit holds back, over the whole fleet, and in whose turn it lets go."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from bide.provider import Abandon, Ack, Bury, Empty, Limit, Settlement
from bide.testing.conformance.bench import ITEM, LOCK, Bench, ids_of, items_of

ONE = {"q": Limit(queue=1)}
ONE_EACH = {"q": Limit(per_key=1)}


class LimitsSuite:
    """Places of queues and of limit keys."""

    async def test_12_a_limit_bounds_what_runs_of_a_queue(self, bench: Bench) -> None:
        await bench.put(*(f"i{number}" for number in range(6)))
        limits = {"q": Limit(queue=2)}
        assert [item.id for item in await bench.take(limits=limits)] == ["i0", "i1"]
        assert await bench.take(limits=limits) == []
        assert [item.id for item in await bench.take(1)] == ["i2"]  # a fetch without it is not held back

    async def test_12_a_limit_counts_what_others_took_of_any_name(self, bench: Bench) -> None:
        await bench.put("a", "b", name="other")
        await bench.put("c", "d")
        await bench.take(names=["other"])
        assert await bench.take(limits={"q": Limit(queue=2)}) == []
        assert [item.id for item in await bench.take(limits={"q": Limit(queue=3)})] == ["c"]

    async def test_12_a_limit_is_of_its_queue_alone(self, bench: Bench) -> None:
        await bench.put("a", "b")
        await bench.put("c", "d", queue="p")
        taken = await bench.take(queues=["p", "q"], limits={**ONE, "none": Limit(queue=0)})
        assert sorted(item.id for item in taken) == ["a", "c", "d"]
        assert await bench.fetch(queues=["q"], limits={"q": Limit(), "p": Limit(queue=1)}) != Empty()

    async def test_12_a_limit_of_nothing_lets_nothing_run(self, bench: Bench) -> None:
        await bench.put("a")
        assert await bench.fetch(limits={"q": Limit(queue=0)}) == Empty()

    async def test_12_a_limit_bounds_what_runs_of_each_key(self, bench: Bench) -> None:
        for key in ("x", "y"):
            await bench.put(*(f"{key}{number}" for number in range(3)), template=replace(ITEM, limit_key=key))
        await bench.put("free0", "free1")
        taken = await bench.take(limits={"q": Limit(per_key=2)})
        assert sorted(item.id for item in taken) == ["free0", "free1", "x0", "x1", "y0", "y1"]
        assert await bench.take(limits={"q": Limit(per_key=2)}) == []
        assert (await bench.item("x2")).limit_key == "x"

    async def test_12_both_bounds_hold_together(self, bench: Bench) -> None:
        for key in ("x", "y", "z"):
            await bench.put(*(f"{key}{number}" for number in range(5)), template=replace(ITEM, limit_key=key))
        taken = await bench.take(limits={"q": Limit(queue=4, per_key=2)})
        assert len(taken) == 4
        assert max(Counter(item.id[0] for item in taken).values()) == 2

    async def test_12_a_key_at_its_limit_does_not_hide_the_others(self, bench: Bench) -> None:
        await bench.put(*(f"x{number}" for number in range(200)), template=replace(ITEM, limit_key="x"))
        await bench.put("y0", template=replace(ITEM, limit_key="y"))
        await bench.put("free")
        taken = await bench.take(3, limits=ONE_EACH)
        assert sorted(item.id for item in taken) == ["free", "x0", "y0"]

    async def test_12_what_a_limit_holds_back_is_not_eligible(self, bench: Bench) -> None:
        await bench.put("a", "b")
        await bench.take(1, lock=timedelta(seconds=10))
        fetched = await bench.fetch(limits=ONE)
        assert isinstance(fetched, Empty)
        assert fetched.next_eligible_in is not None
        assert timedelta() < fetched.next_eligible_in <= timedelta(seconds=10)

    @pytest.mark.parametrize("limits", [ONE, ONE_EACH], ids=["queue", "key"])
    @pytest.mark.parametrize("kind", range(4))
    async def test_12_each_end_of_an_item_frees_its_place_once(
        self, bench: Bench, kind: int, limits: dict[str, Limit]
    ) -> None:
        await bench.put("a", "b", "c", template=replace(ITEM, limit_key="x"))
        (item,) = await bench.take(limits=limits)
        ends: list[Settlement] = [
            Ack(item.token),
            Bury(item.token, "bad"),
            Abandon(item.token, timedelta(hours=1)),
            Abandon(item.token, timedelta(hours=1), count_attempt=False),
        ]
        settled = [*await bench.provider.settle([ends[kind]]), *await bench.provider.settle([ends[kind]])]
        assert settled == ["settled", "stale"]
        assert [one.id for one in await bench.take(limits=limits)] == ["b"]
        assert await bench.take(limits=limits) == []

    async def test_12_a_place_is_given_back_by_release(self, bench: Bench) -> None:
        await bench.put("a", "b")
        await bench.fetch(by="lost", limits=ONE)
        assert await bench.take(limits=ONE) == []
        await bench.provider.release("lost")
        assert [item.id for item in await bench.take(limits=ONE)] == ["a"]

    async def test_12_a_place_is_not_lost_when_its_holder_dies(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", template=replace(ITEM, limit_key="x"))
        (dead,) = await bench.take(limits=ONE_EACH)
        await bench.reopen()
        assert await bench.take(limits=ONE_EACH) == []
        await bench.advance(LOCK.total_seconds())
        (holder,) = await bench.take(limits=ONE_EACH)
        assert await bench.take(limits=ONE_EACH) == []
        assert await bench.provider.settle([Ack(dead.token)]) == ["stale"]  # it frees no place that it lost
        assert await bench.take(limits=ONE_EACH) == []
        assert await bench.provider.settle([Ack(holder.token)]) == ["settled"]
        assert len(await bench.take(limits=ONE_EACH)) == 1

    async def test_12_a_place_is_held_while_its_lock_is_renewed(self, bench: Bench) -> None:
        await bench.put("a", "b")
        (item,) = await bench.take(limits=ONE)
        for _ in range(4):
            await bench.advance(20)
            assert await bench.provider.renew([item.token], LOCK) == [True]
            assert await bench.take(limits=ONE) == []

    @pytest.mark.parametrize("limits", [{"q": Limit(queue=3)}, {"q": Limit(per_key=3)}], ids=["queue", "key"])
    async def test_12_a_limit_holds_over_fetches_at_one_moment(
        self, bench: Bench, limits: dict[str, Limit]
    ) -> None:
        await bench.put(*(f"i{number}" for number in range(30)), template=replace(ITEM, limit_key="x"))
        async with bench.another() as other:
            for _ in range(3):
                fetched = await asyncio.gather(
                    *(
                        bench.fetch(5, by=f"f{at}", limits=limits, on=(bench.provider, other)[at % 2])
                        for at in range(8)
                    )
                )
                items = [item for one in fetched for item in items_of(one)]
                assert len(items) == 3
                await bench.provider.settle([Ack(item.token) for item in items])

    async def test_12_keys_are_served_in_turn(self, bench: Bench) -> None:
        await bench.put(*(f"x{number}" for number in range(50)), template=replace(ITEM, limit_key="x"))
        await bench.put(*(f"y{number}" for number in range(5)), template=replace(ITEM, limit_key="y"))
        await bench.put(*(f"-{number}" for number in range(5)))
        taken = []
        for _ in range(15):
            (item,) = await bench.take(limits=ONE)
            taken.append(item.id)
            await bench.provider.settle([Ack(item.token)])
        assert Counter(id[0] for id in taken) == {"x": 5, "y": 5, "-": 5}
        of_x = [id for id in taken if id[0] == "x"]
        assert of_x == sorted(of_x)

    async def test_12_keys_take_turns_also_beside_other_queues(self, bench: Bench) -> None:
        for queue in ("p", "q"):
            for key in ("x", "y"):
                template = replace(ITEM, queue=queue, limit_key=key)
                await bench.put(*(f"{queue}{key}{number}" for number in range(20)), template=template)
        taken = []
        for _ in range(16):
            (item,) = await bench.take(1, queues=["p", "q"], limits={**ONE, "p": Limit(queue=1)})
            taken.append(item.id)
            await bench.provider.settle([Ack(item.token)])
        assert set(Counter(id[:2] for id in taken).values()) == {4}

    async def test_12_the_key_of_which_least_is_running_is_first(self, bench: Bench) -> None:
        await bench.put(*(f"x{number}" for number in range(10)), template=replace(ITEM, limit_key="x"))
        limits = {"q": Limit(queue=6)}
        assert len(await bench.take(3, limits=limits)) == 3
        await bench.put(*(f"y{number}" for number in range(10)), template=replace(ITEM, limit_key="y"))
        assert [item.id for item in await bench.take(limits=limits)] == ["y0", "y1", "y2"]

    async def test_12_of_one_key_the_urgent_are_first(self, bench: Bench) -> None:
        await bench.put("old", "older", template=replace(ITEM, limit_key="x"))
        await bench.put("urgent", template=replace(ITEM, limit_key="x", priority=1))
        assert [item.id for item in await bench.take(limits=ONE_EACH)] == ["urgent"]

    async def test_12_names_queues_and_limits_bound_one_fetch_together(self, bench: Bench) -> None:
        for name in ("slow", "fast"):
            template = replace(ITEM, name=name, limit_key="x")
            await bench.put(*(f"{name}{number}" for number in range(5)), template=template)
        taken = await bench.take(names=["slow", "fast"], most={"slow": 1}, limits={"q": Limit(per_key=3)})
        assert sorted(item.id for item in taken) == ["fast0", "fast1", "slow0"]

    async def test_12_a_limit_does_not_break_the_order_of_an_order_key(self, bench: Bench) -> None:
        await bench.put("a", "b", "c", template=replace(ITEM, order_key="o", limit_key="x"))
        order = []
        for _ in range(3):
            (item,) = await bench.take(limits={"q": Limit(queue=5, per_key=5)})
            order.append(item.id)
            await bench.provider.settle([Ack(item.token)])
        assert order == ["a", "b", "c"]

    @pytest.mark.parametrize("limits", [ONE, ONE_EACH], ids=["queue", "key"])
    @pytest.mark.parametrize("freed", ["ack", "bury", "abandon", "release"])
    async def test_01_a_blocked_fetch_ends_when_a_place_is_freed(
        self, bench: Bench, limits: dict[str, Limit], freed: str
    ) -> None:
        await bench.put("a", "b", template=replace(ITEM, limit_key="x"))
        (item,) = items_of(await bench.fetch(by="first", limits=limits))
        fetching = bench.begin_fetch(60, limits=limits)
        await bench.advance(5)
        assert not fetching.done()
        match freed:
            case "ack":
                await bench.provider.settle([Ack(item.token)])
            case "bury":
                await bench.provider.settle([Bury(item.token, "bad")])
            case "abandon":
                await bench.provider.settle([Abandon(item.token, timedelta(hours=1))])
            case _:
                await bench.provider.release("first")
        assert ids_of(await bench.ended(fetching)) == (["a"] if freed == "release" else ["b"])

    @pytest.mark.parametrize("name", ["n", "other"])
    async def test_01_a_blocked_fetch_ends_when_the_lock_of_a_place_expires(
        self, bench: Bench, name: str
    ) -> None:
        await bench.put("a", name=name)
        await bench.take(lock=timedelta(seconds=9), names=[name])
        await bench.put("b")
        fetching = bench.begin_fetch(60, limits=ONE)
        await bench.advance(8.9)
        assert not fetching.done()
        await bench.advance(0.1 + bench.slack)
        assert len(ids_of(await bench.ended(fetching))) == 1
