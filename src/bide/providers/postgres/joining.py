"""Enqueueing within transactions of the caller: those that this store issues, and those of the usual drivers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bide.errors import ProviderError
from bide.provider import Enqueued, NewItem
from bide.providers.postgres.callers import enqueue_within
from bide.providers.postgres.database import Database
from bide.providers.postgres.items import enqueue_all
from bide.providers.postgres.session import Lease


class PostgresTransaction:
    """A transaction on a connection of the store's. Statements have ``$1``, ``$2`` … for their parameters."""

    def __init__(self, database: Database, lease: Lease) -> None:
        self._database = database
        self._lease: Lease | None = lease
        self._enqueued = False

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and answer its rows. Raises ``ProviderError``, and then nothing can be committed."""
        lease = self._open()
        rows = await self._database.on(lease.session, lambda: lease.run(statement, *parameters))
        return [tuple(row) for row in rows]

    async def enqueue(self, items: Sequence[NewItem], database: Database) -> list[Enqueued]:
        """Store ``items`` with it. Raises ``KeyConflict``, ``ProviderError``, and ``TypeError`` on another store."""
        if database is not self._database:
            raise TypeError(
                "this transaction is one of another store; enqueue with the provider that it is of"
            )
        lease = self._open()
        enqueued = await database.on(lease.session, lambda: enqueue_all(lease.rows, items))
        self._enqueued = True
        return enqueued

    async def end(self, *, commit: bool) -> None:
        """Commit or roll back, and give the connection back. Raises ``ProviderError`` where it was not committed."""
        lease, self._lease = self._open(), None
        await self._database.on(lease.session, lambda: lease.end(commit=commit))
        if commit and self._enqueued:
            self._database.wake(lease.session)

    def _open(self) -> Lease:
        if self._lease is None:
            raise ProviderError("the transaction has ended; enqueue within its block")
        return self._lease


class PostgresJoining:
    """The joining part of :class:`bide.provider.Provider`."""

    _database: Database

    async def enqueue_within(self, transaction: object, items: Sequence[NewItem]) -> list[Enqueued]:
        """As the contract has it, within :meth:`transaction`'s, or on a connection of the caller's that is in one:
        asyncpg's, psycopg's (also async), or SQLAlchemy's connections and sessions (also async).

        Raises :class:`~bide.errors.KeyConflict`, ``TypeError`` for anything else, ``ValueError`` for a connection
        that is in no transaction, and :class:`~bide.errors.ProviderError` where the driver fails.
        """
        if isinstance(transaction, PostgresTransaction):
            return await transaction.enqueue(items, self._database) if items else []
        return await enqueue_within(transaction, items, self._database.address.schema)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresTransaction]:
        database = self._database
        session = await database.session()
        transaction = PostgresTransaction(database, await database.on(session, session.lease))
        try:
            yield transaction
        except BaseException:
            await transaction.end(commit=False)
            raise
        await transaction.end(commit=True)
