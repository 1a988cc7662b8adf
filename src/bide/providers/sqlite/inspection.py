"""Looking at work items on SQLite, and mending by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bide.core.durations import to_ms
from bide.provider import ItemRow, ItemState, Pruned, QueueCounts
from bide.providers.sqlite.database import Database
from bide.providers.sqlite.mending import begin_anew, discard, prune
from bide.providers.sqlite.writer import Transaction

_STORED_STATES: dict[ItemState, tuple[str, ...]] = {
    "ready": ("ready", "waiting", "blocked"),
    "running": ("running",),
    "done": ("done",),
    "dead": ("dead",),
}
"""What the contract's states are in the table, which tells waiting items apart by what they wait for."""

_SHOWN_STATES: dict[str, ItemState] = {
    stored: state for state, kinds in _STORED_STATES.items() for stored in kinds
}

_COUNTS = "SELECT queue, state, count(*) FROM work_items INDEXED BY work_by_state GROUP BY queue, state"

_OLDEST = """
SELECT queue, min(visible_at) FROM (
    SELECT queue, min(visible_at) AS visible_at FROM work_items WHERE state = 'ready' GROUP BY queue
    UNION ALL
    SELECT queue, min(visible_at) FROM work_items WHERE state = 'waiting' AND visible_at <= ? GROUP BY queue
) GROUP BY queue
"""

_ITEMS = """
SELECT seq, id, queue, name, state, CAST(payload AS BLOB), attempts, deaths, enqueued_at, visible_at, expires_at,
    ended_at, error
FROM work_items INDEXED BY work_by_state
WHERE queue = :queue AND state = :state
    AND seq < coalesce((SELECT seq FROM work_items WHERE id = :after), :newest)
    AND (:name IS NULL OR name = :name)
ORDER BY seq DESC LIMIT 0 + :limit
"""

_NEWEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Listing:
    queue: str
    states: Collection[ItemState] | None
    name: str | None
    after: str | None
    limit: int


class SqliteInspection:
    """The inspection part of :class:`bide.provider.Provider`."""

    _database: Database

    async def counts(self) -> list[QueueCounts]:
        return await self._database.read(_counts, None)

    async def items(
        self,
        queue: str,
        *,
        states: Collection[ItemState] | None = None,
        name: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[ItemRow]:
        return await self._database.read(_items, _Listing(queue, states, name, after, limit))

    async def requeue(self, ids: Collection[str]) -> list[str]:
        return await self._database.write(begin_anew, ids)

    async def discard(self, ids: Collection[str], reason: str) -> list[str]:
        return await self._database.write(discard, (ids, reason))

    async def prune(self, retention: timedelta, *, limit: int = 500) -> Pruned:
        return await self._database.write(prune, (to_ms(retention), limit))


def _counts(transaction: Transaction, _: None) -> list[QueueCounts]:
    numbers: defaultdict[str, defaultdict[ItemState, int]] = defaultdict(lambda: defaultdict(int))
    for queue, stored, count in transaction.rows(_COUNTS):
        numbers[queue][_SHOWN_STATES[stored]] += count
    oldest = dict(transaction.rows(_OLDEST, (transaction.now,)))
    return [
        QueueCounts(
            queue,
            ready=counts["ready"],
            running=counts["running"],
            done=counts["done"],
            dead=counts["dead"],
            oldest_ms=max(transaction.now - oldest[queue], 0) if queue in oldest else None,
        )
        for queue, counts in sorted(numbers.items())
    ]


def _items(transaction: Transaction, listing: _Listing) -> list[ItemRow]:
    """The newest of each stored state, and of these the newest: no index has them all in order."""
    bindings = {
        "queue": listing.queue,
        "name": listing.name,
        "after": listing.after,
        "newest": _NEWEST if listing.after is None else 0,  # an unknown id is after everything
        "limit": listing.limit,
    }
    states = _STORED_STATES if listing.states is None else set(listing.states)
    rows = [
        row
        for state in states
        for stored in _STORED_STATES[state]
        for row in transaction.rows(_ITEMS, {**bindings, "state": stored})
    ]
    rows.sort(reverse=True)
    return [_as_item_row(row) for row in rows[: listing.limit]]


def _as_item_row(row: tuple[Any, ...]) -> ItemRow:
    _, id, queue, name, stored, payload, *rest = row
    return ItemRow(id, queue, name, _SHOWN_STATES[stored], payload.decode(errors="replace"), *rest)
