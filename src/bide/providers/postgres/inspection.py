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

_STORED_STATES: dict[ItemState, tuple[str, ...]] = {
    "ready": ("ready", "waiting", "blocked"),
    "running": ("running",),
    "done": ("done",),
    "dead": ("dead",),
}
"""What the contract's states are in the table, which tells waiting items apart by what they wait for."""

_SHOWN_STATES: dict[str, ItemState] = {
    kept: state for state, kinds in _STORED_STATES.items() for kept in kinds
}

_COUNTS = """
SELECT c.queue, c.state, c.count, now.ms - least(
    (SELECT min(visible_at) FROM bide.work_items AS w WHERE w.state = 'ready' AND w.queue = c.queue),
    (SELECT min(visible_at) FROM bide.work_items AS w
     WHERE w.state = 'waiting' AND w.queue = c.queue AND w.visible_at <= now.ms))
FROM (SELECT queue, state, count(*) AS count FROM bide.work_items GROUP BY queue, state) AS c
CROSS JOIN (SELECT bide.now_ms()) AS now(ms)
"""

_ITEMS = """
SELECT w.* FROM unnest($2::text[]) AS s(state)
CROSS JOIN LATERAL (
    SELECT * FROM bide.work_items AS w
    WHERE w.queue = $1 AND w.state = s.state AND ($3::text IS NULL OR w.name = $3)
        AND ($4::text IS NULL OR w.seq < (SELECT seq FROM bide.work_items WHERE id = $4))
    ORDER BY w.seq DESC LIMIT $5) AS w
ORDER BY w.seq DESC LIMIT $5
"""

_ITEM = "SELECT * FROM bide.work_items AS w WHERE w.id = $1"
_PURGE = "SELECT count, wakes FROM bide.purge($1, $2, $3)"
_BEGIN_ANEW = "SELECT bide.begin_anew($1)"
_DISCARD = "SELECT bide.discard($1, $2)"
_PRUNE = "SELECT * FROM bide.prune($1, $2)"


class PostgresInspection:
    """The inspection part of :class:`bide.provider.Provider`."""

    _database: Database

    async def counts(self) -> list[QueueCounts]:
        numbers: defaultdict[str, defaultdict[ItemState, int]] = defaultdict(lambda: defaultdict(int))
        oldest: dict[str, int | None] = {}
        for queue, state, count, oldest_ms in await self._database.rows(_COUNTS):
            numbers[shown(queue)][_SHOWN_STATES[state]] += count
            oldest[shown(queue)] = None if oldest_ms is None else max(oldest_ms, 0)
        return [
            QueueCounts(
                queue,
                ready=counts["ready"],
                running=counts["running"],
                done=counts["done"],
                dead=counts["dead"],
                oldest_ms=oldest[queue],
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
        wanted = _STORED_STATES if states is None else set(states)
        rows = await self._database.rows(
            _ITEMS,
            stored(queue),
            [kept for state in wanted for kept in _STORED_STATES[state]],
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
        kinds = [kept for state in set(states) - {"running"} for kept in _STORED_STATES[state]]

        async def act(session: Session) -> int:
            ((count, wakes),) = await session.rows(_PURGE, stored(queue), kinds, max(limit, 0))
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


def _as_item_row(row: Any) -> ItemRow:
    return ItemRow(
        id=shown(row["id"]),
        queue=shown(row["queue"]),
        name=shown(row["name"]),
        state=_SHOWN_STATES[row["state"]],
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
