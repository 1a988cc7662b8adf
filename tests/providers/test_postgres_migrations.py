"""Opening a schema: made, shared by many who start at once, and refused where it is not for this version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from bide.clock import SystemClock
from bide.errors import ProviderCorrupt, ProviderError, ProviderNewer
from bide.provider import NewItem
from bide.providers.postgres import PostgresProvider
from bide.providers.postgres.migrations import migrations
from tests.providers.postgres_server import Server, run_sql


@pytest.fixture
async def address(server: Server) -> AsyncIterator[str]:
    await run_sql(server.address(), "DROP SCHEMA IF EXISTS fresh CASCADE")
    yield server.address(options="?schema=fresh&pool=2")
    await run_sql(server.address(), "DROP SCHEMA IF EXISTS fresh CASCADE")


def made(address: str) -> PostgresProvider:
    return PostgresProvider(address, clock=SystemClock())


async def test_many_may_start_at_once(server: Server, address: str) -> None:
    providers = [made(address) for _ in range(8)]
    await asyncio.gather(*(provider.open() for provider in providers))
    await asyncio.gather(
        *(provider.enqueue([NewItem(f"i{at}", "q", "n", "{}")]) for at, provider in enumerate(providers))
    )
    assert len(await providers[0].items("q")) == 8
    await asyncio.gather(*(provider.close() for provider in providers))
    rows = await run_sql(server.address(), "SELECT schema_version FROM fresh.meta")
    assert [row[0] for row in rows] == [max(migrations())]


async def test_opening_again_changes_nothing(address: str) -> None:
    for _ in range(2):
        provider = made(address)
        await provider.open()
        await provider.open()
        await provider.enqueue([NewItem("a", "q", "n", "{}")])
        assert [row.id for row in await provider.items("q")] == ["a"]
        await provider.close()
        await provider.close()


async def test_schemas_of_one_database_are_stores_apart(server: Server, address: str) -> None:
    await run_sql(server.address(), "DROP SCHEMA IF EXISTS other CASCADE")
    one, two = made(address), made(server.address(options="?schema=other"))
    await one.open()
    await two.open()
    await one.enqueue([NewItem("a", "q", "n", "{}")])
    assert (len(await one.items("q")), len(await two.items("q"))) == (1, 0)
    await one.close()
    await two.close()


@pytest.mark.parametrize("version", range(1, max(migrations())))
async def test_an_older_schema_is_brought_up_to_date(server: Server, address: str, version: int) -> None:
    plain = server.address()
    await run_sql(plain, "CREATE SCHEMA fresh")
    connection = await asyncpg.connect(plain)
    for number in range(1, version + 1):
        await connection.execute(migrations()[number].replace("bide.", "fresh."))
    await connection.execute("INSERT INTO fresh.polls (name, due, paused) VALUES ('eu.price', 5, true)")
    await connection.execute(f"INSERT INTO fresh.meta VALUES ({version}, '0')")
    await connection.close()
    provider = made(address)
    await provider.open()
    assert [(row.name, row.due_at, row.paused) for row in await provider.poll_rows()] == [
        ("eu.price", 5, True)
    ]
    await provider.close()


async def test_a_newer_schema_is_refused_by_name(server: Server, address: str) -> None:
    provider = made(address)
    await provider.open()
    await provider.close()
    await run_sql(server.address(), "UPDATE fresh.meta SET schema_version = 99, written_by = '7.1'")
    with pytest.raises(
        ProviderNewer, match=r"written by bide 7\.1 \(schema 99\).*upgrade to bide 7\.1"
    ) as raised:
        await made(address).open()
    assert not raised.value.retryable
    assert (await run_sql(server.address(), "SELECT schema_version FROM fresh.meta"))[0][0] == 99


async def test_what_is_another_programs_is_left_alone(server: Server, address: str) -> None:
    await run_sql(server.address(), "CREATE SCHEMA fresh")
    await run_sql(server.address(), "CREATE TABLE fresh.events (mine text)")
    with pytest.raises(ProviderError, match=r"another program's .*'events'.*schema="):
        await made(address).open()
    rows = await run_sql(
        server.address(), "SELECT relname FROM pg_class WHERE relnamespace = 'fresh'::regnamespace"
    )
    assert [row[0] for row in rows] == ["events"]


async def test_nobody_knows_who_wrote_it(server: Server, address: str) -> None:
    provider = made(address)
    await provider.open()
    await provider.close()
    await run_sql(server.address(), "DELETE FROM fresh.meta")
    with pytest.raises(ProviderCorrupt, match="'meta' is empty"):
        await made(address).open()
