"""One statement on a connection of the caller's, whichever driver made it.

Only classes of drivers that are loaded already can be what is given, so none is imported for this.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bide.errors import KeyConflict, ProviderError
from bide.provider import Enqueued, NewItem
from bide.providers.postgres.items import as_json
from bide.providers.postgres.texts import for_schema, shown

_ENQUEUE = "SELECT id, new, conflict FROM bide.bide_enqueue(CAST({} AS jsonb), false)"

KNOWN = (
    "a transaction of its own transaction(), an asyncpg Connection, a psycopg Connection or AsyncConnection, "
    "or a Session, AsyncSession, Connection or AsyncConnection of SQLAlchemy"
)

Run = Callable[[Any, str, str], Awaitable[Sequence[Any]]]
"""Runs the statement for a schema with the items as JSON; its rows."""


async def enqueue_within(transaction: object, items: Sequence[NewItem], schema: str) -> list[Enqueued]:
    """Store ``items`` by the SQL function ``bide_enqueue`` on the caller's connection."""
    run = _runner_of(transaction)
    if not items:
        return []
    given = json.dumps([as_json(item) for item in items])
    try:
        rows = await run(transaction, schema, given)
    except (ValueError, TypeError):
        raise
    except Exception as error:  # each driver has errors of its own
        reason = str(error).partition("\n")[0]
        raise ProviderError(
            f"enqueueing within the transaction failed ({type(error).__name__}: {reason})"
        ) from error
    for item, (kept, _, conflict) in zip(items, rows, strict=True):
        if conflict:
            raise KeyConflict(item.queue, item.name, item.key or "", shown(kept))
    return [Enqueued(shown(kept), new) for kept, new, _ in rows]


def _runner_of(transaction: object) -> Run:
    for module, name, run in _DRIVERS:
        known = getattr(sys.modules.get(module), name, None)
        if known is not None and isinstance(transaction, known):
            return run
    raise TypeError(
        f"{type(transaction).__name__} is no transaction that PostgreSQL can enqueue within; give {KNOWN}"
    )


async def _on_asyncpg(connection: Any, schema: str, given: str) -> Sequence[Any]:
    if not connection.is_in_transaction():
        raise ValueError(
            "the asyncpg connection is in no transaction; use `async with connection.transaction():`"
        )
    rows: list[Any] = await connection.fetch(for_schema(_ENQUEUE.format("$1::text"), schema), given)
    return rows


async def _on_psycopg(connection: Any, schema: str, given: str) -> Sequence[Any]:
    _refuse_autocommit(connection)
    return await asyncio.to_thread(
        lambda: connection.cursor(row_factory=_tuples()).execute(_psycopg_text(schema), (given,)).fetchall()
    )


async def _on_async_psycopg(connection: Any, schema: str, given: str) -> Sequence[Any]:
    _refuse_autocommit(connection)
    cursor = await connection.cursor(row_factory=_tuples()).execute(_psycopg_text(schema), (given,))
    rows: list[Any] = await cursor.fetchall()
    return rows


async def _on_sqlalchemy(connection: Any, schema: str, given: str) -> Sequence[Any]:
    return await asyncio.to_thread(
        lambda: connection.execute(_sqlalchemy_text(schema), {"items": given}).all()
    )


async def _on_async_sqlalchemy(connection: Any, schema: str, given: str) -> Sequence[Any]:
    result = await connection.execute(_sqlalchemy_text(schema), {"items": given})
    rows: Sequence[Any] = result.all()
    return rows


def _refuse_autocommit(connection: Any) -> None:
    if connection.autocommit and connection.info.transaction_status == 0:
        raise ValueError("the psycopg connection commits by itself; use `with connection.transaction():`")


def _tuples() -> Any:
    return sys.modules["psycopg"].rows.tuple_row


def _psycopg_text(schema: str) -> str:
    return for_schema(_ENQUEUE.format("%s"), schema)


def _sqlalchemy_text(schema: str) -> Any:
    return sys.modules["sqlalchemy"].text(for_schema(_ENQUEUE.format(":items"), schema))


_DRIVERS: tuple[tuple[str, str, Run], ...] = (
    ("asyncpg", "Connection", _on_asyncpg),
    ("asyncpg.pool", "PoolConnectionProxy", _on_asyncpg),
    ("psycopg", "Connection", _on_psycopg),
    ("psycopg", "AsyncConnection", _on_async_psycopg),
    ("sqlalchemy.orm", "Session", _on_sqlalchemy),
    ("sqlalchemy.engine", "Connection", _on_sqlalchemy),
    ("sqlalchemy.ext.asyncio", "AsyncSession", _on_async_sqlalchemy),
    ("sqlalchemy.ext.asyncio", "AsyncConnection", _on_async_sqlalchemy),
)
