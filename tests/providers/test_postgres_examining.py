"""What ``doctor`` finds out about a server of PostgreSQL, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from bide.clock import SystemClock
from bide.core.findings import Finding, is_usable
from bide.providers.postgres import PostgresProvider, examining, serving
from bide.providers.postgres.examining import examine
from tests.providers.postgres_server import Server, free_port, run_sql
from tests.providers.transaction_pooler import Pooler

NOWHERE = Path("/nowhere")


async def examined(address: str) -> dict[str, Finding]:
    found = [finding async for finding in examine(address, NOWHERE, SystemClock())]
    assert max(Counter(finding.subject for finding in found).values()) == 1
    return {finding.subject: finding for finding in found}


async def objects(server: Server) -> list[tuple[str, ...]]:
    """Every schema and table of the database."""
    rows = await run_sql(
        server.address(),
        "SELECT nspname::text, coalesce(relname::text, '') FROM pg_namespace "
        "LEFT JOIN pg_class ON relnamespace = pg_namespace.oid WHERE nspname !~ '^(pg_|information)'",
    )
    return sorted(tuple(row) for row in rows)


async def made(server: Server, schema: str) -> None:
    provider = PostgresProvider(server.address(options=f"?schema={schema}"), clock=SystemClock())
    await provider.open()
    await provider.close()


async def test_a_server_is_examined_and_nothing_is_left_there(server: Server) -> None:
    before = await objects(server)
    found = await examined(server.address(options="?schema=untouched"))
    assert is_usable(list(found.values()))
    assert found["durability"].judgement == "doubtful"  # the tests' servers are forgetful
    assert "fsync" in found["durability"].found
    others = {name: one.judgement for name, one in found.items() if name != "durability"}
    assert set(others.values()) == {"good"}, others
    assert found["round trip"].value is not None
    assert 0 < found["round trip"].value < 1000
    assert await objects(server) == before


async def test_a_store_that_is_there_says_its_version(server: Server) -> None:
    await made(server, "there")
    found = await examined(server.address(options="?schema=there"))
    assert found["schema"].found.startswith("version ")
    assert "write the tables" in found["permissions"].found


async def test_a_newer_schema_and_another_programs_are_refused(server: Server) -> None:
    await made(server, "newer")
    await run_sql(server.address(), "UPDATE newer.meta SET schema_version = 99, written_by = '9.9'")
    schema = (await examined(server.address(options="?schema=newer")))["schema"]
    assert (schema.judgement, "bide 9.9" in schema.found) == ("refused", True)
    await run_sql(server.address(), "CREATE SCHEMA IF NOT EXISTS theirs")
    await run_sql(server.address(), "CREATE TABLE IF NOT EXISTS theirs.polls (x int)")
    assert (await examined(server.address(options="?schema=theirs")))["schema"].judgement == "refused"


async def test_a_user_who_may_do_nothing_is_refused_with_what_to_grant(server: Server) -> None:
    await made(server, "closed")
    await run_sql(server.address(), "DROP ROLE IF EXISTS guest")
    await run_sql(server.address(), "CREATE ROLE guest LOGIN")
    found = await examined(server.address(user="guest", options="?schema=fresh"))
    assert found["permissions"].judgement == "refused"
    assert "CREATE" in found["permissions"].step
    assert found["open transactions"].judgement == "unknown"
    await run_sql(server.address(), "GRANT USAGE ON SCHEMA closed TO guest")
    await run_sql(server.address(), "GRANT SELECT ON closed.meta TO guest")
    found = await examined(server.address(user="guest", options="?schema=closed"))
    assert found["permissions"].judgement == "refused"
    assert "work_items" in found["permissions"].found
    await run_sql(
        server.address(), "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA closed TO guest"
    )
    assert (await examined(server.address(user="guest", options="?schema=closed")))[
        "permissions"
    ].judgement == "good"


async def test_a_pooler_of_transactions_is_noticed(server: Server) -> None:
    async with Pooler(server.port) as pooler:
        address = f"postgresql://bide@127.0.0.1:{pooler.port}/postgres"
        found = await examined(address)
        assert found["pooler"].judgement == "refused"
        assert "?listen=false" in found["pooler"].step
        assert found["wake-ups"].judgement == "doubtful"
        found = await examined(f"{address}?listen=false")
        assert found["pooler"].judgement == found["wake-ups"].judgement == "good"


async def test_settings_that_lose_or_slow_something_are_doubtful(server: Server) -> None:
    await run_sql(server.address(), "DROP ROLE IF EXISTS careless")
    await run_sql(server.address(), "CREATE ROLE careless LOGIN SUPERUSER")
    for setting in ("default_transaction_isolation = 'serializable'", "synchronous_commit = off"):
        await run_sql(server.address(), f"ALTER ROLE careless SET {setting}")
    found = await examined(server.address(user="careless", options="?pool=500"))
    for subject, said in (
        ("isolation", "serializable"),
        ("durability", "synchronous_commit"),
        ("connections", "503"),
    ):
        assert found[subject].judgement == "doubtful"
        assert said in found[subject].found
        assert found[subject].step


async def test_a_user_whose_transactions_are_read_only_is_refused(server: Server) -> None:
    await run_sql(server.address(), "DROP ROLE IF EXISTS reader")
    await run_sql(server.address(), "CREATE ROLE reader LOGIN")
    await run_sql(server.address(), "ALTER ROLE reader SET default_transaction_read_only = on")
    found = await examined(server.address(user="reader"))
    assert found["writes"].judgement == "refused"


async def test_a_database_of_another_encoding_is_refused(server: Server) -> None:
    await run_sql(server.address(), "DROP DATABASE IF EXISTS latin")
    await run_sql(server.address(), "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    found = await examined(server.address("latin"))
    assert (found["encoding"].judgement, "LATIN1" in found["encoding"].found) == ("refused", True)


async def test_a_transaction_that_is_open_for_long_is_doubtful(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "LONG", timedelta(milliseconds=10))
    holder = await asyncpg.connect(server.address())
    try:
        async with holder.transaction():
            await holder.fetch("SELECT 1")
            await asyncio.sleep(0.05)
            found = await examined(server.address())
    finally:
        await holder.close()
    assert found["open transactions"].judgement == "doubtful"


@pytest.mark.parametrize("user", ["bide:wrong-canary", "nobody_there"])
async def test_a_server_that_refuses_is_one_finding_without_the_password(server: Server, user: str) -> None:
    await run_sql(server.address(), "DROP ROLE IF EXISTS locked")
    await run_sql(server.address(), "CREATE ROLE locked LOGIN PASSWORD 'right'")
    name = "locked:wrong-canary" if "canary" in user else user
    found = await examined(server.address(user=name))
    assert list(found) == ["connection"]
    assert found["connection"].judgement == "refused"
    assert found["connection"].step
    assert "canary" not in str(found)


async def test_a_server_that_is_not_there_is_one_finding() -> None:
    found = await examined(f"postgresql://bide@127.0.0.1:{free_port()}/x")
    (finding,) = found.values()
    assert (finding.subject, finding.judgement) == ("connection", "refused")
    assert "cannot be reached" in finding.found
    assert "check that it runs" in finding.step


async def test_a_server_that_answers_nothing_is_a_finding_in_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(examining, "CONNECT_S", 0.2)

    hung_up = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        hung_up.set()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        found = await examined(f"postgresql://bide@127.0.0.1:{port}/x")
        await hung_up.wait()
    assert list(found) == ["connection"]


async def test_an_examination_that_is_given_up_leaves_no_connection(server: Server) -> None:
    found = examine(server.address(options="?application_name=doctors"), NOWHERE, SystemClock())
    async for finding in found:
        if finding.subject == "permissions":
            break
    await found.aclose()
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'doctors'"
    async with asyncio.timeout(10):
        while (await run_sql(server.address(), count))[0][0]:  # noqa: ASYNC110 - the server is waited for
            await asyncio.sleep(0.02)
