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
from bide.providers.sqlite.mending import Purge, begin_anew, discard, prune, purge
from bide.providers.sqlite.writer import Transaction

_SHOWN_STATES: dict[str, ItemState] = {
    "ready": "ready",
    "waiting": "ready",
    "blocked": "ready",
    "running": "running",
    "done": "done",
    "dead": "dead",
}
"""States by those in the table, which tells waiting items apart by what they wait for."""

_LIVING = (
    "SELECT queue, count(*) FROM work_items INDEXED BY work_living WHERE ended_at IS NULL GROUP BY queue"
)

_RUNNING = """
SELECT queue, count(*) FROM work_items INDEXED BY work_running WHERE state = 'running' AND locked_until > ?
GROUP BY queue
"""

_ENDED = """
SELECT queue, state, count(*) FROM work_items INDEXED BY work_ended WHERE ended_at IS NOT NULL GROUP BY queue, state
"""

_OLDEST = """
SELECT queue, min(visible_at) FROM (
    SELECT queue, min(visible_at) AS visible_at FROM work_items INDEXED BY work_ready
    WHERE state = 'ready' AND limit_key IS NULL GROUP BY queue
    UNION ALL
    SELECT queue, min(visible_at) AS visible_at FROM work_items INDEXED BY work_ready_keyed
    WHERE state = 'ready' AND limit_key IS NOT NULL GROUP BY queue
    UNION ALL
    SELECT queue, min(visible_at) FROM work_items WHERE state = 'waiting' AND visible_at <= ?1 GROUP BY queue
    UNION ALL
    SELECT queue, min(visible_at) FROM work_items INDEXED BY work_running
    WHERE state = 'running' AND locked_until <= ?1 GROUP BY queue
) GROUP BY queue
"""
"""A lock that expired holds nothing, although its item is only given back by the next fetch."""

_ROW = """
SELECT seq, id, queue, name, iif(state = 'running' AND locked_until <= :now, 'ready', state),
    CAST(payload AS BLOB), attempts, deaths, enqueued_at, visible_at, expires_at,
    ended_at, error, max_attempts, priority, key, limit_key, given_back, result
FROM work_items
"""

_PAGE = """
    AND seq < coalesce((SELECT seq FROM work_items WHERE id = :after), :newest)
    AND (:name IS NULL OR name = :name)
ORDER BY seq DESC LIMIT 0 + :limit
"""

_OF_STATE = {
    "ready": "INDEXED BY work_living WHERE queue = :queue AND ended_at IS NULL "
    "AND (state <> 'running' OR locked_until <= :now)",
    "running": "INDEXED BY work_running WHERE queue = :queue AND state = 'running' AND locked_until > :now",
    "done": "INDEXED BY work_ended WHERE queue = :queue AND ended_at IS NOT NULL AND state = 'done'",
    "dead": "INDEXED BY work_ended WHERE queue = :queue AND ended_at IS NOT NULL AND state = 'dead'",
}

_ITEMS: dict[str, str] = {state: f"{_ROW} {found} {_PAGE}" for state, found in _OF_STATE.items()}
"""By state. Of what is ready and running nearly all is ready, so that little is passed over."""

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

    async def item(self, id: str) -> ItemRow | None:
        return await self._database.read(_item, id)

    async def requeue(self, ids: Collection[str]) -> list[str]:
        return await self._database.write(begin_anew, ids)

    async def discard(self, ids: Collection[str], reason: str) -> list[str]:
        return await self._database.write(discard, (ids, reason))

    async def purge(self, queue: str, *, states: Collection[ItemState], limit: int = 1000) -> int:
        return await self._database.write(purge, Purge(queue, frozenset(states), limit))

    async def prune(self, retention: timedelta, *, limit: int = 500) -> Pruned:
        return await self._database.write(prune, (to_ms(retention), limit))


def _counts(transaction: Transaction, _: None) -> list[QueueCounts]:
    numbers: defaultdict[str, defaultdict[ItemState, int]] = defaultdict(lambda: defaultdict(int))
    for queue, count in transaction.rows(_LIVING):
        numbers[queue]["ready"] += count
    for queue, count in transaction.rows(_RUNNING, (transaction.now,)):
        numbers[queue]["ready"] -= count
        numbers[queue]["running"] += count
    for queue, state, count in transaction.rows(_ENDED):
        numbers[queue][state] += count
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
    """The newest of each state, and of these the newest: no index has them all in order."""
    bindings = {
        "queue": listing.queue,
        "name": listing.name,
        "after": listing.after,
        "newest": _NEWEST if listing.after is None else 0,  # an unknown id is after everything
        "limit": listing.limit,
        "now": transaction.now,
    }
    states = set(_ITEMS) if listing.states is None else set(listing.states)
    rows = [row for state in states for row in transaction.rows(_ITEMS[state], bindings)]
    rows.sort(reverse=True)
    return [_as_item_row(row) for row in rows[: listing.limit]]


def _item(transaction: Transaction, id: str) -> ItemRow | None:
    row = transaction.row(f"{_ROW} WHERE id = :id", {"id": id, "now": transaction.now})
    return None if row is None else _as_item_row(row)


def _as_item_row(row: tuple[Any, ...]) -> ItemRow:
    _, id, queue, name, stored, payload, *rest = row
    return ItemRow(id, queue, name, _SHOWN_STATES[stored], payload.decode(errors="replace"), *rest)
