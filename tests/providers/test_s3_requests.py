"""What S3 is asked, counted: an idle worker, an item from end to end, a trickle, a poll; and what is left."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta

import pytest

from bide import App
from bide.provider import Ack, Provider, Unchanged
from bide.providers.s3 import S3Provider
from bide.testing.conformance.bench import ITEM, LOCK, items_of
from tests.providers.s3_bench import S3Bench
from tests.providers.s3_server import S3Server

HOUR_S = 3600
POLL_S = 5


@pytest.fixture
async def bench(durable_s3_server: S3Server) -> AsyncIterator[S3Bench]:
    bench = S3Bench(durable_s3_server)
    await bench.open()
    yield bench
    await bench.close()


@pytest.fixture(autouse=True)
def apps_on_the_bench(bench: S3Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apps have providers whose instants are the bench's."""
    monkeypatch.setattr("bide.app.open_provider", lambda *_: bench.made(bench.clock))


class Meter:
    """Requests of some providers since it was made."""

    def __init__(self, *providers: Provider) -> None:
        self._providers = [provider for provider in providers if isinstance(provider, S3Provider)]
        self._before = self._now()

    def counts(self) -> Counter[str]:
        return self._now() - self._before

    def _now(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for provider in self._providers:
            counts.update(provider.requests())
        return counts


async def test_an_idle_worker_makes_one_get_a_poll_and_one_list_a_minute(bench: S3Bench) -> None:
    await bench.fetch()
    meter = Meter(bench.provider)
    for _ in range(HOUR_S // POLL_S):
        await bench.advance(POLL_S)
        await bench.fetch()
    counts = meter.counts()
    assert counts["GET"] <= HOUR_S // POLL_S
    assert counts["LIST"] <= HOUR_S // 60
    assert set(counts) == {"GET", "LIST"}


async def test_what_waits_for_its_instant_costs_an_idle_worker_nothing(bench: S3Bench) -> None:
    await bench.put("late", template=replace(ITEM, delay=timedelta(days=1)))
    await bench.put("foreign", name="other")
    await bench.fetch()
    meter = Meter(bench.provider)
    for _ in range(HOUR_S // POLL_S):
        await bench.advance(POLL_S)
        await bench.fetch()
    counts = meter.counts()
    assert counts["GET"] <= HOUR_S // POLL_S
    assert counts["LIST"] <= HOUR_S // 60
    assert counts["PUT"] + counts["HEAD"] <= 14  # the store's clock, every ten minutes


@pytest.mark.parametrize("count", [1, 20])
async def test_an_item_costs_at_most_eight_requests_from_end_to_end(bench: S3Bench, count: int) -> None:
    """Each submitted by itself, as by other processes; fetched and settled as they come."""
    async with bench.another() as submitter:
        await bench.fetch(count)
        await submitter.now()
        meter = Meter(bench.provider, submitter)
        for number in range(count):
            await submitter.enqueue([replace(ITEM, id=f"i{number}")])
        await bench.advance(1)
        items = await bench.take(count)
        assert len(items) == count
        await bench.provider.settle([Ack(item.token) for item in items])
        counts = meter.counts()
    assert counts.total() <= 8 * count
    if count > 1:
        assert counts.total() <= 5 * count
        assert counts["LIST"] <= 1


async def test_a_few_trickling_items_do_not_make_everyone_list(bench: S3Bench) -> None:
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(bench.another()) for _ in range(5)]
        submitter = await stack.enter_async_context(bench.another())
        for worker in workers:
            await bench.fetch(on=worker)
        meter = Meter(*workers)
        done: list[str] = []
        for number in range(20):
            await submitter.enqueue([replace(ITEM, id=f"i{number}")])
            for _ in range(3):
                await bench.advance(1)
                for worker in workers:
                    items = items_of(await bench.fetch(on=worker))
                    await worker.settle([Ack(item.token) for item in items])
                    done += [item.id for item in items]
        counts = meter.counts()
    assert sorted(done) == sorted(f"i{number}" for number in range(20))
    assert counts["LIST"] <= 5 * 2  # a minute passed: one each, and one more for the gap where it began
    assert counts["GET"] <= 5 * 60 + 5 * 20  # a poll each second, and at most one look at each item


async def test_a_worker_that_competes_reads_each_item_of_others_once_a_lock(bench: S3Bench) -> None:
    await bench.put(*(f"i{number}" for number in range(10)))
    async with bench.another() as other:
        assert len(items_of(await bench.fetch(on=other))) == 10
        await bench.fetch()
        meter = Meter(bench.provider)
        for _ in range(5):
            await bench.advance(LOCK.total_seconds() / 10)
            assert await bench.take() == []
        assert meter.counts()["GET"] == 5


async def test_an_unchanged_poll_is_two_writes(bench: S3Bench) -> None:
    await bench.change("eu.price", 1)
    for _ in range(2):
        await bench.advance(61)
        meter = Meter(bench.provider)
        (claim,) = await bench.claim("eu.price")
        assert isinstance(await bench.answer(claim, 1), Unchanged)
        counts = meter.counts()
        assert counts["PUT"] - counts["HEAD"] == 2  # but for the store's clock
        assert counts["GET"] == 0
        assert counts["LIST"] <= 1


async def test_a_changed_poll_costs_two_more_and_two_for_each_delivery(bench: S3Bench) -> None:
    await bench.subscribe("a", "b")
    await bench.change("eu.price", 1)
    await bench.advance(61)
    await bench.provider.now()
    (claim,) = await bench.claim("eu.price")
    meter = Meter(bench.provider)
    await bench.answer(claim, 2)
    counts = meter.counts()
    assert counts["PUT"] <= 1 + 1 + 2 * 2 + 1  # row, event, deliveries, marker
    assert counts["GET"] <= 2  # subscriptions, and the event before
    assert counts["LIST"] == 0


async def test_a_thousand_items_leave_only_what_the_layout_names(bench: S3Bench) -> None:
    for batch in range(10):
        await bench.put(*(f"i{batch}-{number}" for number in range(100)))
        for _ in range(2):
            items = await bench.take(50)
            await bench.provider.settle([Ack(item.token) for item in items])
    await bench.advance(600)
    await bench.provider.prune(timedelta(days=30))
    left = {one.key for one in await (await bench.bucket()).all("")}
    assert {key for key in left if not key.startswith("clock/")} == {"meta", "marker", "sweep"}
    assert len(left) <= 3 + 16


async def test_an_hour_of_an_idle_worker(bench: S3Bench) -> None:
    counts = await _idle_hour(bench, 1)
    assert counts["LIST"] <= 60
    assert counts["PUT"] <= 40  # the store's clock, and whose turn it is to look for what crashes left


async def test_an_hour_of_an_idle_fleet(bench: S3Bench) -> None:
    counts = await _idle_hour(bench, 3)
    assert counts["LIST"] <= 3 * 60
    assert counts["PUT"] <= 3 * 40


async def test_an_hour_of_an_idle_worker_beside_much_that_waits(bench: S3Bench) -> None:
    late = replace(ITEM, queue="default", name="nothing", delay=timedelta(days=1))
    for batch in range(11):
        await bench.provider.enqueue([replace(late, id=f"i{batch}-{number}") for number in range(100)])
    counts = await _idle_hour(bench, 1)
    assert counts["LIST"] <= 60


async def _idle_hour(bench: S3Bench, workers: int) -> Counter[str]:
    """What an hour of apps asks that have a worker each, upkeep and all, and nothing to do."""
    async with AsyncExitStack() as stack:
        apps = [_app(bench) for _ in range(workers)]
        for app in apps:
            await stack.enter_async_context(app.open())
        stopping = asyncio.Event()
        running = [asyncio.create_task(app.worker().run(stopping=stopping)) for app in apps]
        await bench.advance(60)
        meter = Meter(*(app.provider for app in apps))
        for _ in range(HOUR_S // 10):
            await bench.advance(10)
        counts = meter.counts()
        stopping.set()
        await asyncio.gather(*running)
    assert counts["GET"] <= workers * HOUR_S / (POLL_S * 0.9)  # the interval has a tenth of jitter
    assert counts["DELETE"] == 0
    return counts


def _app(bench: S3Bench) -> App:
    app = App(bench.s3_text, clock=bench.clock, environment={})

    @app.task
    async def nothing() -> None: ...

    return app
