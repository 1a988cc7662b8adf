"""Several workers on one store: what they share, what their clocks say, and what the dead among them leave."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from bide.provider import (
    Abandon,
    Ack,
    Bury,
    Contended,
    Empty,
    Limit,
    Provider,
    Schedule,
    Settlement,
    WorkItem,
)
from bide.testing.conformance.bench import ITEM, KEPT, LOCK, MINUTE, Bench, ids_of, items_of

_LOCK_S = LOCK.total_seconds()
_HOUR_S = 3600.0


class WorkersSuite:
    """Promises 1 to 9 where more than one asks."""

    async def test_01_of_two_blocked_fetches_one_gets_the_item(self, bench: Bench) -> None:
        async with bench.another() as other:
            fetches = [
                bench.begin_fetch(20, by="one"),
                bench.begin_fetch(20, by="two"),
                bench.begin_fetch(20, by="three", on=other),
            ]
            await bench.advance(1)
            await bench.put("a")
            await bench.advance(19 + bench.slack)
            answers = [await bench.ended(fetching) for fetching in fetches]
        assert sorted(ids_of(answer) for answer in answers) == [[], [], ["a"]]
        assert all(isinstance(answer, Empty) and answer.blocked for answer in answers if not items_of(answer))
        assert (await bench.item("a")).attempts == 1

    async def test_01_two_blocked_fetches_share_what_comes(self, bench: Bench) -> None:
        async with bench.another() as other:
            fetches = [bench.begin_fetch(20, by="one"), bench.begin_fetch(20, by="two", on=other)]
            await bench.advance(1)
            await bench.put(*(f"i{number}" for number in range(40)))
            taken = [id for fetching in fetches for id in ids_of(await bench.ended(fetching))]
            assert len(taken) == len(set(taken)) == 20

    @pytest.mark.parametrize(
        "does", ["enqueue", "delay", "commit", "occur", "abandon", "release", "requeue", "free", "unblock"]
    )
    async def test_01_a_blocked_fetch_hears_of_what_other_objects_do(self, bench: Bench, does: str) -> None:
        """A place that is freed too, by one that has fetched with the same limit."""
        limits = {"q": Limit(queue=1)} if does == "free" else None
        before = ["a", "b"] if does in {"free", "unblock"} else ["a"]
        keyed = replace(KEPT, order_key="k" if does == "unblock" else None)
        async with bench.another() as other:
            if does in {"abandon", "release", "requeue", "free", "unblock"}:
                await bench.put(*before, template=keyed)
            items = items_of(await bench.fetch(1, by="theirs", limits=limits, on=other))
            if does == "requeue":
                await other.settle([Ack(items[0].token)])
            if does == "occur":
                await other.occurred({"s": ("hourly", 1)})
            fetching = bench.begin_fetch(60, limits=limits)
            await bench.advance(3)
            assert not fetching.done()
            await _do(other, does, items)
            await bench.advance(1)
            assert ids_of(await bench.ended(fetching)) == before[-1:]

    async def test_04_empty_means_that_nothing_was_eligible(self, bench: Bench) -> None:
        await bench.put(*(f"i{number}" for number in range(12)))
        async with bench.another() as other:
            answers = await asyncio.gather(
                *(bench.fetch(1, by=f"f{at}", on=(bench.provider, other)[at % 2]) for at in range(12))
            )
        assert not [answer for answer in answers if isinstance(answer, Empty)]
        taken = [id for answer in answers for id in ids_of(answer)]
        assert len(taken) == len(set(taken))
        left = [item.id for item in await bench.take(12)]
        assert sorted([*taken, *left]) == sorted(f"i{number}" for number in range(12))

    async def test_04_who_loses_everything_to_others_is_told_so(self, bench: Bench) -> None:
        await bench.put("a")
        async with bench.another() as other:
            answers = await asyncio.gather(
                *(bench.fetch(by=f"f{at}", on=(bench.provider, other)[at % 2]) for at in range(10))
            )
        assert sorted(ids_of(answer) for answer in answers)[-2:] == [[], ["a"]]
        assert all(isinstance(answer, Empty | Contended) for answer in answers if not items_of(answer))

    async def test_05_each_item_goes_to_one_worker(self, bench: Bench) -> None:
        await bench.put(*(f"i{number}" for number in range(60)))

        async def work(number: int) -> list[str]:
            done: list[str] = []
            while items := await bench.take(3, on=workers[number % 2]):
                done += [item.id for item in items]
                assert await workers[number % 2].settle([Ack(item.token) for item in items]) == [
                    "settled" for _ in items
                ]
            return done

        async with bench.another() as other:
            workers = bench.provider, other
            done = await asyncio.gather(*(work(number) for number in range(6)))
        left = [item.id for item in await bench.take(60)]
        assert Counter([*(id for one in done for id in one), *left]) == Counter(
            f"i{number}" for number in range(60)
        )

    async def test_05_a_lock_can_be_renewed_and_settled_through_any_object(self, bench: Bench) -> None:
        await bench.put("a", template=KEPT)
        (item,) = await bench.take()
        async with bench.another() as other:
            await bench.advance(20)
            assert await other.renew([item.token], LOCK) == [True]
            await bench.advance(20)
            assert await other.settle([Ack(item.token)]) == ["settled"]
        assert await bench.provider.settle([Ack(item.token)]) == ["stale"]

    @pytest.mark.parametrize("kind", range(3))
    async def test_05_a_worker_thought_dead_that_ends_later_changes_nothing(
        self, bench: Bench, kind: int
    ) -> None:
        await bench.put("a", template=KEPT)
        (late,) = await bench.take()
        await bench.advance(_LOCK_S)
        async with bench.another() as other:
            (holder,) = items_of(await bench.fetch(on=other))
            assert await other.settle([Ack(holder.token, "theirs")]) == ["settled"]
        ends: list[Settlement] = [
            Ack(late.token, "mine", (replace(ITEM, id="child"),)),
            Abandon(late.token, timedelta(), "mine"),
            Bury(late.token, "mine"),
        ]
        assert await bench.provider.settle([ends[kind]]) == ["stale"]
        assert await bench.provider.renew([late.token], LOCK) == [False]
        row = await bench.item("a")
        assert (row.state, row.result, row.error) == ("done", "theirs", None)
        assert list(await bench.states()) == ["a"]

    async def test_05_a_long_handler_that_renews_is_the_only_one(self, bench: Bench) -> None:
        await bench.put("a")
        (item,) = await bench.take()
        async with bench.another() as other:
            for _ in range(9):
                await bench.advance(_LOCK_S / 3)
                assert await bench.fetch(on=other) != Empty()  # it says when the lock will be over
                assert not items_of(await bench.fetch(on=other))
                assert await bench.provider.renew([item.token], LOCK) == [True]
        assert await bench.provider.settle([Ack(item.token)]) == ["settled"]

    async def test_07_what_a_dead_worker_held_is_found_under_its_own_name_too(self, bench: Bench) -> None:
        await bench.put("a")
        (dead,) = items_of(await bench.fetch(by="host-1"))
        await bench.reopen()
        await bench.advance(_LOCK_S)
        (again,) = items_of(await bench.fetch(by="host-1"))
        assert (again.id, again.attempt, again.deaths) == ("a", 2, 1)
        assert await bench.provider.settle([Ack(dead.token)]) == ["stale"]
        assert await bench.provider.release("host-1") == 1

    async def test_07_release_gives_back_nothing_that_was_lost(self, bench: Bench) -> None:
        await bench.put("a")
        await bench.fetch(by="lost")
        await bench.advance(_LOCK_S)
        assert await bench.provider.release("lost") == 0
        (item,) = await bench.take()
        assert (item.attempt, item.deaths) == (2, 1)

    async def test_07_what_kills_every_worker_is_buried_though_nobody_holds_it(self, bench: Bench) -> None:
        good = [f"good{number}" for number in range(10)]
        await bench.put("killer", *good)
        done: list[str] = []
        for _ in range(20):  # one worker after the other, each taking all that it can
            async with bench.another() as worker:
                items = items_of(await bench.fetch(20, on=worker))
                if any(item.id == "killer" for item in items):
                    await bench.advance(_LOCK_S)
                    continue
                await worker.settle([Ack(item.token) for item in items])
                done += [item.id for item in items]
        assert sorted(done) == good
        row = await bench.item("killer")
        assert (row.state, row.error) == ("dead", "the worker died 3 times while handling it")
        assert await bench.provider.requeue(["killer"]) == ["killer"]
        (again,) = await bench.take()
        assert (again.attempt, again.deaths) == (1, 0)

    async def test_07_putting_off_uses_up_no_attempt_and_is_counted_apart(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, max_attempts=2))
        for count in range(50):
            (item,) = await bench.take()
            assert (item.attempt, item.given_back) == (1, count)
            await bench.provider.settle([Abandon(item.token, MINUTE, count_attempt=False)])
            await bench.advance(60)
        row = await bench.item("a")
        assert (row.attempts, row.given_back, row.deaths) == (0, 50, 0)
        (item,) = await bench.take()
        await bench.provider.settle([Abandon(item.token, timedelta(), "first")])
        (item,) = await bench.take()
        assert (item.attempt, item.given_back) == (2, 50)

    async def test_07_a_release_is_no_giving_back(self, bench: Bench) -> None:
        await bench.put("a", template=replace(ITEM, max_attempts=3))
        for _ in range(4):  # four times stopped in the middle, with three attempts allowed
            await bench.fetch(by="stopped")
            await bench.provider.release("stopped")
        (item,) = await bench.take()
        assert (item.attempt, item.given_back) == (1, 0)

    async def test_07_requeue_forgets_how_often_it_was_given_back(self, bench: Bench) -> None:
        await bench.put("a")
        (item,) = await bench.take()
        await bench.provider.settle([Abandon(item.token, timedelta(), count_attempt=False)])
        (item,) = await bench.take()
        await bench.provider.settle([Bury(item.token, "bad")])
        assert (await bench.item("a")).given_back == 1
        await bench.provider.requeue(["a"])
        assert (await bench.item("a")).given_back == 0

    @pytest.mark.parametrize("ahead", [_HOUR_S, -_HOUR_S])
    async def test_09_a_workers_clock_does_not_count(self, bench: Bench, ahead: float) -> None:
        async with bench.another(ahead=ahead) as skewed:
            template = replace(ITEM, delay=timedelta(seconds=10), within=timedelta(minutes=10))
            await skewed.enqueue([replace(template, id="a")])
            row = await bench.item("a")
            now = bench.now_ms()
            assert (row.enqueued_at, row.visible_at, row.expires_at) == (now, now + 10_000, now + 600_000)
            assert await bench.fetch(on=skewed) == Empty(timedelta(seconds=10))
            await bench.advance(10)
            (item,) = items_of(await bench.fetch(on=skewed))
            await bench.advance(_LOCK_S - 1)
            assert await bench.take() == []
            assert await skewed.renew([item.token], LOCK) == [True]
            await bench.advance(_LOCK_S - 1)
            assert await bench.take() == []
            await bench.advance(1)
            (again,) = await bench.take()
            assert await skewed.settle([Ack(item.token)]) == ["stale"]
            assert not items_of(await bench.fetch(on=skewed))
            assert await bench.provider.settle([Ack(again.token)]) == ["settled"]
            assert await skewed.now() == bench.now_ms()

    async def test_09_workers_of_different_clocks_call_a_poll_once(self, bench: Bench) -> None:
        schedules = [Schedule("eu.price", MINUTE)]
        async with bench.another(ahead=_HOUR_S) as ahead, bench.another(ahead=-_HOUR_S) as behind:
            for _ in range(4):
                claims = await asyncio.gather(
                    *(provider.claim_polls(schedules, 1) for provider in (bench.provider, ahead, behind))
                )
                (claim,) = [claim for one in claims for claim in one]
                await bench.answer(claim, 1)
                await bench.advance(90)

    async def test_09_a_key_is_free_by_the_stores_clock(self, bench: Bench) -> None:
        async with bench.another(ahead=48 * _HOUR_S) as ahead:
            await bench.put("a", template=replace(ITEM, key="k"))
            (item,) = await bench.take()
            await bench.provider.settle([Ack(item.token)])
            (enqueued,) = await ahead.enqueue([replace(ITEM, id="b", key="k")])
            assert (enqueued.id, enqueued.new) == ("a", False)


async def _do(provider: Provider, does: str, items: list[WorkItem]) -> None:
    """What makes something eligible, one second later at most."""
    match does:
        case "enqueue":
            await provider.enqueue([replace(ITEM, id="a")])
        case "delay":
            await provider.enqueue([replace(ITEM, id="a", delay=timedelta(seconds=0.9))])
        case "commit":
            async with provider.transaction() as transaction:
                await provider.enqueue_within(transaction, [replace(ITEM, id="a")])
        case "occur":
            await provider.occur("s", 2, replace(ITEM, id="a"))
        case "abandon":
            await provider.settle([Abandon(items[0].token, timedelta())])
        case "release":
            await provider.release("theirs")
        case "requeue":
            await provider.requeue(["a"])
        case _:
            await provider.settle([Ack(items[0].token)])
