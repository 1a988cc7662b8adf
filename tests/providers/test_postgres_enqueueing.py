"""Items that share nearly everything are sent in few words; what is stored is the same as of those that do not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from bide.clock import SystemClock
from bide.errors import ProviderError
from bide.provider import Alike, Enqueued, Items, NewItem
from bide.providers.postgres import PostgresProvider
from tests.providers.postgres_server import Server, run_sql

PLAIN = NewItem(id="", queue="q", name="n", payload="")
FULL = replace(
    PLAIN,
    delay=timedelta(seconds=5),
    priority=-3,
    max_attempts=4,
    within=timedelta(hours=1),
    limit_key="l\0",
    keep_result=timedelta(days=1),
)

SHARED = """
SELECT DISTINCT queue, name, state, priority, rank - enqueued_at AS rank, visible_at - enqueued_at AS visible_at,
    CASE WHEN hold_ms > 1e12 THEN hold_ms - visible_at ELSE hold_ms END AS hold_ms, attempts, deaths, max_attempts,
    within_ms, expires_at - enqueued_at AS expires_at, order_key, key, limit_key, keep_ms, given_back
FROM enqueueing.work_items WHERE id ^@ $1
"""


@pytest.fixture
async def provider(server: Server) -> AsyncIterator[PostgresProvider]:
    await run_sql(server.address(), "DROP SCHEMA IF EXISTS enqueueing CASCADE")
    made = PostgresProvider(server.address(options="?schema=enqueueing&pool=1"), clock=SystemClock())
    await made.open()
    yield made
    await made.close()


def items(pattern: NewItem, prefix: str) -> Alike:
    return Alike(pattern, [f"{prefix}{at}" for at in range(30)], [str(at) for at in range(30)])


@pytest.mark.parametrize("pattern", [PLAIN, FULL, replace(FULL, delay=timedelta(), priority=7)])
async def test_what_items_share_is_stored_with_each(
    server: Server, provider: PostgresProvider, pattern: NewItem
) -> None:
    another = replace(
        PLAIN, id="another", priority=1, max_attempts=1, within=timedelta(1), delay=timedelta(1)
    )
    await provider.enqueue(items(pattern, "alike"))
    await provider.enqueue([*items(pattern, "mixed"), another])
    (alike,) = await run_sql(server.address(), SHARED, "alike")
    (mixed,) = await run_sql(server.address(), SHARED, "mixed")
    assert dict(alike) == dict(mixed)
    rows = await run_sql(server.address(), "SELECT id, payload FROM enqueueing.work_items ORDER BY seq")
    given = [*items(pattern, "alike"), *items(pattern, "mixed"), another]
    assert [tuple(row) for row in rows] == [(item.id, item.payload) for item in given]


async def test_an_instant_that_items_share_is_stored_with_each(
    server: Server, provider: PostgresProvider
) -> None:
    at = SystemClock().utc_ms() + 3_600_000
    await provider.enqueue(items(replace(PLAIN, at=at), "alike"))
    await provider.enqueue([*items(replace(PLAIN, at=at), "mixed"), replace(PLAIN, id="another")])
    rows = await run_sql(
        server.address(),
        "SELECT DISTINCT state, visible_at, rank, hold_ms FROM enqueueing.work_items WHERE id <> 'another'",
    )
    assert [tuple(row) for row in rows] == [("waiting", at, at, at)]


@pytest.mark.parametrize("pattern", [replace(PLAIN, order_key="k"), replace(PLAIN, key="k")])
async def test_keys_that_items_share_are_heeded(provider: PostgresProvider, pattern: NewItem) -> None:
    enqueued = await provider.enqueue(Alike(pattern, items(PLAIN, "i").ids, ["{}"] * 30))
    assert [one.new for one in enqueued] == [True] + [pattern.key is None] * 29
    assert {row.id for row in await provider.items("q")} == {one.id for one in enqueued}
    fetched = await provider.fetch_work_items(
        ["q"], ["n"], limit=9, lock_timeout=timedelta(1), poll_timeout=timedelta(), fetch_token="f"
    )
    assert isinstance(fetched, Items)
    assert [item.id for item in fetched.items] == ["i0"]


async def test_of_items_that_are_alike_known_ones_change_nothing(
    server: Server, provider: PostgresProvider
) -> None:
    await provider.enqueue(items(FULL, "i")[10:20])
    enqueued = await provider.enqueue(Alike(PLAIN, items(PLAIN, "i").ids, ["other"] * 30))
    assert enqueued == [Enqueued(f"i{at}", new=not 10 <= at < 20) for at in range(30)]
    rows = await run_sql(server.address(), "SELECT payload FROM enqueueing.work_items WHERE priority = -3")
    assert sorted(int(row[0]) for row in rows) == list(range(10, 20))


async def test_of_items_that_are_alike_all_are_stored_or_none(provider: PostgresProvider) -> None:
    with pytest.raises(ProviderError, match="surrogate"):
        await provider.enqueue(Alike(PLAIN, items(PLAIN, "i").ids, [*"{}" * 14, "\ud800", "{}"]))
    with pytest.raises(ProviderError, match="surrogate"):
        await provider.enqueue(items(replace(PLAIN, limit_key="\udfff"), "i"))
    assert await provider.items("q") == []
