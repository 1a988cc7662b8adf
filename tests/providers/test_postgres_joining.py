"""Enqueueing within transactions of callers, with each driver that they use: there with the commit, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from bide.clock import SystemClock
from bide.errors import KeyConflict, ProviderError
from bide.provider import ZERO, Enqueued, Items, NewItem
from bide.providers.postgres import PostgresProvider
from tests.providers.postgres_server import Server, run_sql

ITEM = NewItem(id="a", queue="q", name="n", payload='{"text": "é\0\U0001f642"}', key="k", priority=3)
LOCK = timedelta(seconds=30)

Caller = Callable[[Server], Any]
"""Makes a connection in a transaction; it yields that, how to commit and how to roll back."""

Opened = tuple[Any, Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]


@asynccontextmanager
async def on_asyncpg(server: Server) -> AsyncIterator[Opened]:
    connection: Any = await asyncpg.connect(server.address())
    transaction = connection.transaction()
    await transaction.start()
    yield connection, transaction.commit, transaction.rollback
    await connection.close()


@asynccontextmanager
async def on_pool(server: Server) -> AsyncIterator[Opened]:
    async with (
        asyncpg.create_pool(server.address(), min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
    ):
        transaction = connection.transaction()
        await transaction.start()
        yield connection, transaction.commit, transaction.rollback


@asynccontextmanager
async def on_psycopg(server: Server) -> AsyncIterator[Opened]:
    connection = psycopg.connect(server.address(), row_factory=psycopg.rows.dict_row)
    yield connection, _later(connection.commit), _later(connection.rollback)
    connection.close()


@asynccontextmanager
async def on_async_psycopg(server: Server) -> AsyncIterator[Opened]:
    connection = await psycopg.AsyncConnection.connect(server.address())
    yield connection, connection.commit, connection.rollback
    await connection.close()


@asynccontextmanager
async def on_session(server: Server) -> AsyncIterator[Opened]:
    engine = sqlalchemy.create_engine(server.address().replace("postgresql:", "postgresql+psycopg:"))
    with Session(engine) as session:
        yield session, _later(session.commit), _later(session.rollback)
    engine.dispose()


@asynccontextmanager
async def on_connection(server: Server) -> AsyncIterator[Opened]:
    engine = sqlalchemy.create_engine(server.address().replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        yield connection, _later(connection.commit), _later(connection.rollback)
    engine.dispose()


@asynccontextmanager
async def on_async_session(server: Server) -> AsyncIterator[Opened]:
    engine = create_async_engine(server.address().replace("postgresql:", "postgresql+asyncpg:"))
    async with AsyncSession(engine) as session:
        yield session, session.commit, session.rollback
    await engine.dispose()


@asynccontextmanager
async def on_async_connection(server: Server) -> AsyncIterator[Opened]:
    engine = create_async_engine(server.address().replace("postgresql:", "postgresql+psycopg:"))
    async with engine.connect() as connection:
        yield connection, connection.commit, connection.rollback
    await engine.dispose()


def _later(call: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    async def called() -> object:
        return call()

    return called


CALLERS = (
    *(on_asyncpg, on_pool, on_psycopg, on_async_psycopg),
    *(on_session, on_connection, on_async_session, on_async_connection),
)


@pytest.fixture
async def provider(server: Server) -> AsyncIterator[PostgresProvider]:
    await run_sql(server.address(), "DROP SCHEMA IF EXISTS joining CASCADE")
    provider = PostgresProvider(server.address(options="?schema=joining"), clock=SystemClock())
    await provider.open()
    yield provider
    await provider.close()


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.__name__)
async def test_what_is_enqueued_comes_with_the_commit(
    provider: PostgresProvider, server: Server, caller: Caller
) -> None:
    async with caller(server) as (connection, commit, _):
        given = [ITEM, NewItem("b", "q", "other", "[]", delay=timedelta(hours=1), within=timedelta(days=1))]
        assert await provider.enqueue_within(connection, given) == [Enqueued("a", True), Enqueued("b", True)]
        assert await provider.enqueue_within(connection, [ITEM]) == [Enqueued("a", False)]
        assert await provider.items("q") == []
        await commit()
    await provider.enqueue(
        [NewItem("like b", "q", "other", "[]", delay=timedelta(hours=1), within=timedelta(days=1))]
    )
    like, other, item = await provider.items("q")
    assert (item.id, item.payload, item.key, item.priority) == ("a", ITEM.payload, "k", 3)
    assert (other.max_attempts, other.state) == (like.max_attempts, like.state)
    assert other.visible_at - other.enqueued_at == like.visible_at - like.enqueued_at == 3_600_000
    assert other.expires_at is not None
    assert other.expires_at - other.enqueued_at == 86_400_000


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.__name__)
async def test_nothing_comes_of_a_transaction_that_is_rolled_back(
    provider: PostgresProvider, server: Server, caller: Caller
) -> None:
    async with caller(server) as (connection, _, roll_back):
        await provider.enqueue_within(connection, [ITEM])
        await roll_back()
    assert await provider.items("q") == []
    assert await provider.enqueue([ITEM]) == [Enqueued("a", True)]


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.__name__)
async def test_a_key_conflict_stores_nothing_and_leaves_the_transaction_usable(
    provider: PostgresProvider, server: Server, caller: Caller
) -> None:
    await provider.enqueue([ITEM])
    async with caller(server) as (connection, commit, _):
        with pytest.raises(KeyConflict) as raised:
            await provider.enqueue_within(
                connection, [NewItem("x", "q", "n", "{}"), NewItem("y", "q", "n", "other", key="k")]
            )
        assert raised.value.item == "a"
        await provider.enqueue_within(connection, [NewItem("z", "q", "n", "{}")])
        await commit()
    assert [row.id for row in await provider.items("q")] == ["z", "a"]


async def test_the_commit_of_a_caller_wakes_whoever_waits(provider: PostgresProvider, server: Server) -> None:
    fetching = asyncio.create_task(
        provider.fetch_work_items(
            ["q"], ["n"], limit=1, lock_timeout=LOCK, poll_timeout=timedelta(seconds=60), fetch_token="f"
        )
    )
    async with on_async_psycopg(server) as (connection, commit, _):
        await provider.enqueue_within(connection, [ITEM])
        await asyncio.sleep(0.1)
        assert not fetching.done()
        await commit()
        async with asyncio.timeout(10):
            fetched = await fetching
    assert isinstance(fetched, Items)
    assert [item.payload for item in fetched.items] == [ITEM.payload]


async def test_what_is_no_transaction_is_refused_by_what_would_do(
    provider: PostgresProvider, server: Server
) -> None:
    known = r"object is no transaction.*asyncpg Connection.*psycopg.*SQLAlchemy"
    with pytest.raises(TypeError, match=known):
        await provider.enqueue_within(object(), [ITEM])
    connection: Any = await asyncpg.connect(server.address())
    with pytest.raises(ValueError, match="is in no transaction"):
        await provider.enqueue_within(connection, [ITEM])
    await connection.close()
    with (
        psycopg.connect(server.address(), autocommit=True) as by_itself,
        pytest.raises(ValueError, match="commits by itself"),
    ):
        await provider.enqueue_within(by_itself, [ITEM])
    assert await provider.items("q") == []


async def test_a_connection_to_another_database_is_an_error_of_the_provider(
    provider: PostgresProvider, server: Server
) -> None:
    await provider.enqueue([ITEM])
    connection: Any = await asyncpg.connect(server.address("template1"))
    async with connection.transaction():
        with pytest.raises(ProviderError, match="does not exist"):
            await provider.enqueue_within(connection, [ITEM])
    await connection.close()


# --- transactions that the store issues -------------------------------------------------------------------------


async def test_statements_of_the_caller_and_items_are_there_together(
    provider: PostgresProvider, server: Server
) -> None:
    await run_sql(server.address(), "CREATE TABLE joining.orders (number integer PRIMARY KEY, text text)")
    async with provider.transaction() as transaction:
        await transaction.execute("INSERT INTO joining.orders VALUES ($1, $2)", [7, "tea"])
        await provider.enqueue_within(transaction, [ITEM])
        assert await transaction.execute("SELECT number, text FROM joining.orders") == [(7, "tea")]
    assert [row.id for row in await provider.items("q")] == ["a"]

    async def fails() -> None:
        async with provider.transaction() as transaction:
            await transaction.execute("DELETE FROM joining.orders")
            await provider.enqueue_within(transaction, [NewItem("b", "q", "n", "{}")])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert len(await run_sql(server.address(), "SELECT * FROM joining.orders")) == 1
    assert [row.id for row in await provider.items("q")] == ["a"]
    with pytest.raises(ProviderError, match="has ended"):
        await provider.enqueue_within(transaction, [ITEM])


async def test_a_transaction_of_which_a_statement_failed_is_not_said_to_be_committed(
    provider: PostgresProvider,
) -> None:
    async def carries_on() -> None:
        async with provider.transaction() as transaction:
            await provider.enqueue_within(transaction, [ITEM])
            with pytest.raises(ProviderError, match="refused a statement"):
                await transaction.execute("SELECT 1 / 0")

    with pytest.raises(ProviderError, match="rolled back"):
        await carries_on()
    assert await provider.items("q") == []


async def test_a_transaction_on_another_event_loop(provider: PostgresProvider) -> None:
    async def elsewhere() -> None:
        async with provider.transaction() as transaction:
            await provider.enqueue_within(transaction, [ITEM])
            assert await transaction.execute("SELECT 1") == [(1,)]

    threads = threading.active_count()
    await asyncio.to_thread(asyncio.run, elsewhere())
    assert threading.active_count() > threads
    assert [row.id for row in await provider.items("q")] == ["a"]


async def test_connections_of_transactions_come_back(provider: PostgresProvider) -> None:
    for number in range(20):  # more than there are
        async with provider.transaction() as transaction:
            await provider.enqueue_within(transaction, [NewItem(f"i{number}", "q", "n", "{}")])
        with suppress(asyncio.CancelledError):
            async with provider.transaction():
                raise asyncio.CancelledError
    assert len(await provider.items("q")) == 20


# --- other languages ----------------------------------------------------------------------------------------------


async def test_any_program_can_enqueue_with_sql(provider: PostgresProvider, server: Server) -> None:
    rows = await run_sql(
        server.address(),
        """SELECT * FROM joining.bide_enqueue('[
            {"queue": "q", "name": "n", "payload": {"to": "someone"}, "key": "k"},
            {"id": "mine", "queue": "q", "name": "n", "payload": "as it is", "delay_ms": 60000}]')""",
    )
    assert [row["new"] for row in rows] == [True, True]
    assert rows[1]["id"] == "mine"
    fetched = await provider.fetch_work_items(
        ["q"], ["n"], limit=5, lock_timeout=LOCK, poll_timeout=ZERO, fetch_token="f"
    )
    assert isinstance(fetched, Items)
    assert [(item.id, item.payload) for item in fetched.items] == [(rows[0]["id"], '{"to": "someone"}')]
    assert (await provider.items("q"))[0].payload == "as it is"


@pytest.mark.parametrize(
    ("items", "error"),
    [
        (
            '[{"queue": "q", "name": "n", "payload": "1", "key": "k"}]',
            "belongs to item a, whose payload is another one",
        ),
        ('[{"queue": "q", "name": "n", "payload": "1", "dealy_ms": 5}]', "an item has no field 'dealy_ms'"),
        ('[{"queue": "q", "name": "n"}]', "an item needs queue, name and payload"),
    ],
)
async def test_what_sql_cannot_enqueue_is_an_error(
    provider: PostgresProvider, server: Server, items: str, error: str
) -> None:
    await provider.enqueue([ITEM])
    with pytest.raises(asyncpg.PostgresError, match=error):
        await run_sql(server.address(), "SELECT * FROM joining.bide_enqueue($1::text::jsonb)", items)
    assert [row.id for row in await provider.items("q")] == ["a"]
