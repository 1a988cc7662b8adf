"""Every provider counts its requests: they only grow, whoever asks and whatever was closed meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bide.clock import SystemClock
from bide.provider import ZERO, Ack, Items, NewItem, Provider
from bide.providers.memory import MemoryProvider
from bide.providers.postgres import PostgresProvider
from bide.providers.sqlite import SqliteProvider
from tests.providers.postgres_server import Server, run_sql

LOCK = timedelta(seconds=30)


@asynccontextmanager
async def opened(provider: Any) -> AsyncIterator[Provider]:
    await provider.open()
    try:
        yield provider
    finally:
        await provider.close()


async def pass_one(provider: Provider, id: str) -> None:
    await provider.enqueue([NewItem(id, "q", "n", "{}")])
    fetched = await provider.fetch_work_items(
        ["q"], ["n"], limit=5, lock_timeout=LOCK, poll_timeout=ZERO, fetch_token=id
    )
    assert isinstance(fetched, Items)
    await provider.settle([Ack(item.token) for item in fetched.items])


async def test_nothing_is_asked_of_memory() -> None:
    async with opened(MemoryProvider(SystemClock())) as provider:
        await pass_one(provider, "a")
        assert provider.requests() == {}


async def test_sqlite_counts_transactions(tmp_path: Path) -> None:
    async with opened(SqliteProvider(tmp_path / "work.db", clock=SystemClock())) as provider:
        before = Counter(provider.requests())
        await pass_one(provider, "a")
        assert Counter(provider.requests()) - before == {"transaction": 3}
        await provider.counts()  # on the reading connection
        async with provider.transaction() as transaction:
            await provider.enqueue_within(transaction, [NewItem("b", "q", "n", "{}")])
        assert Counter(provider.requests()) - before == {"transaction": 5}


async def test_calls_that_share_a_transaction_of_sqlite_are_one(tmp_path: Path) -> None:
    async with opened(SqliteProvider(tmp_path / "work.db", clock=SystemClock())) as provider:
        before = Counter(provider.requests())
        calls = (provider.enqueue([NewItem(str(at), "q", "n", "{}")]) for at in range(100))
        await asyncio.gather(*calls)
        assert (Counter(provider.requests()) - before)["transaction"] < 10


async def test_counts_outlive_a_close(tmp_path: Path) -> None:
    provider = SqliteProvider(tmp_path / "work.db", clock=SystemClock())
    async with opened(provider):
        await pass_one(provider, "a")
    closed = provider.requests()["transaction"]
    assert closed >= 3
    async with opened(provider):
        await pass_one(provider, "b")
    assert provider.requests()["transaction"] >= closed + 3


_COUNTED = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query !~ 'pg_stat_statements'"


@pytest.fixture(scope="module")
def counting_server() -> Any:
    started = Server(18, options=("shared_preload_libraries=pg_stat_statements", "autovacuum=off"))
    try:
        started.start()
        asyncio.run(run_sql(started.address(), "CREATE EXTENSION pg_stat_statements"))
        yield started
    finally:
        started.remove()


async def test_postgresql_counts_the_statements_that_the_server_counts(counting_server: Server) -> None:
    """Transactions of several statements, the caller's own, and those of another event loop among them."""
    async with opened(PostgresProvider(counting_server.address(), clock=SystemClock())) as provider:
        await pass_one(provider, "warm")  # connections are made and their types looked up
        await asyncio.to_thread(asyncio.run, provider.renew(["0:x"], LOCK))
        await asyncio.sleep(0.1)  # hints for other processes are sent a moment later
        await run_sql(counting_server.address(), "SELECT pg_stat_statements_reset()")
        before = Counter(provider.requests())
        await provider.enqueue([NewItem(str(at), "q", "n", "{}") for at in range(3)])
        await pass_one(provider, "a")
        async with provider.transaction() as transaction:
            await transaction.execute("SELECT 1")
        await asyncio.to_thread(asyncio.run, provider.renew(["0:x"], LOCK))
        await provider.poll_now(["eu.price"])
        await asyncio.sleep(0.1)
        counted = (Counter(provider.requests()) - before)["statement"]
        ((by_server,),) = await run_sql(counting_server.address(), _COUNTED)
    assert counted == by_server
    assert provider.requests()["statement"] >= counted
