"""Several providers at work on one schema at the same moment: lines keep their order, and readers miss nothing."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta

import pytest

from bide.clock import SystemClock
from bide.provider import ZERO, Abandon, Ack, Contended, Empty, Items, NewItem, Schedule
from bide.providers.postgres import PostgresProvider
from bide.testing.conformance.bench import answered, subscription
from tests.providers.postgres_server import Server, run_sql

KEYS = tuple("abcde")
EACH = 12
LOCK = timedelta(seconds=30)


@pytest.fixture
async def providers(server: Server) -> AsyncIterator[list[PostgresProvider]]:
    """Three, as three processes would be: they share nothing but the schema."""
    await run_sql(server.address(), "DROP SCHEMA IF EXISTS together CASCADE")
    address = server.address(options="?schema=together&pool=4")
    made = [PostgresProvider(address, clock=SystemClock()) for _ in range(3)]
    async with AsyncExitStack() as stack:
        for provider in made:
            await provider.open()
            stack.push_async_callback(provider.close)
        yield made


async def test_lines_keep_their_order_whoever_works_on_them(providers: list[PostgresProvider]) -> None:
    seen: collections.defaultdict[str, list[int]] = collections.defaultdict(list)
    running: set[str] = set()
    total = len(KEYS) * EACH

    async def enqueue(key: str, provider: PostgresProvider) -> None:
        for number in range(EACH):
            item = NewItem(f"{key}.{number}", "q", "n", "{}", order_key=key)
            await provider.enqueue([item, replace(item, id=f"{key}.free.{number}", order_key=None)])

    async def work(provider: PostgresProvider, worker: int) -> None:
        while sum(map(len, seen.values())) < total:
            fetched = await provider.fetch_work_items(
                ["q"], ["n"], limit=4, lock_timeout=LOCK, poll_timeout=ZERO, fetch_token=f"w{worker}"
            )
            if not isinstance(fetched, Items):
                await asyncio.sleep(0.005)
                continue
            for item in fetched.items:
                key, _, rest = item.id.partition(".")
                if rest.startswith("free"):
                    await provider.settle([Ack(item.token)])
                    continue
                assert key not in running
                running.add(key)
                await asyncio.sleep(0)
                running.discard(key)
                if item.attempt == 1 and int(rest) % 3 == 0:
                    await provider.settle([Abandon(item.token, ZERO, "once more")])
                    continue
                seen[key].append(int(rest))
                assert await provider.settle([Ack(item.token)]) == ["settled"]

    await asyncio.gather(
        *(enqueue(key, providers[at % 3]) for at, key in enumerate(KEYS)),
        *(work(providers[at % 3], at) for at in range(6)),
    )
    assert seen == {key: list(range(EACH)) for key in KEYS}


async def test_fetches_at_one_moment_take_everything_once(providers: list[PostgresProvider]) -> None:
    names = ("m", "n")
    await providers[0].enqueue([NewItem(f"i{at}", "q", names[at % 2], "{}") for at in range(300)])
    taken: list[str] = []

    async def drain(provider: PostgresProvider, lane: int) -> None:
        while True:
            fetched = await provider.fetch_work_items(
                ["q", "p"],
                names,
                limit=7,
                lock_timeout=LOCK,
                poll_timeout=ZERO,
                fetch_token=f"l{lane}",
                most={"m": 3},
            )
            match fetched:
                case Items(items):
                    taken.extend(item.id for item in items)
                case Empty():
                    return
                case Contended():
                    continue

    await asyncio.gather(*(drain(providers[lane % 3], lane) for lane in range(9)))
    assert sorted(taken) == sorted(f"i{at}" for at in range(300))


async def test_whoever_reads_events_in_order_misses_none(providers: list[PostgresProvider]) -> None:
    await providers[0].register_subscriptions([subscription("a")])
    done = asyncio.Event()

    async def change(provider: PostgresProvider, at: int) -> None:
        schedules = [Schedule(f"c{at}.p{number}", timedelta(hours=1)) for number in range(5)]
        for _ in range(8):
            await provider.poll_now([schedule.name for schedule in schedules])
            claims = await provider.claim_polls(schedules, 5)
            await asyncio.gather(
                *(provider.record_answer(claim, answered(claim.generation, claim)) for claim in claims)
            )

    async def read() -> list[str]:
        seen: list[str] = []
        after = 0
        while True:
            last = done.is_set()
            for event in await providers[2].events(after=after, limit=7):
                seen.append(event.id)
                after = event.seq
                last = False
            if last:
                return seen

    reading = asyncio.create_task(read())
    await asyncio.gather(*(change(provider, at) for at, provider in enumerate(providers)))
    done.set()
    everything = [event.id for event in await providers[0].events(limit=1000)]
    assert len(everything) == 3 * 5 * 8
    assert await reading == everything


async def test_a_subscription_that_ends_while_events_come_keeps_no_delivery(
    providers: list[PostgresProvider],
) -> None:
    for _ in range(5):
        await providers[0].register_subscriptions([replace(subscription("a"), target=str(_))])
        names = [f"eu.p{number}" for number in range(20)]
        await providers[0].poll_now(names)
        claims = await providers[0].claim_polls([Schedule(name, timedelta(hours=1)) for name in names], 20)
        await asyncio.gather(
            *(
                providers[at % 2].record_answer(claim, answered(claim.generation, claim))
                for at, claim in enumerate(claims)
            ),
            providers[2].end_subscriptions(["a"], "410"),
        )
        assert {row.state for row in await providers[0].items("deliveries")} <= {"dead"}
