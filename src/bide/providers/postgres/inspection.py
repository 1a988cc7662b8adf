"""Looking at work items on PostgreSQL, and mending by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from bide.core.durations import to_ms
from bide.provider import ItemRow, ItemState, Pruned, QueueCounts
from bide.providers import reasons
from bide.providers.postgres.database import Database
from bide.providers.postgres.session import Session
from bide.providers.postgres.texts import shown, shown_if_any, stored

# A lock that expired holds nothing, although its item is only given back by the next fetch.

_NOW = "WITH now AS MATERIALIZED (SELECT bide.now_ms() AS ms)"

_ROWS = """
SELECT w.*, CASE
    WHEN w.state IN ('waiting', 'blocked') THEN 'ready'
    WHEN w.state = 'running' AND w.locked_until <= (SELECT ms FROM now) THEN 'ready'
    ELSE w.state END AS shown
FROM bide.work_items AS w
"""
"""Items with the contract's state, which does not tell waiting ones apart by what they wait for."""

_OF_STATE: dict[ItemState, tuple[str, ...]] = {
    "ready": (
        "w.state = 'ready' AND w.limit_key IS NULL",
        "w.state = 'ready' AND w.limit_key IS NOT NULL",
        "w.state = 'waiting'",
        "w.state = 'blocked'",
        "w.state = 'running' AND w.locked_until <= (SELECT ms FROM now)",
    ),
    "running": ("w.state = 'running' AND w.locked_until > (SELECT ms FROM now)",),
    "done": ("w.state = 'done'",),
    "dead": ("w.state = 'dead'",),
}
"""What is shown so, in pieces: one by one they have indexes, where they may be few among many."""

_PAGE = """
    AND w.queue = $1 AND ($2::text IS NULL OR w.name = $2)
    AND ($3::text IS NULL OR w.seq < (SELECT seq FROM bide.work_items WHERE id = $3))
ORDER BY w.seq DESC LIMIT $4
"""

_ITEM = f"{_NOW} {_ROWS} WHERE w.id = $1"

_COUNTS = """
WITH now AS MATERIALIZED (SELECT bide.now_ms() AS ms), items AS (
    SELECT w.queue, w.visible_at, w.state = 'waiting' AND w.visible_at > (SELECT ms FROM now) AS is_early,
        CASE WHEN w.state = 'running' AND w.locked_until <= (SELECT ms FROM now) THEN 'ready'
            ELSE w.state END AS state
    FROM bide.work_items AS w
)
SELECT queue, CASE WHEN state IN ('waiting', 'blocked') THEN 'ready' ELSE state END, count(*),
    (SELECT ms FROM now) - min(visible_at) FILTER (WHERE state IN ('ready', 'waiting') AND NOT is_early)
FROM items GROUP BY 1, 2
"""

_PURGE = "SELECT count, wakes FROM bide.purge($1, $2, $3)"
_BEGIN_ANEW = "SELECT bide.begin_anew($1)"
_DISCARD = "SELECT bide.discard($1, $2)"
_PRUNE = "SELECT * FROM bide.prune($1, $2)"


class PostgresInspection:
    """The inspection part of :class:`bide.provider.Provider`."""

    _database: Database

    async def counts(self) -> list[QueueCounts]:
        numbers: defaultdict[str, defaultdict[ItemState, int]] = defaultdict(lambda: defaultdict(int))
        oldest: dict[str, int] = {}
        for queue, state, count, oldest_ms in await self._database.rows(_COUNTS):
            numbers[shown(queue)][state] = count
            if oldest_ms is not None:
                oldest[shown(queue)] = max(oldest_ms, 0)
        return [
            QueueCounts(
                queue,
                ready=counts["ready"],
                running=counts["running"],
                done=counts["done"],
                dead=counts["dead"],
                oldest_ms=oldest.get(queue),
            )
            for queue, counts in sorted(numbers.items())
        ]

    async def items(
        self,
        queue: str,
        *,
        states: Collection[ItemState] | None = None,
        name: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[ItemRow]:
        wanted = [state for state in _OF_STATE if states is None or state in states]
        if not wanted:
            return []
        rows = await self._database.rows(
            _items(wanted),
            stored(queue),
            None if name is None else stored(name),
            None if after is None else stored(after),
            limit,
        )
        return [_as_item_row(row) for row in rows]

    async def item(self, id: str) -> ItemRow | None:
        rows = await self._database.rows(_ITEM, stored(id))
        return _as_item_row(rows[0]) if rows else None

    async def requeue(self, ids: Collection[str]) -> list[str]:
        return await self._mended(_BEGIN_ANEW, ids)

    async def discard(self, ids: Collection[str], reason: str) -> list[str]:
        return await self._mended(_DISCARD, ids, stored(reasons.storable(reason)))

    async def purge(self, queue: str, *, states: Collection[ItemState], limit: int = 1000) -> int:
        waits = {"waiting", "blocked"} if "ready" in states else set()
        kinds = {*states, *waits} - {"running"}

        async def act(session: Session) -> int:
            ((count, wakes),) = await session.rows(_PURGE, stored(queue), sorted(kinds), max(limit, 0))
            if wakes:
                self._database.wake(session)
            return int(count)

        return await self._database.run(act)

    async def prune(self, retention: timedelta, *, limit: int = 500) -> Pruned:
        ((events, items, expired),) = await self._database.rows(_PRUNE, to_ms(retention), limit)
        return Pruned(events=events, items=items, expired=expired)

    async def _mended(self, statement: str, ids: Collection[str], *arguments: object) -> list[str]:
        wanted = [stored(id) for id in sorted(set(ids))]

        async def act(session: Session) -> list[Any]:
            rows = await session.rows(statement, wanted, *arguments)
            if rows:
                self._database.wake(session)
            return rows

        return sorted(shown(id) for (id,) in await self._database.run(act))


def _items(states: Collection[ItemState]) -> str:
    """The statement that lists what is in ``states``, the newest first."""
    pieces = " UNION ALL ".join(
        f"({_ROWS} WHERE {found} {_PAGE})" for state in states for found in _OF_STATE[state]
    )
    return f"{_NOW}, items AS ({pieces}) TABLE items ORDER BY seq DESC LIMIT $4"


def _as_item_row(row: Any) -> ItemRow:
    return ItemRow(
        id=shown(row["id"]),
        queue=shown(row["queue"]),
        name=shown(row["name"]),
        state=row["shown"],
        payload=shown(row["payload"]),
        attempts=row["attempts"],
        deaths=row["deaths"],
        enqueued_at=row["enqueued_at"],
        visible_at=row["visible_at"],
        expires_at=row["expires_at"],
        ended_at=row["ended_at"],
        error=shown_if_any(row["error"]),
        max_attempts=row["max_attempts"],
        priority=row["priority"],
        key=shown_if_any(row["key"]),
        limit_key=shown_if_any(row["limit_key"]),
        given_back=row["given_back"],
        result=shown_if_any(row["result"]),
    )
