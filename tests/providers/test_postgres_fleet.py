"""Several workers on one schema at one moment: keys are one item's, limits hold, and a key's cost does not grow."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from bide.clock import SystemClock
from bide.errors import KeyConflict
from bide.provider import ZERO, Ack, Contended, Empty, Enqueued, Items, Limit, NewItem
from bide.providers.postgres import PostgresProvider
from tests.providers.postgres_server import Server, run_sql

LOCK = timedelta(seconds=30)
KEYS = tuple(f"k{number}" for number in range(20))


@pytest.fixture
async def fleet(server: Server) -> AsyncIterator[list[PostgresProvider]]:
    """Three, as three processes would be: they share nothing but the schema."""
    await run_sql(server.address(), "DROP SCHEMA IF EXISTS fleet CASCADE")
    made = [
        PostgresProvider(server.address(options="?schema=fleet&pool=4"), clock=SystemClock())
        for _ in range(3)
    ]
    async with AsyncExitStack() as stack:
        for provider in made:
            await provider.open()
            stack.push_async_callback(provider.close)
        yield made


async def test_one_of_many_who_enqueue_a_key_at_one_moment_is_the_first(
    fleet: list[PostgresProvider],
) -> None:
    async def enqueue(caller: int) -> list[Enqueued]:
        order = KEYS if caller % 2 else tuple(reversed(KEYS))  # crosswise
        given = [NewItem(f"{caller}.{key}", "q", "n", "{}", key=key) for key in order]
        return sorted(await fleet[caller % 3].enqueue(given), key=lambda one: one.id.partition(".")[2])

    answers = await asyncio.gather(*(enqueue(caller) for caller in range(12)))
    for of_key in zip(*answers, strict=True):
        assert len({one.id for one in of_key}) == 1
        assert [one.new for one in of_key].count(True) == 1
    assert len(await fleet[0].items("q")) == len(KEYS)


async def test_of_two_payloads_for_a_key_one_is_stored_with_all_that_came_with_it(
    fleet: list[PostgresProvider],
) -> None:
    async def enqueue(caller: int) -> int | None:
        given = [NewItem(f"{caller}.{at}", "q", "n", str(caller), key=f"k{at}") for at in range(5)]
        try:
            await fleet[caller % 3].enqueue(given)
        except KeyConflict:
            return None
        return caller

    stored = [caller for caller in await asyncio.gather(*map(enqueue, range(9))) if caller is not None]
    assert len(stored) == 1
    assert {row.payload for row in await fleet[0].items("q")} == {str(stored[0])}
    assert len(await fleet[0].items("q")) == 5


async def test_a_conflict_of_one_caller_harms_nobody_who_shares_its_statement(
    fleet: list[PostgresProvider],
) -> None:
    await fleet[0].enqueue([NewItem("a", "q", "n", "{}", key="k")])
    answers = await asyncio.gather(
        *(
            fleet[0].enqueue([NewItem(f"i{at}", "q", "n", str(at), key="k" if at == 3 else None)])
            for at in range(6)
        ),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [list, list, list, KeyConflict, list, list]


@pytest.mark.parametrize("limit", [Limit(queue=5), Limit(per_key=2), Limit(queue=5, per_key=2)], ids=str)
async def test_a_limit_holds_over_the_fleet(fleet: list[PostgresProvider], limit: Limit) -> None:
    total = 120
    await fleet[0].enqueue(
        [
            NewItem(f"{at}", "q", "n", "{}", limit_key=None if at % 6 == 5 else f"k{at % 6}")
            for at in range(total)
        ]
    )
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    done: list[str] = []

    async def work(provider: PostgresProvider, worker: int) -> None:
        while len(done) < total:
            fetched = await provider.fetch_work_items(
                ["p", "q"],
                ["n"],
                limit=4,
                lock_timeout=LOCK,
                poll_timeout=timedelta(seconds=1),
                fetch_token=f"w{worker}",
                limits={"q": limit},
            )
            if not isinstance(fetched, Items):
                continue
            keys = [f"k{int(item.id) % 6}" for item in fetched.items]
            running.update(keys)
            running["all"] += len(keys)
            for key in (*keys, "all"):
                most[key] = max(most[key], running[key])
            await asyncio.sleep(0.002)
            running.subtract(keys)
            running["all"] -= len(keys)
            assert await provider.settle([Ack(item.token) for item in fetched.items]) == ["settled"] * len(
                keys
            )
            done.extend(item.id for item in fetched.items)

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(fleet[at % 3], at) for at in range(6)))
    assert sorted(done, key=int) == [str(at) for at in range(total)]
    if limit.queue is not None:
        assert most["all"] <= limit.queue
    if limit.per_key is not None:
        assert max(most[f"k{number}"] for number in range(5)) <= limit.per_key


async def test_a_freed_place_wakes_another_process(fleet: list[PostgresProvider]) -> None:
    await fleet[0].enqueue([NewItem("a", "q", "n", "{}"), NewItem("b", "q", "n", "{}")])

    async def fetch(provider: PostgresProvider, wait: timedelta) -> Items | Empty | Contended:
        return await provider.fetch_work_items(
            ["q"],
            ["n"],
            limit=5,
            lock_timeout=LOCK,
            poll_timeout=wait,
            fetch_token="f",
            limits={"q": Limit(queue=1)},
        )

    first = await fetch(fleet[0], ZERO)
    assert isinstance(first, Items)
    waiting = asyncio.create_task(fetch(fleet[1], timedelta(seconds=20)))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await fleet[0].settle([Ack(first.items[0].token)])
    async with asyncio.timeout(10):
        second = await waiting
    assert isinstance(second, Items)
    assert [item.id for item in second.items] == ["b"]


async def test_candidates_that_others_have_locked_are_told_from_none(
    fleet: list[PostgresProvider], server: Server
) -> None:
    await fleet[0].enqueue([NewItem("a", "q", "n", "{}")])

    async def fetch() -> Items | Empty | Contended:
        return await fleet[1].fetch_work_items(
            ["q"], ["n"], limit=5, lock_timeout=LOCK, poll_timeout=ZERO, fetch_token="f"
        )

    async with fleet[0].transaction() as transaction:
        await transaction.execute("SELECT 1 FROM fleet.work_items FOR UPDATE")
        assert await fetch() == Contended()
        await fleet[0].enqueue([NewItem("b", "q", "n", "{}"), NewItem("c", "q", "n", "{}", limit_key="k")])
        free = await fetch()
        assert isinstance(free, Items)
        assert [item.id for item in free.items] == ["b", "c"]
    assert isinstance(await fetch(), Items)


async def test_a_waiting_fetch_takes_what_others_had_locked_soon_after_they_let_go(
    fleet: list[PostgresProvider],
) -> None:
    await fleet[0].enqueue([NewItem("a", "q", "n", "{}")])
    async with fleet[0].transaction() as transaction:
        await transaction.execute("SELECT 1 FROM fleet.work_items FOR UPDATE")
        waiting = asyncio.create_task(
            fleet[1].fetch_work_items(
                ["q"], ["n"], limit=5, lock_timeout=LOCK, poll_timeout=timedelta(seconds=30), fetch_token="f"
            )
        )
        await asyncio.sleep(0.3)
        assert not waiting.done()
    async with asyncio.timeout(10):
        assert isinstance(await waiting, Items)
