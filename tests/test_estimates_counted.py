"""What is estimated of a store is what is counted of it, in virtual time: a new store joins with a line."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bide import App, Package
from bide.core.conditional import Validators
from bide.core.estimates import MONTH, PollLoad, Workload, estimate
from bide.core.pacing import PollingStrategy
from bide.core.requests import MODELS, Requests
from bide.provider import Answered, NewItem, Provider, Schedule
from bide.providers.redis import RedisProvider
from bide.testing import VirtualClock
from tests.providers import redis_server
from tests.providers.postgres_server import Server
from tests.providers.s3_bench import S3Bench
from tests.providers.s3_server import CREDENTIALS, S3Server

WHILE_S = 1800
NEAR = 0.2
"""An estimate may be so much too high or too low, as a share."""

FEW = 5
"""So many more or less of a class are nobody's concern."""

FREE = {"DELETE"}
"""What no store bills is estimated roughly."""

SHARED = 0.4
"""So much where calls may share a transaction or a statement, as they happen to come."""


@dataclass(frozen=True)
class Counting:
    """An open app on a store, in virtual time. ``settle``: what runs outside of it has a moment to end."""

    app: App
    clock: VirtualClock
    kind: str
    settle: Callable[[], Awaitable[None]]

    async def advance(self, seconds: float) -> None:
        for _ in range(max(1, round(seconds / 10))):
            await self.clock.advance(min(seconds, 10))
            await self.settle()

    async def during(self, seconds: float) -> Mapping[str, int]:
        """Requests while so much time passes."""
        before = self.app.requests()
        await self.advance(seconds)
        return self.app.requests() - before


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    started = Server(18)
    try:
        started.start()
        yield started
    finally:
        started.remove()


@pytest.fixture(scope="module")
def valkey() -> Iterator[redis_server.Server]:
    started = redis_server.Server()
    try:
        started.start()
        yield started
    finally:
        started.remove()


@pytest.fixture(scope="module")
def seaweedfs() -> Iterator[S3Server]:
    started = S3Server("seaweedfs")
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in CREDENTIALS.items():
                patch.setenv(name, value)
            started.start()
            yield started
    finally:
        started.remove()


@dataclass(frozen=True)
class Store:
    """Where a store is, what kind it is, and how long to wait for what runs outside of virtual time."""

    kind: str
    address: str
    moment_s: float = 0


def _sqlite(request: pytest.FixtureRequest) -> Store:
    folder: Path = request.getfixturevalue("tmp_path")
    return Store("sqlite", f"sqlite:///{folder}/work.db?synchronous=normal")


def _postgresql(request: pytest.FixtureRequest) -> Store:
    server: Server = request.getfixturevalue("postgres")
    schema = f"counted_{zlib.crc32(request.node.name.encode())}"
    # Its listening connection asks the server now and then whether it still lives.
    return Store("postgresql", server.address(options=f"?schema={schema}"), moment_s=0.003)


def _s3(request: pytest.FixtureRequest) -> Store:
    server: S3Server = request.getfixturevalue("seaweedfs")
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")

    def opened(address: str, folder: Path, clock: VirtualClock) -> Provider:
        return S3Bench(server, clock=clock).made(clock)

    # On its bench, where what it stamps is stamped by the virtual clock.
    patch.setattr("bide.app.open_provider", opened)
    return Store("s3", "memory://")


def _redis(request: pytest.FixtureRequest) -> Store:
    server: redis_server.Server = request.getfixturevalue("valkey")
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    address = server.address(f"?prefix=counted{zlib.crc32(request.node.name.encode())}")

    def opened(_: str, folder: Path, clock: VirtualClock) -> Provider:
        return RedisProvider(address, clock=clock)

    patch.setattr("bide.app.open_provider", opened)
    # Its listening connection asks the server now and then whether it still lives.
    return Store("redis", "memory://", moment_s=0.003)


@pytest.fixture(params=[_sqlite, _postgresql, _redis, _s3], ids=["sqlite", "postgresql", "redis", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    """Each store in turn. Its provider says in ``pending`` how many calls are under way."""
    made: Store = request.param(request)
    return made


@pytest.fixture
async def counting(store: Store) -> AsyncIterator[Counting]:
    clock = VirtualClock()
    app = App(store.address, clock=clock, environment={})

    @app.task
    async def nothing() -> None: ...

    async with app.open():
        provider: Any = app.provider
        clock.busy_while(lambda: provider.pending)
        yield Counting(app, clock, store.kind, lambda: asyncio.sleep(store.moment_s))


@asynccontextmanager
async def working(counting: Counting) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    worker = asyncio.create_task(counting.app.worker().run(stopping=stopping))
    await counting.advance(60)
    yield
    stopping.set()
    await worker


def expected(workload: Workload, kind: str, seconds: float) -> Requests:
    """What is estimated for so much of a month."""
    part = Decimal(seconds) / Decimal(MONTH.total_seconds())
    return {name: number * part for name, number in estimate(workload, MODELS[kind]).requests.items()}


def assert_near(counted: Mapping[str, int], estimated: Requests, near: float = NEAR) -> None:
    for name in (counted.keys() | estimated.keys()) - FREE:
        number, worked_out = counted.get(name, 0), float(estimated.get(name, 0))
        assert worked_out == pytest.approx(number, rel=near, abs=FEW), (name, number, worked_out)


IDLE = Workload(PollingStrategy.adaptive())


async def test_an_idle_worker(counting: Counting) -> None:
    async with working(counting):
        assert_near(await counting.during(WHILE_S), expected(IDLE, counting.kind, WHILE_S))


@pytest.mark.parametrize("interval", ["500ms", "5s"])
async def test_an_idle_worker_where_no_fetch_waits_in_the_store(counting: Counting, interval: str) -> None:
    counting.app.flags = {"long_poll_timeout": "0", "poll_interval": interval}
    workload = Workload(PollingStrategy.fixed(interval), long_poll_timeout=timedelta())
    async with working(counting):
        assert_near(await counting.during(600), expected(workload, counting.kind, 600))


async def test_a_process_that_has_polls_and_subscribers(store: Store) -> None:
    """Its polls are called at the start only, so that what is counted is what it asks besides."""
    clock = VirtualClock()
    app = App(store.address, clock=clock, environment={})
    shop = Package("shop")
    changed = shop.event("Changed", {"price": "number"}, public=True)

    async def price(client: object) -> dict[str, int]:
        return {"price": 1}

    shop.operation("price", answer={"price": "number"})(price)
    shop.poll("price", call="price", every="1d", emits=changed)
    app.connect("eu", shop, base_url="http://127.0.0.1:1")
    app.subscribe(changed, name="audit", function=lambda delivery: None)
    stopping = asyncio.Event()
    async with app.open():
        provider: Any = app.provider
        clock.busy_while(lambda: provider.pending)
        running = asyncio.create_task(app.run(stopping))
        counting = Counting(app, clock, store.kind, lambda: asyncio.sleep(store.moment_s))
        await counting.advance(60)
        counted = await counting.during(WHILE_S)
        stopping.set()
        await running
    workload = replace(IDLE, polls=PollLoad(Decimal(1), Decimal(0)))
    assert_near(counted, expected(workload, store.kind, WHILE_S))


@pytest.mark.parametrize("batch", [1, 10])
async def test_items_that_come_one_by_one_and_together(counting: Counting, batch: int) -> None:
    provider, seconds = counting.app.provider, 120
    async with working(counting):
        before = counting.app.requests()
        for second in range(seconds):
            items = [NewItem(f"{second}.{at}", "default", "nothing", "{}") for at in range(batch)]
            await provider.enqueue(items)
            counting.app.submitted()
            await counting.clock.advance(1)
        counted = counting.app.requests() - before
        assert not [one for one in await provider.counts() if one.ready + one.running]
    workload = replace(IDLE, items_a_day=Decimal(86_400 * batch), batch=batch)
    assert_near(counted, expected(workload, counting.kind, seconds), near=SHARED)


async def test_polls_whether_they_change_or_not(counting: Counting) -> None:
    provider = counting.app.provider
    schedule = Schedule("eu.price", timedelta(minutes=1))

    async def call(digest: str) -> Mapping[str, int]:
        await provider.poll_now([schedule.name])  # some stores have a clock of their own
        before = counting.app.requests()
        (claim,) = await provider.claim_polls([schedule], 1)
        payload = f'{{"price":{digest}}}'
        answer = Answered(f"evt_{digest}", "shop.PriceChanged", payload, f"1:{digest}", Validators(), "d")
        await provider.record_answer(claim, answer)
        return counting.app.requests() - before

    polls = MODELS[counting.kind].polls
    assert polls is not None
    await call("1")
    assert_near(await call("2"), polls.changed)
    assert_near(await call("2"), polls.unchanged)
