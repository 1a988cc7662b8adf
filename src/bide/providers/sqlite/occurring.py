"""Instants of periodic schedules on SQLite, each of which happens once."""

from __future__ import annotations

from collections.abc import Mapping

from bide.provider import NewItem
from bide.providers.sqlite.database import Database
from bide.providers.sqlite.enqueueing import insert_items
from bide.providers.sqlite.writer import Transaction

_KEEP = """
INSERT INTO schedules (name, rule, last_at) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET rule = ?2, last_at = ?3 WHERE rule <> ?2
"""

_LAST = "SELECT last_at FROM schedules WHERE name = ?"

_HAPPEN = "UPDATE schedules SET last_at = ?2 WHERE name = ?1 AND last_at < ?2 RETURNING 1"


class SqliteOccurrences:
    """The occurrences part of :class:`bide.provider.Provider`."""

    _database: Database

    async def occurred(self, schedules: Mapping[str, tuple[str, int]]) -> dict[str, int]:
        return await self._database.write(_occurred, dict(schedules))

    async def occur(self, name: str, at: int, item: NewItem) -> bool:
        return await self._database.write(_occur, (name, at, item))


def _occurred(transaction: Transaction, schedules: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    last = {}
    for name, (rule, after) in schedules.items():
        transaction.row(_KEEP, (name, rule, after))
        (last[name],) = transaction.row(_LAST, (name,))
    return last


def _occur(transaction: Transaction, request: tuple[str, int, NewItem]) -> bool:
    name, at, item = request
    if transaction.row(_HAPPEN, (name, at)) is None:
        return False
    insert_items(transaction, [item])
    return True
