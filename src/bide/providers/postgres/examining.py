"""Is a PostgreSQL server as bide needs it? On connections of its own; what is tried is rolled back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg

from bide.clock import Clock
from bide.core.addresses import PostgresAddress, postgres_address
from bide.core.findings import Finding
from bide.errors import ProviderError
from bide.providers.examining import in_ms, median_ms, of_error
from bide.providers.postgres.faults import FAULTS, explained
from bide.providers.postgres.migrations import HAS_SCHEMA, migrations, version_of
from bide.providers.postgres.serving import SERVER_CHECKS
from bide.providers.postgres.session import CONNECT_S
from bide.providers.postgres.texts import for_schema

SLOW_MS = 20.0
CLOCK_MS = 1000
"""Milliseconds that the clocks of server and client may differ by before it is said."""

HEARD_S = 3.0
"""Seconds in which a notification comes, if it does."""

STEP_S = 10.0
"""Seconds for one thing to be found out."""

_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_PID = "SELECT pg_backend_pid()"

_TRIAL = "CREATE TABLE bide.doctor_trial (at bigint); INSERT INTO bide.doctor_trial VALUES (1)"

_NOT_ALLOWED = """
SELECT relname::text FROM pg_class
WHERE relnamespace = $1::text::regnamespace AND relkind = 'r'
  AND NOT (has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
           AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE'))
ORDER BY relname
"""

Check = Callable[[Any, PostgresAddress, Clock], Awaitable[Finding]]


async def examine(address: str, folder: Path, clock: Clock) -> AsyncGenerator[Finding, None]:
    """What there is to say of the server and the schema that ``address`` names."""
    parsed = postgres_address(address)
    try:
        connection = await _connected(parsed)
    except FAULTS as error:
        yield of_error("connection", explained(error, parsed.place))
        return
    try:
        for subject, check in _CHECKS:
            finding = await _within_bounds(subject, check(connection, parsed, clock), parsed)
            yield finding
            if connection.is_closed():
                return
        for pooler in (_pooler, _wake_ups):
            yield await _within_bounds("wake-ups", pooler(connection, parsed), parsed)
    finally:
        connection.terminate()


async def _connected(address: PostgresAddress) -> Any:
    """A connection on which nothing is prepared, so that it also goes through a pooler of transactions."""
    return await asyncpg.connect(
        address.dsn, timeout=CONNECT_S, command_timeout=STEP_S, statement_cache_size=0
    )


async def _within_bounds(subject: str, check: Awaitable[Finding], address: PostgresAddress) -> Finding:
    """What ``check`` finds; an error that it meets, or that it takes too long, is a finding too."""
    try:
        async with asyncio.timeout(2 * STEP_S):
            return await check
    except asyncpg.InsufficientPrivilegeError as error:
        return Finding(
            subject, "unknown", f"the user may not see that ({error})", "let an administrator look"
        )
    except FAULTS as error:
        return of_error(subject, explained(error, address.place))
    except ProviderError as error:
        return of_error(subject, error)


async def _round_trip(connection: Any, address: PostgresAddress, clock: Clock) -> Finding:
    ms = await median_ms(clock, lambda: connection.fetchval("SELECT 1"))
    found = f"{in_ms(ms)} (median of 21)"
    if ms > SLOW_MS:
        return Finding("round trip", "doubtful", found, "run workers nearer to the server", ms, "ms")
    return Finding("round trip", "good", found, "", ms, "ms")


async def _clock_difference(connection: Any, address: PostgresAddress, clock: Clock) -> Finding:
    before = clock.utc_ms()
    server = await connection.fetchval(_NOW)
    ahead = int(server) - (before + clock.utc_ms()) // 2
    way = "ahead of" if ahead >= 0 else "behind"
    found = f"the server's is {in_ms(abs(ahead))} {way} this machine's"
    if abs(ahead) > CLOCK_MS:
        step = "set both by a time server: instants that you give are compared with the server's clock"
        return Finding("clock", "doubtful", found, step, ahead, "ms")
    return Finding("clock", "good", found, "", ahead, "ms")


async def _permissions(connection: Any, address: PostgresAddress, clock: Clock) -> Finding:
    """Make a table in the schema, and the schema where there is none; and take both back.

    Where the tables are all there already, see only whether they may be written.
    """
    with contextlib.suppress(ProviderError):  # which the look at the schema says
        if await version_of(connection, address) == max(migrations()):
            return await _table_permissions(connection, address)
    trial = connection.transaction()
    await trial.start()
    try:
        if not await connection.fetchval(HAS_SCHEMA, address.schema):
            await connection.execute(f'CREATE SCHEMA "{address.schema}"')
        await connection.execute(for_schema(_TRIAL, address.schema))
    except asyncpg.InsufficientPrivilegeError as error:
        return Finding(
            "permissions",
            "refused",
            f"the user may not make tables in schema {address.schema!r} ({error})",
            "let it CREATE in the database, or make it the owner of the schema",
        )
    finally:
        with contextlib.suppress(*FAULTS):
            await trial.rollback()
    return Finding("permissions", "good", f"the user may make and write tables in schema {address.schema!r}")


async def _table_permissions(connection: Any, address: PostgresAddress) -> Finding:
    refused = [name for (name,) in await connection.fetch(_NOT_ALLOWED, address.schema)]
    if refused:
        return Finding(
            "permissions",
            "refused",
            f"the user may not read and write {', '.join(refused)} in schema {address.schema!r}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {address.schema} to it",
        )
    return Finding("permissions", "good", f"the user may write the tables in schema {address.schema!r}")


async def _schema(connection: Any, address: PostgresAddress, clock: Clock) -> Finding:
    version, newest = await version_of(connection, address), max(migrations())
    if not version:
        return Finding("schema", "good", "there are no tables of bide's yet; the first start makes them")
    if version < newest:
        return Finding("schema", "good", f"version {version}; the next start brings it to {newest}")
    return Finding("schema", "good", f"version {version}")


_CHECKS: tuple[tuple[str, Check], ...] = (
    ("round trip", _round_trip),
    *SERVER_CHECKS,
    ("clock", _clock_difference),
    ("permissions", _permissions),
    ("schema", _schema),
)


# --- what two connections show -------------------------------------------------------------------------------


async def _pooler(connection: Any, address: PostgresAddress) -> Finding:
    """Whether statements of one connection come to several backends, as behind a pooler of transactions."""
    other = await _connected(address)
    try:
        pids = {await connection.fetchval(_PID)}
        async with other.transaction():
            await other.fetchval(_PID)
            pids |= {await connection.fetchval(_PID) for _ in range(3)}
        pids.add(await connection.fetchval(_PID))
    finally:
        other.terminate()
    if len(pids) == 1:
        said = "" if address.listen else "; the address has ?listen=false, which is for poolers"
        return Finding("pooler", "good", f"each connection keeps its backend{said}")
    if not address.listen:
        return Finding("pooler", "good", "of transactions, as the address says")
    return Finding(
        "pooler",
        "refused",
        "a pooler of transactions is in between, which carries neither prepared statements nor wake-ups",
        "add ?listen=false to the address",
    )


async def _wake_ups(connection: Any, address: PostgresAddress) -> Finding:
    """Whether what one connection tells, another one hears."""
    if not address.listen:
        return Finding("wake-ups", "good", "none, as the address says: waiting workers look each second")
    channel = f"bide:doctor:{id(connection):x}"
    heard = asyncio.Event()
    listening = await _connected(address)
    try:
        await listening.add_listener(channel, lambda *_: heard.set())
        await connection.execute("SELECT pg_notify($1, '')", channel)
        async with asyncio.timeout(HEARD_S):
            await heard.wait()
    except TimeoutError:
        return Finding(
            "wake-ups",
            "doubtful",
            f"a notification did not arrive in {HEARD_S:.0f} s: waiting workers only look now and then",
            "behind a pooler of transactions add ?listen=false to the address",
        )
    finally:
        listening.terminate()
    return Finding("wake-ups", "good", "processes wake each other by LISTEN and NOTIFY")
