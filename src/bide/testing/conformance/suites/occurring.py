"""Instants of schedules, each of which happens once over the whole fleet."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bide.errors import KeyConflict
from bide.provider import Enqueued
from bide.testing.conformance.bench import ITEM, Bench, ids_of


class OccurringSuite:
    """``occurred`` and ``occur``."""

    async def test_a_new_schedule_begins_where_it_is_told(self, bench: Bench) -> None:
        assert await bench.provider.occurred({"a": ("hourly", 1000), "b": ("daily", 2000)}) == {
            "a": 1000,
            "b": 2000,
        }
        assert await bench.provider.occurred({"a": ("hourly", 5000)}) == {"a": 1000}
        assert await bench.provider.occurred({}) == {}

    async def test_another_rule_begins_anew(self, bench: Bench) -> None:
        await bench.provider.occurred({"a": ("hourly", 1000), "b": ("hourly", 1000)})
        await bench.provider.occur("a", 7000, replace(ITEM, id="i"))
        assert await bench.provider.occurred({"a": ("daily", 9000)}) == {"a": 9000}
        assert await bench.provider.occurred({"a": ("daily", 9999), "b": ("hourly", 9999)}) == {
            "a": 9000,
            "b": 1000,
        }

    async def test_an_instant_happens_once(self, bench: Bench) -> None:
        await bench.provider.occurred({"a": ("hourly", 1000)})
        assert await bench.provider.occur("a", 2000, replace(ITEM, id="first"))
        assert not await bench.provider.occur("a", 2000, replace(ITEM, id="again"))
        assert not await bench.provider.occur("a", 1500, replace(ITEM, id="earlier"))
        assert not await bench.provider.occur("a", 1000, replace(ITEM, id="begin"))
        assert await bench.provider.occur("a", 2001, replace(ITEM, id="second"))
        assert await bench.provider.occurred({"a": ("hourly", 0)}) == {"a": 2001}
        assert await bench.states() == {"second": "ready", "first": "ready"}

    async def test_of_many_at_one_moment_one_makes_it_happen(self, bench: Bench) -> None:
        await bench.provider.occurred({"a": ("hourly", 1000)})
        async with bench.another() as other:
            happened = await asyncio.gather(
                *(
                    (bench.provider, other)[at % 2].occur("a", 2000, replace(ITEM, id=f"i{at}"))
                    for at in range(10)
                )
            )
        assert happened.count(True) == 1
        assert list(await bench.states()) == [f"i{happened.index(True)}"]

    async def test_many_begin_a_schedule_at_one_moment(self, bench: Bench) -> None:
        async with bench.another() as other:
            answers = await asyncio.gather(
                *((bench.provider, other)[at % 2].occurred({"a": ("hourly", 1000 + at)}) for at in range(10))
            )
        assert len({answer["a"] for answer in answers}) == 1

    async def test_an_instant_whose_item_conflicts_has_not_happened(self, bench: Bench) -> None:
        await bench.put("holder", template=replace(ITEM, key="k"))
        await bench.provider.occurred({"a": ("hourly", 1000)})
        with pytest.raises(KeyConflict):
            await bench.provider.occur("a", 2000, replace(ITEM, id="i", key="k", payload="[]"))
        assert await bench.provider.occurred({"a": ("hourly", 0)}) == {"a": 1000}
        assert await bench.provider.occur("a", 2000, replace(ITEM, id="i"))

    async def test_an_instant_whose_item_is_there_already_has_happened(self, bench: Bench) -> None:
        await bench.put("holder", template=replace(ITEM, key="k"))
        await bench.provider.occurred({"a": ("hourly", 1000)})
        assert await bench.provider.occur("a", 2000, replace(ITEM, id="i", key="k"))
        assert await bench.provider.occurred({"a": ("hourly", 0)}) == {"a": 2000}
        assert await bench.states() == {"holder": "ready"}

    async def test_schedules_do_not_meet(self, bench: Bench) -> None:
        await bench.provider.occurred({"a": ("hourly", 1000), "b": ("hourly", 1000)})
        assert await bench.provider.occur("a", 2000, replace(ITEM, id="a"))
        assert await bench.provider.occur("b", 2000, replace(ITEM, id="b"))

    async def test_schedules_outlive_a_restart(self, bench: Bench) -> None:
        await bench.provider.occurred({"a": ("hourly", 1000)})
        await bench.provider.occur("a", 2000, replace(ITEM, id="i"))
        await bench.reopen()
        assert await bench.provider.occurred({"a": ("hourly", 0)}) == {"a": 2000}
        assert await bench.provider.enqueue([replace(ITEM, id="i")]) == [Enqueued("i", new=False)]

    async def test_01_a_blocked_fetch_ends_when_an_instant_happens(self, bench: Bench) -> None:
        await bench.provider.occurred({"a": ("hourly", 1000)})
        fetching = bench.begin_fetch(60)
        await bench.advance(1)
        await bench.provider.occur("a", 2000, replace(ITEM, id="i"))
        assert ids_of(await bench.ended(fetching)) == ["i"]
