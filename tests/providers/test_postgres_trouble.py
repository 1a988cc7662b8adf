"""What goes wrong with a server, and what callers hear of it: FAULTS of connections, users and lost wake-ups."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bide.clock import SystemClock
from bide.errors import ProviderError
from bide.provider import DELIVERIES, ZERO, Ack, Changed, Fetched, Items, NewItem, Schedule
from bide.providers.postgres import PostgresProvider
from bide.testing.conformance.bench import answered, subscription
from tests.providers.postgres_server import Server, free_port, run_sql
from tests.providers.transaction_pooler import Pooler
from tests.servers import eventually

ITEM = NewItem(id="a", queue="q", name="n", payload="{}")
LOCK = timedelta(seconds=30)

_MINE = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
_END_ALL = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_MINE}"
_END_LISTENERS = f"{_END_ALL} AND query LIKE 'LISTEN%'"


class Opened:
    """Makes providers on an emptied schema of a server, and closes them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._stack = AsyncExitStack()

    async def __call__(self, options: str = "") -> PostgresProvider:
        address = self.server.address(options=f"?schema=trouble{options}")
        provider = PostgresProvider(address, clock=SystemClock())
        await provider.open()
        self._stack.push_async_callback(provider.close)
        return provider

    async def sql(self, statement: str, *arguments: object) -> list[Any]:
        return await run_sql(self.server.address(), statement, *arguments)

    async def close(self) -> None:
        await self._stack.aclose()


@pytest.fixture
async def opened(server: Server) -> AsyncIterator[Opened]:
    await run_sql(server.address(), "DROP SCHEMA IF EXISTS trouble CASCADE")
    made = Opened(server)
    yield made
    await made.close()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may stop."""
    started = Server(18)
    try:
        started.start()
        yield started
    finally:
        started.remove()


async def fetch(provider: PostgresProvider, wait: timedelta = ZERO, by: str = "f") -> Fetched:
    return await provider.fetch_work_items(
        ["q"], ["n"], limit=10, lock_timeout=LOCK, poll_timeout=wait, fetch_token=by
    )


def ids(fetched: Fetched) -> list[str]:
    return [item.id for item in fetched.items] if isinstance(fetched, Items) else []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        await eventually(condition)


async def waits(provider: PostgresProvider) -> None:
    """Until the fetch that was begun has looked and waits."""
    await asyncio.sleep(0.02)
    await until(lambda: provider.pending == 0)


# --- wake-ups -------------------------------------------------------------------------------------------------


async def test_what_another_process_enqueued_ends_a_wait_long_before_it_looks_again(opened: Opened) -> None:
    waiting, other = await opened(), await opened()
    fetching = asyncio.create_task(fetch(waiting, timedelta(seconds=60)))
    await waits(waiting)
    began = time.monotonic()
    for number in range(3):  # the later ones within the debounce
        await other.enqueue([NewItem(id=f"i{number}", queue="q", name="other", payload="{}")])
    await other.enqueue([ITEM])
    assert ids(await fetching) == ["a"]
    assert time.monotonic() - began < 10


async def test_a_lost_listener_comes_back_and_looks_at_once(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    waiting, other = await opened(), await opened("&listen=false")
    fetching = asyncio.create_task(fetch(waiting, timedelta(seconds=60)))
    await waits(waiting)
    with caplog.at_level(logging.WARNING, logger="bide.postgres"):
        assert await opened.sql(_END_LISTENERS) != []
        await until(lambda: not waiting.hears)
        await other.enqueue([ITEM])  # nobody hears the notification of this
        assert ids(await fetching) == ["a"]
        await until(lambda: waiting.hears)
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "no wake-ups from other processes until it is back",
        "wake-ups from other processes are back",
    ]
    fetching = asyncio.create_task(fetch(waiting, timedelta(seconds=60)))
    await waits(waiting)
    await other.enqueue([NewItem(id="b", queue="q", name="n", payload="{}")])
    assert ids(await fetching) == ["b"]


async def test_without_listening_a_wait_ends_all_the_same(opened: Opened) -> None:
    waiting, other = await opened("&listen=false"), await opened()
    assert not waiting.hears
    fetching = asyncio.create_task(fetch(waiting, timedelta(seconds=60)))
    await waits(waiting)
    await other.enqueue([ITEM])
    fetched = await fetching
    assert ids(fetched) == ["a"]
    assert isinstance(fetched, Items)
    assert await waiting.settle([Ack(fetched.items[0].token, enqueue=(NewItem("b", "q", "n", "{}"),))]) == [
        "settled"
    ]


async def test_everything_works_through_a_pooler_of_transactions(opened: Opened) -> None:
    async with Pooler(opened.server.port) as pooler:
        address = f"postgresql://bide@127.0.0.1:{pooler.port}/postgres?schema=trouble&listen=false&pool=2"
        provider = PostgresProvider(address, clock=SystemClock())
        await provider.open()
        await provider.register_subscriptions([subscription("a")])
        schedules = [Schedule(f"eu.p{number}", timedelta(hours=1)) for number in range(6)]
        for price in (1, 2):
            await provider.poll_now([schedule.name for schedule in schedules])
            claims = await provider.claim_polls(schedules, 6)
            recorded = await asyncio.gather(
                *(provider.record_answer(claim, answered(price, claim)) for claim in claims)
            )
            assert [type(one) for one in recorded] == [Changed] * 6
        fetched = await asyncio.gather(*(fetch_deliveries(provider, f"f{number}") for number in range(4)))
        items = [item for one in fetched if isinstance(one, Items) for item in one.items]
        assert len(items) == 12
        assert await provider.renew([item.token for item in items], LOCK) == [True] * 12
        orders = [Ack(item.token, enqueue=(replace(ITEM, id=f"more.{item.id}"),)) for item in items]
        assert await provider.settle(orders) == ["settled"] * 12
        assert {count.queue: count.ready for count in await provider.counts()} == {DELIVERIES: 0, "q": 12}
        waiting = asyncio.create_task(fetch(provider, timedelta(seconds=60), by="waiting"))
        assert len(ids(await waiting)) == 10
        await provider.close()
        assert pooler.transactions > 20


async def fetch_deliveries(provider: PostgresProvider, by: str) -> Fetched:
    return await provider.fetch_work_items(
        [DELIVERIES], ["a"], limit=3, lock_timeout=LOCK, poll_timeout=ZERO, fetch_token=by
    )


async def test_an_idle_wait_asks_seldom(opened: Opened) -> None:
    provider = await opened("&pool=1")
    fetching = asyncio.create_task(fetch(provider, timedelta(seconds=60)))
    await waits(provider)
    before = await statements(opened)
    await asyncio.sleep(2.5)
    assert await statements(opened) == before
    await provider.wake()
    await fetching


async def statements(opened: Opened) -> list[Any]:
    """When each connection of others last began a statement."""
    rows = await opened.sql(f"SELECT pid, query_start FROM pg_stat_activity WHERE {_MINE} ORDER BY pid")
    return [tuple(row) for row in rows]


# --- lost connections -----------------------------------------------------------------------------------------


async def test_ended_connections_are_made_again(opened: Opened) -> None:
    provider = await opened()
    await provider.enqueue([ITEM])
    for _ in range(3):
        working = [asyncio.create_task(fetch(provider, by=f"f{number}")) for number in range(8)]
        await opened.sql(_END_ALL)
        for result in await asyncio.gather(*working, return_exceptions=True):
            assert not isinstance(result, BaseException) or is_passing(result), result
    for _ in range(20):  # as many as there are connections that were ended
        if await passes(provider.enqueue([NewItem("b", "q", "n", "{}")])):
            break
    assert sorted(row.id for row in await provider.items("q")) == ["a", "b"]


async def test_a_statement_whose_connection_is_ended_is_worth_asking_again(opened: Opened) -> None:
    provider = await opened()
    sleeping = asyncio.create_task(provider._database.rows("SELECT pg_sleep(30)"))
    await asyncio.sleep(0.1)
    await opened.sql(f"{_END_ALL} AND query LIKE '%pg_sleep%'")
    with pytest.raises(ProviderError, match="asking again may help") as raised:
        await sleeping
    assert raised.value.retryable


async def test_a_restart_of_the_server_in_mid_work_is_survived(own_server: Server) -> None:
    provider = PostgresProvider(own_server.address(), clock=SystemClock())
    await provider.open()
    await provider.enqueue([ITEM])
    (token,) = [item.token for item in getattr(await fetch(provider), "items", ())]
    fetching = asyncio.create_task(fetch(provider, timedelta(seconds=60), by="waiting"))
    await waits(provider)
    await asyncio.to_thread(own_server.stop)
    with pytest.raises(ProviderError, match=r"cannot be reached|was lost|ended the connection") as raised:
        await provider.enqueue([NewItem("lost", "q", "n", "{}")])
    assert raised.value.retryable
    await asyncio.to_thread(own_server.start)
    await until(lambda: provider.hears)
    assert await provider.settle([Ack(token)]) == ["settled"]
    await provider.enqueue([NewItem("b", "q", "n", "{}")])
    if await passes(fetching):  # it may have looked while the server was away
        assert ids(fetching.result()) == ["b"]
    else:
        assert ids(await fetch(provider)) == ["b"]
    await provider.close()


async def passes(act: Awaitable[object]) -> bool:
    """Whether ``act`` succeeds; where not, its error must be one that asking again may help."""
    (result,) = await asyncio.gather(act, return_exceptions=True)
    assert not isinstance(result, BaseException) or is_passing(result), result
    return not isinstance(result, BaseException)


def is_passing(error: BaseException) -> bool:
    return isinstance(error, ProviderError) and error.retryable


async def test_a_blocked_event_loop_does_not_keep_locks_from_being_renewed(opened: Opened) -> None:
    provider = await opened()
    await provider.enqueue([ITEM])
    tokens = [item.token for item in getattr(await fetch(provider), "items", ())]
    done: list[bool] = []
    renewing = asyncio.to_thread(lambda: done.extend(asyncio.run(renewed_twice(provider, tokens))))
    task = asyncio.create_task(renewing)
    await asyncio.sleep(0)
    deadline = time.monotonic() + 20
    while not done and time.monotonic() < deadline:
        time.sleep(0.01)  # noqa: ASYNC251 - a handler that blocks
    assert done == [True, True]
    await task


async def renewed_twice(provider: PostgresProvider, tokens: list[str]) -> list[bool]:
    return [*await provider.renew(tokens, LOCK), *await provider.renew(tokens, LOCK)]


# --- errors ---------------------------------------------------------------------------------------------------


async def refused(address: str) -> ProviderError:
    provider = PostgresProvider(address, clock=SystemClock())
    with pytest.raises(ProviderError) as raised:
        await provider.open()
    assert "hunter2" not in f"{raised.value}{raised.value!r}"
    with pytest.raises(ProviderError, match="not open"):
        await provider.now()
    return raised.value


async def test_a_wrong_password(opened: Opened) -> None:
    await opened.sql(
        "DO $$ BEGIN CREATE ROLE locked LOGIN PASSWORD 'right'; EXCEPTION WHEN duplicate_object THEN END $$"
    )
    error = await refused(opened.server.address(user="locked:hunter2"))
    assert not error.retryable
    assert str(error).startswith(
        f"postgresql://127.0.0.1:{opened.server.port}/postgres: the server refused the user"
    )


async def test_a_missing_database(opened: Opened) -> None:
    error = await refused(opened.server.address("nowhere", user="bide:hunter2"))
    assert not error.retryable
    assert "create it" in str(error)


async def test_a_server_that_is_not_there() -> None:
    error = await refused(f"postgresql://bide:hunter2@127.0.0.1:{free_port()}/x")
    assert error.retryable
    assert "check that it runs" in str(error)


async def test_a_user_who_may_not_make_the_schema(opened: Opened) -> None:
    await opened.sql("DO $$ BEGIN CREATE ROLE weak LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    error = await refused(opened.server.address(user="weak", options="?schema=forbidden"))
    assert not error.retryable
    assert "let it CREATE" in str(error)


async def test_no_connection_left(opened: Opened) -> None:
    await opened.sql(
        "DO $$ BEGIN CREATE ROLE crowd LOGIN CONNECTION LIMIT 0; EXCEPTION WHEN duplicate_object THEN END $$"
    )
    error = await refused(opened.server.address(user="crowd"))
    assert error.retryable
    assert "?pool=" in str(error)


async def test_a_database_that_cannot_hold_every_text(opened: Opened) -> None:
    if not await opened.sql("SELECT 1 FROM pg_database WHERE datname = 'narrow'"):
        await opened.sql("CREATE DATABASE narrow ENCODING 'SQL_ASCII' TEMPLATE template0")
    error = await refused(opened.server.address("narrow"))
    assert not error.retryable
    assert "UTF8" in str(error)


async def test_a_server_that_takes_no_writes(opened: Opened) -> None:
    await opened()
    await opened.sql(
        "DO $$ BEGIN CREATE ROLE writes_nothing LOGIN SUPERUSER; EXCEPTION WHEN duplicate_object THEN END $$"
    )
    await opened.sql("ALTER ROLE writes_nothing SET default_transaction_read_only = on")
    address = opened.server.address(user="writes_nothing", options="?schema=trouble")
    provider = PostgresProvider(address, clock=SystemClock())
    await provider.open()
    with pytest.raises(ProviderError, match="takes no writes") as raised:
        await provider.enqueue([ITEM])
    assert raised.value.retryable
    await provider.close()


async def test_tables_that_are_gone(opened: Opened) -> None:
    provider = await opened()
    await opened.sql("DROP SCHEMA trouble CASCADE")
    with pytest.raises(ProviderError, match="gone") as raised:
        await provider.poll_rows()
    assert not raised.value.retryable


async def test_others_in_the_way_are_waited_out(opened: Opened) -> None:
    provider = await opened()
    await provider.enqueue([NewItem(f"i{number}", "q", "n", "{}") for number in range(2)])

    async def cross(first: str, second: str) -> None:
        async def act(transaction: Any) -> None:
            touch = "UPDATE bide.work_items SET error = 'x' WHERE id = $1"
            await transaction.rows(touch, first)
            await asyncio.sleep(0.05)
            await transaction.rows(touch, second)

        await provider._database.run(lambda session: session.atomically(act))

    await asyncio.gather(cross("i0", "i1"), cross("i1", "i0"))
    assert [row.error for row in await provider.items("q")] == ["x", "x"]
