"""How fetches wait at SQS, what becomes of a receive that nobody waits for any more, and what an idle worker asks."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bide.errors import ProviderError, Unsupported
from bide.provider import Abandon, Ack, Bury, Empty, Limit, WorkItem
from bide.providers.sqs.enqueueing import PartlySent
from bide.testing.conformance.bench import ITEM, LOCK, ids_of, items_of
from tests.providers.sqs_bench import SqsBench

_15_S = 15.0


async def test_the_lock_starts_when_items_are_taken(sqs_bench: SqsBench) -> None:
    fetching = sqs_bench.begin_fetch(wait=60)
    await sqs_bench.advance(_15_S)
    await sqs_bench.put("a")
    (item,) = items_of(await sqs_bench.ended(fetching))
    await sqs_bench.advance(LOCK.total_seconds() - 1)
    assert await sqs_bench.take() == []
    assert await sqs_bench.provider.settle([Ack(item.token)]) == ["settled"]


async def test_a_lock_that_is_renewed_ends_no_wait(sqs_bench: SqsBench) -> None:
    await sqs_bench.put("a")
    (item,) = await sqs_bench.take(lock=timedelta(seconds=6))
    fetching = sqs_bench.begin_fetch(wait=20)
    for _ in range(3):
        await sqs_bench.advance(5)
        assert await sqs_bench.provider.renew([item.token], timedelta(seconds=6)) == [True]
        assert not fetching.done()
    assert await sqs_bench.provider.settle([Ack(item.token)]) == ["settled"]


async def test_a_fetch_waits_for_one_receive_whatever_its_poll_timeout(sqs_bench: SqsBench) -> None:
    before = sqs_bench.sqs.requests().get("receive", 0)
    fetching = sqs_bench.begin_fetch(wait=30)
    await sqs_bench.advance(19.9)
    assert not fetching.done()
    await sqs_bench.advance(0.2)
    assert await sqs_bench.ended(fetching) == Empty(blocked=True)
    assert sqs_bench.sqs.requests()["receive"] - before == 1


async def test_an_idle_worker_asks_three_times_a_minute_for_each_queue(sqs_bench: SqsBench) -> None:
    await sqs_bench.take(queues=["p", "q"])  # both are known
    before = dict(sqs_bench.sqs.requests())
    began = sqs_bench.now_ms()
    while sqs_bench.now_ms() < began + 10 * 60_000:  # as the dispatcher does: again as soon as one has ended
        fetching = sqs_bench.begin_fetch(wait=30, queues=["p", "q"])
        while not fetching.done():
            await sqs_bench.advance(5)
        assert await fetching == Empty(blocked=True)
    asked = {key: count - before.get(key, 0) for key, count in sqs_bench.sqs.requests().items()}
    assert asked["receive"] <= 2 * 31
    assert sum(asked.values()) == asked["receive"]


async def test_a_receive_that_nobody_waits_for_serves_the_next_fetch(sqs_bench: SqsBench) -> None:
    fetching = sqs_bench.begin_fetch(wait=20)
    await sqs_bench.advance(1)
    before = sqs_bench.sqs.requests()["receive"]
    await sqs_bench.provider.wake()
    assert await sqs_bench.ended(fetching) == Empty(blocked=True)
    fetching = sqs_bench.begin_fetch(wait=20)
    await sqs_bench.advance(1)
    await sqs_bench.put("a")
    assert ids_of(await sqs_bench.ended(fetching)) == ["a"]
    assert sqs_bench.sqs.requests()["receive"] == before


async def test_what_a_receive_brings_for_nobody_is_given_back_uncounted(sqs_bench: SqsBench) -> None:
    """FAULTS 39: a receive in flight at a stop."""
    fetching = sqs_bench.begin_fetch(wait=20)
    await sqs_bench.advance(1)
    fetching.cancel()
    await asyncio.wait({fetching})
    await sqs_bench.put(*(f"i{number}" for number in range(10)))
    await sqs_bench.shut(sqs_bench.sqs)
    async with sqs_bench.another() as other:
        taken = items_of(await sqs_bench.fetch(20, on=other))
    assert sorted(item.id for item in taken) == [f"i{number}" for number in range(10)]
    assert {(item.attempt, item.deaths, item.given_back) for item in taken} == {(1, 0, 0)}


async def test_several_queues_are_waited_for_at_once(sqs_bench: SqsBench) -> None:
    fetching = sqs_bench.begin_fetch(wait=20, queues=["p", "q", "r"])
    await sqs_bench.advance(2)
    await sqs_bench.put("a", queue="r")
    assert ids_of(await sqs_bench.ended(fetching)) == ["a"]


async def test_a_long_handler_that_renews_is_the_only_one(sqs_bench: SqsBench) -> None:
    """FAULTS 25, through another object's thread and loop (FAULTS 26)."""
    await sqs_bench.put("a")
    (item,) = await sqs_bench.take()
    for _ in range(9):
        await sqs_bench.advance(LOCK.total_seconds() / 3)
        assert await sqs_bench.take() == []
        elsewhere = asyncio.to_thread(asyncio.run, _renew(sqs_bench, item.token))
        assert await elsewhere == [True]
    assert await sqs_bench.provider.settle([Ack(item.token)]) == ["settled"]


async def test_a_lock_ends_twelve_hours_after_its_receive(sqs_bench: SqsBench) -> None:
    await sqs_bench.put("a")
    hour = timedelta(hours=1)
    (item,) = await sqs_bench.take(lock=hour)
    for _ in range(11):
        await sqs_bench.advance(3590)
        assert await sqs_bench.provider.renew([item.token], hour) == [True]
    await sqs_bench.advance(3590)
    assert await sqs_bench.provider.renew([item.token], hour) == [False]
    with pytest.raises(ProviderError, match="12h are the most"):
        await sqs_bench.take(lock=timedelta(hours=13))


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
async def test_a_workers_clock_does_not_count(sqs_bench: SqsBench, ahead: float) -> None:
    async with sqs_bench.another(ahead=ahead) as skewed:
        template = replace(ITEM, id="a", at=sqs_bench.now_ms() + 10_000, within=timedelta(minutes=10))
        await skewed.enqueue([template])
        assert (await sqs_bench.item("a")).visible_at == sqs_bench.now_ms() + 10_000
        await sqs_bench.advance(10)
        (item,) = items_of(await sqs_bench.fetch(on=skewed))
        assert item.expires_at == item.enqueued_at + 600_000 == sqs_bench.now_ms() + 590_000
        await skewed.settle([Abandon(item.token, timedelta(hours=1), "later")])
        await sqs_bench.advance(3600)
        assert items_of(await sqs_bench.fetch(on=skewed)) == []
        assert (await sqs_bench.item("a")).error == "not done within 10m: later"


@pytest.mark.parametrize(("minutes", "every"), [(18, 1), (300, 5), (1200, 20)])
async def test_a_retry_may_wait_for_longer_than_sqs_delays_a_message(
    sqs_bench: SqsBench, minutes: int, every: int
) -> None:
    await sqs_bench.put("a")
    (item,) = await sqs_bench.take()
    await sqs_bench.provider.settle([Abandon(item.token, timedelta(minutes=minutes), "later")])
    for _ in range(minutes // every - 1):  # a worker that looks now and then
        await sqs_bench.advance(every * 60)
        assert await sqs_bench.take() == []
    await sqs_bench.advance(every * 60)
    (again,) = await sqs_bench.take()
    assert (again.attempt, again.deaths, again.given_back) == (2, 0, 0)


async def test_names_that_nobody_handles_are_passed_on_ever_less_often(
    sqs_bench: SqsBench, caplog: pytest.LogCaptureFixture
) -> None:
    await sqs_bench.put("stray", name="other")
    for _ in range(60):
        await sqs_bench.advance(60)
        with caplog.at_level(logging.WARNING, "bide.sqs"):
            assert await sqs_bench.take() == []
    requests = sqs_bench.sqs.requests()
    assert requests["send"] - 1 <= 16  # 1 s, 2 s, 4 s … 15 minutes
    assert requests["send"] - 1 == requests["delete"]
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the queue q holds items named other, which this worker does not handle"
    ]
    (item,) = await _whenever_it_comes(sqs_bench, "other")
    assert (item.attempt, item.deaths, item.given_back) == (1, 0, 0)


async def test_what_somebody_else_sent_is_reported_and_buried_and_blocks_nobody(sqs_bench: SqsBench) -> None:
    await sqs_bench.put("a")
    session = await sqs_bench.sqs.sessions.session()
    queue = await session.queue(sqs_bench.name)
    await session.call("send_message", QueueUrl=queue.url, MessageBody="hello")
    good, strange = await sqs_bench.take()
    assert (good.id, good.unreadable) == ("a", None)
    assert (strange.name, strange.payload, strange.attempt) == ("n", "", 1)
    assert strange.unreadable
    await sqs_bench.provider.settle([Abandon(strange.token, timedelta(), "?")])
    (again,) = await sqs_bench.take()
    assert (again.id, again.attempt) == (strange.id, 2)
    assert await sqs_bench.provider.settle([Bury(again.token, "no item")]) == ["settled"]
    (dead,) = await sqs_bench.provider.items("q", states=["dead"])
    assert (dead.id, dead.payload, dead.error) == (strange.id, "hello", "no item")
    assert await sqs_bench.provider.requeue([strange.id]) == [strange.id]
    assert [one["Body"] for one in await sqs_bench.messages() if "hello" in one["Body"]] == ["hello"]


async def test_what_sqs_cannot_keep_is_refused_before_anything_is_sent(sqs_bench: SqsBench) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"key": "k"}, "keys"),
        ({"keep_result": timedelta(1)}, "keep results"),
        ({"order_key": "o"}, "in order"),
        ({"priority": 1}, "urgent"),
        ({"delay": timedelta(minutes=15, milliseconds=1)}, "15m at most"),
        ({"at": sqs_bench.now_ms() + 901_000}, "15m1s.*15m at most"),
        ({"payload": "x" * 1_048_576}, r"10\d+ bytes as a message.*keeps 1044480"),
        ({"queue": "q.fifo"}, "FIFO"),
        ({"queue": "no/name"}, "letters"),
    ]
    for change, said in refused:
        with pytest.raises(ProviderError, match=said) as raised:
            await sqs_bench.provider.enqueue([replace(ITEM, id="good"), replace(ITEM, id="bad", **change)])
        assert not raised.value.retryable
    with pytest.raises(Unsupported, match="limit what runs"):
        await sqs_bench.fetch(limits={"q": Limit(queue=1)})
    assert await sqs_bench.messages() == []


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # of the client, above 1 MiB
async def test_the_largest_item_can_fail_and_be_buried(sqs_bench: SqsBench) -> None:
    size = 1_048_576 - 4096 - 80
    await sqs_bench.provider.enqueue([replace(ITEM, id="a", payload="x" * size, max_attempts=2)])
    for error in ("é" * 3000, "y" * 3000):
        (item,) = await sqs_bench.take()
        await sqs_bench.provider.settle([Abandon(item.token, timedelta(), error)])
    assert (await sqs_bench.item("a")).state == "dead"


async def test_many_items_are_sent_in_tens(sqs_bench: SqsBench) -> None:
    await sqs_bench.put("first")
    before = dict(sqs_bench.sqs.requests())
    await sqs_bench.put(*(f"i{number}" for number in range(95)))
    taken = await sqs_bench.take(96)
    assert len({item.id for item in taken}) == 96
    assert await sqs_bench.provider.settle([Ack(item.token) for item in taken]) == ["settled"] * 96
    asked = {key: count - before.get(key, 0) for key, count in sqs_bench.sqs.requests().items()}
    assert (asked["send"], asked["delete"]) == (10, 10)
    assert asked["receive"] <= 13


async def test_counts_and_the_dead_are_what_can_be_seen(sqs_bench: SqsBench) -> None:
    await sqs_bench.put("a", "b", "c", "d")
    await sqs_bench.put("later", template=replace(ITEM, delay=timedelta(minutes=1)))
    first, second, _ = await sqs_bench.take(3)
    await sqs_bench.provider.settle([Bury(first.token, "bad"), Bury(second.token, "worse")])
    (counts,) = await sqs_bench.provider.counts()
    assert (counts.queue, counts.ready, counts.running, counts.dead, counts.oldest_ms) == ("q", 2, 1, 2, None)
    for _ in range(2):  # looking leaves them as they were
        dead = await sqs_bench.provider.items("q", states=["dead"])
        assert {row.id: row.error for row in dead} == {"a": "bad", "b": "worse"}
    assert [row.id for row in await sqs_bench.provider.items("q", states=["dead"], after=dead[0].id)] == [
        dead[1].id
    ]
    row = await sqs_bench.provider.item("a")
    assert row is not None
    assert (row.state, row.attempts) == ("dead", 1)
    with pytest.raises(Unsupported, match="only dead ones can be seen"):
        await sqs_bench.provider.item("d")
    assert await sqs_bench.provider.purge("q", states=["dead"], limit=1) == 1
    assert await sqs_bench.provider.purge("q", states=["ready"]) == 1
    assert sorted((await sqs_bench.states()).values()) == ["dead", "ready", "running"]


def test_an_error_says_what_was_sent() -> None:
    error = PartlySent([f"i{number}" for number in range(12)], 20, ProviderError("slower", retryable=True))
    assert error.retryable
    assert str(error).startswith("slower; 12 of 20 items were sent (i0, i1, ")


async def _renew(bench: SqsBench, token: str) -> list[bool]:
    return await bench.provider.renew([token], LOCK)


async def _whenever_it_comes(bench: SqsBench, name: str) -> list[WorkItem]:
    for _ in range(16):
        await bench.advance(60)
        if items := await bench.take(names=[name]):
            return items
    raise AssertionError("it did not come within 15 minutes")
