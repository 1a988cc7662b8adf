"""What an examination looks at of a server: its version, settings, and what goes on in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from bide.clock import Clock
from bide.core.addresses import PostgresAddress
from bide.core.durations import format_duration
from bide.core.findings import Finding

OLDEST = 160_000
"""The oldest version that bide is tested on, as ``server_version_num`` has it."""

BESIDES_POOL = 3
"""Connections of a process besides its pool: one that listens, two that renew locks."""

LONG = timedelta(minutes=5)
"""Transactions that are open for longer keep dead rows from being removed."""

_SETTING = "SELECT current_setting($1)"

_TAKEN = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int
"""

_OLDEST_OPEN = """
SELECT extract(epoch FROM clock_timestamp() - min(xact_start))::float8,
       pg_has_role('pg_read_all_stats', 'USAGE')
FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


async def _version(connection: Any, address: PostgresAddress, clock: Clock) -> Finding:
    number = int(await connection.fetchval(_SETTING, "server_version_num"))
    name = await connection.fetchval(_SETTING, "server_version")
    if number < OLDEST:
        step = f"use PostgreSQL {OLDEST // 10_000} or newer"
        return Finding("version", "doubtful", f"PostgreSQL {name}, which bide is not tested on", step)
    return Finding("version", "good", f"PostgreSQL {name}")


async def _encoding(connection: Any, address: PostgresAddress, clock: Clock) -> Finding:
    encoding = await connection.fetchval(_SETTING, "server_encoding")
    if encoding != "UTF8":
        return Finding(
            "encoding",
            "refused",
            f"the database is encoded as {encoding}, which cannot hold every text",
            "use a database with ENCODING 'UTF8'",
        )
    return Finding("encoding", "good", encoding)


async def _writes(connection: Any, address: PostgresAddress, clock: Clock) -> Finding:
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        step = "name the primary in the address, or add target_session_attrs=read-write"
        return Finding("writes", "refused", "the server is a standby and takes none", step)
    if await connection.fetchval(_SETTING, "transaction_read_only") == "on":
        step = "set default_transaction_read_only = off for the user or the database"
        return Finding("writes", "refused", "transactions of this user are read-only", step)
    return Finding("writes", "good", "the server takes them")


async def _durability(connection: Any, address: PostgresAddress, clock: Clock) -> Finding:
    off = [
        name
        for name in ("fsync", "full_page_writes", "synchronous_commit")
        if await connection.fetchval(_SETTING, name) == "off"
    ]
    if off:
        are = "is" if len(off) == 1 else "are"
        step = f"set {off[0]} = on, unless what is lost may be lost"
        return Finding(
            "durability", "doubtful", f"{' and '.join(off)} {are} off: a crash may lose what was kept", step
        )
    return Finding("durability", "good", "what is committed is on disk")


async def _isolation(connection: Any, address: PostgresAddress, clock: Clock) -> Finding:
    level = await connection.fetchval(_SETTING, "default_transaction_isolation")
    if level != "read committed":
        step = "set default_transaction_isolation = 'read committed' for bide's user"
        return Finding("isolation", "doubtful", f"{level} by default, so that workers fail each other", step)
    return Finding("isolation", "good", level)


async def _vacuum(connection: Any, address: PostgresAddress, clock: Clock) -> Finding:
    on = await connection.fetchval(_SETTING, "autovacuum")
    counts = await connection.fetchval(_SETTING, "track_counts")
    if "off" in {on, counts}:
        name = "autovacuum" if on == "off" else "track_counts"
        return Finding(
            "vacuum", "doubtful", f"{name} is off: queues grow and become slow", f"set {name} = on"
        )
    pause = await connection.fetchval(_SETTING, "autovacuum_naptime")
    return Finding("vacuum", "good", f"looks for dead rows every {pause}")


async def _connections(connection: Any, address: PostgresAddress, clock: Clock) -> Finding:
    most, taken = await connection.fetchrow(_TAKEN)
    wanted, left = address.pool + BESIDES_POOL, most - taken
    found = f"{left} of {most} are free; a process takes up to {wanted}"
    if left < wanted:
        step = "raise max_connections, or make ?pool= smaller"
        return Finding("connections", "doubtful", found, step, left, "connections")
    return Finding("connections", "good", found, "", left, "connections")


async def _open_transactions(connection: Any, address: PostgresAddress, clock: Clock) -> Finding:
    seconds, may_see = await connection.fetchrow(_OLDEST_OPEN)
    if seconds is not None and seconds > LONG.total_seconds():
        age = format_duration(timedelta(seconds=round(seconds)))
        return Finding(
            "open transactions",
            "doubtful",
            f"one is open for {age}, and no dead row younger than it is removed",
            "see pg_stat_activity for whose it is; set idle_in_transaction_session_timeout = 5min",
            seconds,
            "s",
        )
    if not may_see:
        return Finding(
            "open transactions",
            "unknown",
            "the user sees only its own",
            "GRANT pg_read_all_stats TO it, to have them looked at",
        )
    return Finding("open transactions", "good", "none is old")


SERVER_CHECKS: tuple[tuple[str, Callable[[Any, PostgresAddress, Clock], Awaitable[Finding]]], ...] = (
    ("version", _version),
    ("encoding", _encoding),
    ("writes", _writes),
    ("durability", _durability),
    ("isolation", _isolation),
    ("vacuum", _vacuum),
    ("connections", _connections),
    ("open transactions", _open_transactions),
)
"""What is looked at, under its subject."""
