"""Transactions of the caller on SQLite, and enqueueing within them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from bide.errors import ProviderError
from bide.provider import Enqueued, NewItem
from bide.providers.sqlite import writer
from bide.providers.sqlite.database import Database
from bide.providers.sqlite.enqueueing import insert_items
from bide.providers.sqlite.holding import LONGEST, TOO_LONG, Held


class SqliteTransaction:
    """A transaction of the caller's. While it is open nobody else writes to the file, in this process or another."""

    def __init__(self, database: Database, held: Held) -> None:
        self.database = database
        self.held = held

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and answer its rows. Raises ``ProviderError`` where SQLite refuses it."""
        return await self.held.run(_execute, (statement, tuple(parameters)))


class SqliteJoining:
    """The joining part of :class:`bide.provider.Provider`."""

    _database: Database

    async def enqueue_within(self, transaction: object, items: Sequence[NewItem]) -> list[Enqueued]:
        if not isinstance(transaction, SqliteTransaction) or transaction.database is not self._database:
            raise TypeError(
                f"{type(transaction).__name__} is no transaction of this store; "
                "it knows those of its own transaction()"
            )
        return await transaction.held.run(_enqueue, items)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SqliteTransaction]:
        database = self._database
        async with database.held() as held:
            limit = asyncio.ensure_future(_limit(database, held))
            try:
                yield SqliteTransaction(database, held)
            except BaseException:
                with suppress(ProviderError):
                    await held.roll_back()
                raise
            else:
                await held.commit()
            finally:
                limit.cancel()


async def _limit(database: Database, held: Held) -> None:
    """End it in time by the clock of the application; its thread does so by itself should this loop be blocked."""
    await database.clock.sleep(LONGEST.total_seconds())
    held.end(TOO_LONG)


def _execute(transaction: writer.Transaction, request: tuple[str, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    statement, parameters = request
    return transaction.rows(statement, parameters)


def _enqueue(transaction: writer.Transaction, items: Sequence[NewItem]) -> list[Enqueued]:
    """Put in all or none."""
    connection = transaction.connection
    connection.execute("SAVEPOINT enqueue")
    try:
        return insert_items(transaction, items)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO enqueue")
        raise
    finally:
        if connection.in_transaction:
            connection.execute("RELEASE enqueue")
