"""What a call costs does not grow with what is in the file: counted in steps of SQLite's machine, not in time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bide.provider import ZERO, Abandon, Ack, Empty, Items, Limit, Settlement
from bide.providers.sqlite import SqliteProvider
from bide.testing import VirtualClock
from tests.providers.files import ITEM, sql

MANY = 60_000
FEW = 60
NO_MORE = 1.5

FILL = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1)
INSERT INTO work_items (id, queue, name, state, payload, rank, visible_at, enqueued_at, ended_at, limit_key, hold_ms)
SELECT 'fill' || n, 'q', {name}, {state}, '{{}}', 1000 + n, 1000 + n, 0, {ended_at}, {limit_key}, 0 FROM numbers
"""
OTHERS = {"name": "'other' || (n % 20)", "state": "'ready'", "ended_at": "NULL", "limit_key": "NULL"}
LATER = {**OTHERS, "name": "'n'", "state": "'waiting'"}
"""Delayed, until an instant that the tests set."""
DEAD = {**OTHERS, "name": "'n'", "state": "'dead'", "ended_at": "n"}
SAME_NAME = {**OTHERS, "name": "'n'"}
SAME_KEY = {**SAME_NAME, "limit_key": "'k' || (n % 20)"}
"""A few keys, of many items each."""
MANY_KEYS = {**SAME_NAME, "limit_key": "'k' || n"}
LIMITS = {"q": Limit(queue=10, per_key=2)}


class Counted:
    """A provider whose writing connection counts its steps."""

    def __init__(self, provider: SqliteProvider) -> None:
        self.provider = provider
        self.steps = 0

    async def start(self) -> None:
        def count() -> bool:
            self.steps += 1
            return False

        await self.provider._database.write(lambda tx, _: tx.connection.set_progress_handler(count, 10), None)

    async def of(self, call: Awaitable[object]) -> int:
        before = self.steps
        await call
        return self.steps - before


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[[Mapping[str, str], int], Awaitable[Counted]]]:
    """A file with so many items of a kind."""
    opened = []

    async def made(kind: Mapping[str, str], count: int) -> Counted:
        path = tmp_path / f"bide{count}.db"
        provider = SqliteProvider(path, clock=VirtualClock(), synchronous="NORMAL")
        opened.append(provider)
        await provider.open()
        sql(path, FILL.format(**kind), (count,))
        if kind is LATER:
            sql(
                path,
                "UPDATE work_items SET visible_at = ?1 + seq, hold_ms = ?1",
                (VirtualClock().utc_ms() + 1000,),
            )
        counted = Counted(provider)
        await counted.start()
        return counted

    yield made
    for provider in opened:
        await provider.close()


async def fetch(provider: SqliteProvider, limits: Mapping[str, Limit] | None = None) -> Items | Empty:
    found = await provider.fetch_work_items(
        ["q"],
        ["n", "m"],
        limit=20,
        lock_timeout=timedelta(minutes=1),
        poll_timeout=ZERO,
        fetch_token="f",
        limits=limits,
    )
    assert isinstance(found, Items | Empty)
    return found


async def work(counted: Counted, limits: Mapping[str, Limit] | None) -> list[int]:
    """Steps of enqueueing, fetching, an empty fetch, settling and looking for what is old."""
    provider = counted.provider
    new = [replace(ITEM, id=f"i{number}", limit_key="k1", priority=9) for number in range(20)]
    steps = [await counted.of(provider.enqueue(new))]
    found: list[Items | Empty] = []

    async def take() -> None:
        found.append(await fetch(provider, limits))

    steps.append(await counted.of(take()))
    (taken,) = found
    assert isinstance(taken, Items)
    first, *others = taken.items
    settlements: list[Settlement] = [Abandon(first.token, ZERO), *(Ack(item.token) for item in others)]
    steps.append(await counted.of(provider.settle(settlements)))
    steps.append(await counted.of(provider.prune(timedelta(days=30), limit=10)))
    return steps


@pytest.mark.parametrize("limits", [None, LIMITS], ids=["free", "limited"])
@pytest.mark.parametrize(
    "kind",
    [OTHERS, LATER, DEAD, SAME_NAME, SAME_KEY, MANY_KEYS],
    ids=["others", "later", "dead", "same_name", "same_key", "many_keys"],
)
async def test_no_call_costs_more_beside_a_thousand_times_as_many(
    make: Callable[[Mapping[str, str], int], Awaitable[Counted]],
    kind: Mapping[str, str],
    limits: Mapping[str, Limit] | None,
) -> None:
    few = await work(await make(kind, FEW), limits)
    many = await work(await make(kind, MANY), limits)
    assert [
        at for at, (low, high) in enumerate(zip(few, many, strict=True)) if high > NO_MORE * low + 20
    ] == []


async def test_a_fetch_that_finds_nothing_costs_no_more(
    make: Callable[[Mapping[str, str], int], Awaitable[Counted]],
) -> None:
    steps = []
    for count in (FEW, MANY):
        counted = await make(OTHERS, count)
        assert await fetch(counted.provider) == Empty()
        steps.append(await counted.of(fetch(counted.provider)))
    few, many = steps
    assert many <= NO_MORE * few + 20


async def test_keys_take_turns_however_many_there_are(
    make: Callable[[Mapping[str, str], int], Awaitable[Counted]],
) -> None:
    provider = (await make(MANY_KEYS, 500)).provider
    served = set()
    for _ in range(50):
        found = await fetch(provider, {"q": Limit(queue=10)})
        assert isinstance(found, Items)
        assert len(found.items) == 10
        served |= {item.id for item in found.items}
        await provider.settle([Abandon(item.token, ZERO, count_attempt=False) for item in found.items])
    assert len(served) == 500


async def test_the_least_that_is_running_comes_first_however_deep_its_line(
    make: Callable[[Mapping[str, str], int], Awaitable[Counted]],
) -> None:
    provider = (await make(SAME_KEY, 400)).provider  # 20 keys of 20 items
    held = await provider.fetch_work_items(
        *(["q"], ["n"]),
        limit=380,
        lock_timeout=timedelta(minutes=1),
        poll_timeout=ZERO,
        fetch_token="f",
        limits={"q": Limit(per_key=20)},
    )
    assert isinstance(held, Items)
    assert len(held.items) == 380  # 19 of each
    alone = [replace(ITEM, id=f"i{number}", limit_key="alone") for number in range(15)]
    await provider.enqueue(alone)
    found = await fetch(provider, {"q": Limit(per_key=20)})
    assert isinstance(found, Items)
    assert {item.id for item in found.items} >= {item.id for item in alone}
