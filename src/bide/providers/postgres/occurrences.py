"""Instants of periodic schedules on PostgreSQL: each happens once, whoever comes to it first."""

from __future__ import annotations

from collections.abc import Mapping

from bide.provider import NewItem
from bide.providers.postgres.database import Database
from bide.providers.postgres.items import columns_of, enqueue
from bide.providers.postgres.session import Session, Transaction
from bide.providers.postgres.texts import shown, stored

_OCCURRED = "SELECT name, last_at FROM bide.occurred($1, $2, $3)"
_OCCUR = "SELECT bide.occur($1, $2)"


class PostgresOccurrences:
    """The occurrences part of :class:`bide.provider.Provider`."""

    _database: Database

    async def occurred(self, schedules: Mapping[str, tuple[str, int]]) -> dict[str, int]:
        if not schedules:
            return {}
        given = ((stored(name), stored(rule), after) for name, (rule, after) in schedules.items())
        rows = await self._database.rows(_OCCURRED, *columns_of(given))
        return {shown(name): last_at for name, last_at in rows}

    async def occur(self, name: str, at: int, item: NewItem) -> bool:
        async def enqueued(transaction: Transaction) -> bool:
            if not await transaction.value(_OCCUR, stored(name), at):
                return False
            await enqueue(transaction.rows, [item])
            return True

        async def act(session: Session) -> bool:
            happened = await session.atomically(enqueued)
            if happened:
                self._database.wake(session)
            return happened

        return await self._database.run(act)
