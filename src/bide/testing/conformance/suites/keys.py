"""Promise 10: a key makes enqueueing idempotent, atomically."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from bide.errors import KeyConflict
from bide.provider import KEY_KEPT, Abandon, Ack, Bury, Enqueued
from bide.testing.conformance.bench import ITEM, KEPT, LOCK, Bench

_KEYED = replace(ITEM, key="k")
_OTHER = replace(_KEYED, payload="[]")
_DAY_S = KEY_KEPT.total_seconds()


class KeysSuite:
    """Enqueueing the same thing again."""

    async def test_10_enqueueing_says_what_became_of_each_item(self, bench: Bench) -> None:
        new = [replace(ITEM, id="b"), replace(ITEM, id="a")]
        assert await bench.provider.enqueue(new) == [Enqueued("b", new=True), Enqueued("a", new=True)]
        again = [replace(ITEM, id="c"), replace(ITEM, id="a"), replace(ITEM, id="c")]
        assert await bench.provider.enqueue(again) == [
            Enqueued("c", new=True),
            Enqueued("a", new=False),
            Enqueued("c", new=False),
        ]
        assert await bench.provider.enqueue([]) == []

    async def test_10_the_same_key_and_payload_is_the_same_item(self, bench: Bench) -> None:
        assert await bench.provider.enqueue([replace(_KEYED, id="a")]) == [Enqueued("a", new=True)]
        before = await bench.item("a")
        assert before.key == "k"
        again = replace(_KEYED, id="b", priority=9, delay=LOCK)
        assert await bench.provider.enqueue([again]) == [Enqueued("a", new=False)]
        assert await bench.provider.items("q") == [before]

    async def test_10_the_same_key_and_another_payload_is_an_error(self, bench: Bench) -> None:
        await bench.put("a", template=_KEYED)
        with pytest.raises(KeyConflict) as raised:
            await bench.provider.enqueue([replace(ITEM, id="free"), replace(_OTHER, id="b")])
        error = raised.value
        assert (error.queue, error.name, error.key, error.item) == ("q", "n", "k", "a")
        assert await bench.states() == {"a": "ready"}

    async def test_10_a_key_counts_within_one_batch(self, bench: Bench) -> None:
        batch = [replace(_KEYED, id="a"), replace(ITEM, id="free"), replace(_KEYED, id="b")]
        assert await bench.provider.enqueue(batch) == [
            Enqueued("a", new=True),
            Enqueued("free", new=True),
            Enqueued("a", new=False),
        ]
        with pytest.raises(KeyConflict, match="'l'"):
            await bench.provider.enqueue([replace(_KEYED, id="x", key="l"), replace(_OTHER, id="y", key="l")])
        assert sorted(await bench.states()) == ["a", "free"]

    async def test_10_what_is_another_item_does_not_take_its_own_id(self, bench: Bench) -> None:
        batch = [replace(_KEYED, id="a"), replace(_KEYED, id="b"), replace(ITEM, id="b")]
        assert await bench.provider.enqueue(batch) == [
            Enqueued("a", new=True),
            Enqueued("a", new=False),
            Enqueued("b", new=True),
        ]
        known = [replace(_KEYED, id="b", key="l"), replace(_KEYED, id="c", key="l")]
        assert await bench.provider.enqueue(known) == [Enqueued("b", new=False), Enqueued("c", new=True)]
        assert {row.id: row.key for row in await bench.provider.items("q")} == {"a": "k", "b": None, "c": "l"}

    async def test_10_a_key_is_of_one_queue_and_name(self, bench: Bench) -> None:
        others = [
            replace(_KEYED, id="a"),
            replace(_OTHER, id="b", queue="p"),
            replace(_OTHER, id="c", name="m"),
            replace(_OTHER, id="d", key="K"),
        ]
        assert await bench.provider.enqueue(others) == [Enqueued(item.id, new=True) for item in others]

    @pytest.mark.parametrize("key", ["", " ", "é🙂", "a'b\"\\", "x" * 500, "nul\x00"])
    async def test_10_any_text_is_a_key(self, bench: Bench, key: str) -> None:
        await bench.put("a", template=replace(_KEYED, key=key))
        assert (await bench.item("a")).key == key
        assert await bench.provider.enqueue([replace(_KEYED, id="b", key=key)]) == [Enqueued("a", new=False)]
        assert await bench.provider.enqueue([replace(_KEYED, id="c", key=f"{key}.")]) == [
            Enqueued("c", new=True)
        ]

    async def test_10_a_key_is_kept_however_long_its_item_lives(self, bench: Bench) -> None:
        await bench.put("a", template=_KEYED)
        await bench.advance(40 * _DAY_S)
        await bench.provider.prune(timedelta())
        assert await bench.provider.enqueue([replace(_KEYED, id="b")]) == [Enqueued("a", new=False)]
        await bench.take()
        assert await bench.provider.enqueue([replace(_KEYED, id="b")]) == [Enqueued("a", new=False)]

    @pytest.mark.parametrize("end", ["ack", "bury"])
    async def test_10_a_key_is_free_again_a_day_after_its_item_ended(self, bench: Bench, end: str) -> None:
        await bench.put("a", template=_KEYED)
        (item,) = await bench.take()
        await bench.provider.settle([Ack(item.token) if end == "ack" else Bury(item.token, "bad")])
        await bench.advance(_DAY_S - 1)
        await bench.provider.prune(timedelta())
        assert await bench.provider.enqueue([replace(_KEYED, id="b")]) == [Enqueued("a", new=False)]
        with pytest.raises(KeyConflict):
            await bench.provider.enqueue([replace(_OTHER, id="b")])
        await bench.advance(1)
        assert await bench.provider.enqueue([replace(_OTHER, id="b")]) == [Enqueued("b", new=True)]
        assert await bench.provider.enqueue([replace(_OTHER, id="c")]) == [Enqueued("b", new=False)]
        assert (await bench.item("b")).key == "k"

    async def test_10_a_free_key_can_be_taken_with_nobody_pruning(self, bench: Bench) -> None:
        await bench.put("a", template=_KEYED)
        (item,) = await bench.take()
        await bench.provider.settle([Bury(item.token, "bad")])
        await bench.advance(_DAY_S)
        await bench.put("b", template=_OTHER)
        assert await bench.states() == {"a": "dead", "b": "ready"}
        assert await bench.provider.requeue(["a"]) == ["a"]  # it lives again, and its key is another's now
        assert (await bench.item("a")).key is None
        assert await bench.provider.enqueue([replace(_OTHER, id="c")]) == [Enqueued("b", new=False)]

    async def test_10_a_requeued_item_has_its_key_again(self, bench: Bench) -> None:
        await bench.put("a", template=_KEYED)
        (item,) = await bench.take()
        await bench.provider.settle([Ack(item.token)])
        await bench.advance(_DAY_S - 1)
        assert await bench.provider.requeue(["a"]) == ["a"]
        await bench.advance(2 * _DAY_S)
        assert await bench.provider.enqueue([replace(_KEYED, id="b")]) == [Enqueued("a", new=False)]
        assert [item.id for item in await bench.take()] == ["a"]

    async def test_10_pruning_frees_the_key_of_what_is_done(self, bench: Bench) -> None:
        await bench.put("a", template=_KEYED)
        (item,) = await bench.take()
        await bench.provider.settle([Ack(item.token)])
        assert await bench.states() == {"a": "done"}
        await bench.advance(_DAY_S + 1)
        assert (await bench.provider.prune(timedelta(days=30))).items == 1
        assert await bench.states() == {}

    async def test_10_a_result_and_a_key_are_kept_each_as_long_as_it_must(self, bench: Bench) -> None:
        await bench.put("short", template=replace(_KEYED, keep_result=timedelta(hours=1)))
        await bench.put("long", template=replace(_KEYED, key="l", keep_result=timedelta(days=3)))
        items = await bench.take()
        await bench.provider.settle([Ack(item.token, "r") for item in items])
        await bench.advance(7200)
        assert (await bench.provider.prune(timedelta(days=30))).items == 0
        await bench.advance(_DAY_S)
        assert (await bench.provider.prune(timedelta(days=30))).items == 1
        assert await bench.states() == {"long": "done"}
        await bench.put("other", template=replace(_OTHER, key="l"))
        assert (await bench.provider.prune(timedelta(days=30))).items == 0
        row = await bench.provider.item("long")
        assert row is not None
        assert (row.result, row.key) == ("r", None)

    async def test_10_an_ack_whose_items_conflict_changes_nothing(self, bench: Bench) -> None:
        await bench.put("holder", template=_KEYED)
        await bench.put("a", "b", template=replace(KEPT, name="m"))
        first, second = await bench.take(names=["m"])
        conflicting = (replace(ITEM, id="child"), replace(_OTHER, id="late"))
        with pytest.raises(KeyConflict):
            await bench.provider.settle([Ack(first.token), Ack(second.token, enqueue=conflicting)])
        assert await bench.states() == {"holder": "ready", "a": "running", "b": "running"}
        same = (replace(_KEYED, id="late"),)
        assert await bench.provider.settle([Ack(first.token), Ack(second.token, enqueue=same)]) == [
            "settled",
            "settled",
        ]
        assert await bench.states() == {"holder": "ready", "a": "done", "b": "done"}

    async def test_10_a_stale_ack_claims_no_key(self, bench: Bench) -> None:
        await bench.put("a")
        (item,) = await bench.take()
        await bench.provider.settle([Abandon(item.token, timedelta())])
        assert await bench.provider.settle([Ack(item.token, enqueue=(replace(_KEYED, id="x"),))]) == ["stale"]
        assert await bench.provider.enqueue([replace(_OTHER, id="y")]) == [Enqueued("y", new=True)]

    async def test_10_of_many_enqueued_at_once_one_is_kept(self, bench: Bench) -> None:
        async with bench.another() as other:
            enqueued = await asyncio.gather(
                *(
                    (bench.provider, other)[number % 2].enqueue([replace(_KEYED, id=f"i{number}")])
                    for number in range(20)
                )
            )
        became = [one for (one,) in enqueued]
        assert len({one.id for one in became}) == 1
        assert [one.new for one in became].count(True) == 1
        assert list(await bench.states()) == [became[0].id]

    async def test_10_of_many_payloads_at_once_one_has_the_key(self, bench: Bench) -> None:
        items = [replace(_KEYED, id=f"i{number}", payload=str(number)) for number in range(10)]
        async with bench.another() as other:
            results = await asyncio.gather(
                *((bench.provider, other)[at % 2].enqueue([item]) for at, item in enumerate(items)),
                return_exceptions=True,
            )
        kept = [one for result in results if isinstance(result, list) for one in result]
        conflicts = [result for result in results if isinstance(result, KeyConflict)]
        assert (len(kept), len(conflicts)) == (1, 9)
        assert {conflict.item for conflict in conflicts} == {kept[0].id}
        assert list(await bench.states()) == [kept[0].id]

    async def test_10_a_conflict_leaves_what_others_enqueue_alone(self, bench: Bench) -> None:
        await bench.put("holder", template=_KEYED)
        results = await asyncio.gather(
            bench.provider.enqueue([replace(ITEM, id="a")]),
            bench.provider.enqueue([replace(_OTHER, id="b"), replace(ITEM, id="c")]),
            bench.provider.enqueue([replace(_KEYED, id="d"), replace(ITEM, id="e")]),
            return_exceptions=True,
        )
        assert results[0] == [Enqueued("a", new=True)]
        assert isinstance(results[1], KeyConflict)
        assert results[2] == [Enqueued("holder", new=False), Enqueued("e", new=True)]
        assert sorted(await bench.states()) == ["a", "e", "holder"]
