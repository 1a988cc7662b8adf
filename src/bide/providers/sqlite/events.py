"""Subscriptions and events on SQLite."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from bide.provider import EventRow, Subscription, SubscriptionRow
from bide.providers.fanout import delivery_of, envelope_of
from bide.providers.sqlite import subscriptions as rows_of
from bide.providers.sqlite.database import Database
from bide.providers.sqlite.enqueueing import insert_items
from bide.providers.sqlite.items import as_json
from bide.providers.sqlite.mending import begin_anew
from bide.providers.sqlite.writer import Transaction

REPLAYED_AT_ONCE = 500
"""Events that one transaction of a replay looks at, so that others get their turn."""

_EVENTS = """
SELECT seq, id, name, poll, CAST(payload AS BLOB), digest, created_at, occurred_at, previous_id FROM events
WHERE seq > :after AND (:names IS NULL OR name IN (SELECT value FROM json_each(:names)))
"""

_TO_REPLAY = """
SELECT seq, id, name, poll, CAST(payload AS BLOB), digest, created_at, occurred_at, previous_id,
    (SELECT CAST(earlier.payload AS BLOB) FROM events AS earlier WHERE earlier.id = events.previous_id)
FROM events
WHERE name = ? AND seq > ? AND created_at >= ?
ORDER BY seq LIMIT 0 + ?
"""


class SqliteEvents:
    """The events part of :class:`bide.provider.Provider`."""

    _database: Database

    async def register_subscriptions(self, subscriptions: Sequence[Subscription]) -> list[str]:
        return await self._database.write(rows_of.register, subscriptions)

    async def subscriptions(self) -> list[SubscriptionRow]:
        return await self._database.read(rows_of.all_rows, None)

    async def end_subscriptions(self, names: Collection[str], reason: str) -> list[str]:
        return await self._database.write(rows_of.end, (names, reason))

    async def resume_subscriptions(self, names: Collection[str]) -> list[str]:
        return await self._database.write(rows_of.resume, names)

    async def events(
        self, *, after: int = 0, names: Collection[str] | None = None, limit: int = 100, newest: bool = False
    ) -> list[EventRow]:
        return await self._database.read(_events, (after, names, limit, newest))

    async def replay(self, subscriber: str, since: int) -> int:
        replayed, after = 0, 0
        while True:
            count, last = await self._database.write(_replay_some, (subscriber, since, after))
            replayed += count
            if last is None:
                return replayed
            after = last


def _events(
    transaction: Transaction, request: tuple[int, Collection[str] | None, int, bool]
) -> list[EventRow]:
    after, names, limit, newest = request
    bindings = {"after": after, "names": None if names is None else as_json(names), "limit": limit}
    order = "DESC" if newest else "ASC"
    rows = transaction.rows(f"{_EVENTS} ORDER BY seq {order} LIMIT 0 + :limit", bindings)
    return sorted((_as_event(row) for row in rows), key=lambda event: event.seq)


def _as_event(row: tuple[Any, ...]) -> EventRow:
    seq, id, name, poll, payload, *rest = row
    return EventRow(seq, id, name, poll, payload.decode(errors="replace"), *rest)


def _replay_some(transaction: Transaction, request: tuple[str, int, int]) -> tuple[int, int | None]:
    """Deliver some events again: how many, and the last one looked at where there may be more."""
    subscriber, since, after = request
    subscription = rows_of.living(transaction, subscriber)
    if subscription is None:
        return 0, None
    rows = transaction.rows(_TO_REPLAY, (subscription.event, after, since, REPLAYED_AT_ONCE))
    replayed = sum(_deliver_again(transaction, subscription, row) for row in rows)
    return replayed, rows[-1][0] if len(rows) == REPLAYED_AT_ONCE else None


def _deliver_again(transaction: Transaction, subscription: Subscription, row: tuple[Any, ...]) -> bool:
    *columns, previous = row
    event = _as_event(tuple(columns))
    text = envelope_of(event, None if previous is None else previous.decode(errors="replace"))
    delivery = delivery_of(event, subscription, text)
    if transaction.row("SELECT 1 FROM work_items WHERE id = ?", (delivery.id,)) is not None:
        return bool(begin_anew(transaction, [delivery.id]))
    insert_items(transaction, [delivery])
    return True
