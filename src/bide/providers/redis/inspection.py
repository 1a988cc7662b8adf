"""Looking at what is kept on Redis, and mending by hand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from bide.core.durations import to_ms
from bide.provider import ItemRow, ItemState, Pruned, QueueCounts
from bide.providers import reasons
from bide.providers.redis.items import SHOWN_WIDTH, item_row
from bide.providers.redis.rows import (
    Row,
    int_if_any,
    names_of,
    packed,
    shown,
    stored,
    stored_if_any,
    texts,
    unpacked,
)
from bide.providers.redis.store import Store

STATES: tuple[ItemState, ...] = ("ready", "running", "done", "dead")

ITEMS_AT_ONCE = 200
"""Items that one call lists, mends or removes."""


class RedisInspection:
    """The inspection part of :class:`bide.provider.Provider`."""

    _store: Store

    async def counts(self) -> list[QueueCounts]:
        rows = unpacked(await self._store.run("counts"), 6)
        return sorted(map(_counts, rows), key=lambda one: one.queue)

    async def items(
        self,
        queue: str,
        *,
        states: Collection[ItemState] | None = None,
        name: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[ItemRow]:
        seq = b"" if after is None else await self._seq_of(after)
        if seq is None:
            return []
        wanted = texts(state for state in STATES if states is None or state in states)
        found: list[ItemRow] = []
        while len(found) < limit:
            rows, seq, now = await self._store.run(
                *("list", stored(queue), wanted, seq, ITEMS_AT_ONCE, packed((stored_if_any(name),)))
            )
            found += [item_row(row, int(now)) for row in unpacked(rows, SHOWN_WIDTH)]
            if not seq:
                break
        return found[: max(limit, 0)]

    async def item(self, id: str) -> ItemRow | None:
        row, now = await self._store.run("item", stored(id))
        return item_row(next(unpacked(row, SHOWN_WIDTH)), int(now)) if row else None

    async def requeue(self, ids: Collection[str]) -> list[str]:
        return await self._mend("requeue", ids, b"")

    async def discard(self, ids: Collection[str], reason: str) -> list[str]:
        return await self._mend("discard", ids, stored(reasons.storable(reason)))

    async def purge(self, queue: str, *, states: Collection[ItemState], limit: int = 1000) -> int:
        wanted = texts(state for state in STATES if state in states and state != "running")
        purged = 0
        while purged < limit:
            step = min(limit - purged, ITEMS_AT_ONCE)
            removed: int = await self._store.run("purge", stored(queue), wanted, step)
            purged += removed
            if removed < step:
                break
        if purged:
            self._store.bell.ring_everywhere()
        return purged

    async def prune(self, retention: timedelta, *, limit: int = 500) -> Pruned:
        events, items, expired = await self._store.run("prune", to_ms(retention), limit)
        if items or expired:
            self._store.bell.ring_everywhere()
        return Pruned(events=events, items=items, expired=expired)

    async def _seq_of(self, id: str) -> bytes | None:
        row, _ = await self._store.run("item", stored(id))
        return next(unpacked(row, SHOWN_WIDTH))[SHOWN_WIDTH - 2] if row else None

    async def _mend(self, act: str, ids: Collection[str], reason: bytes) -> list[str]:
        given: Sequence[str] = sorted(set(ids))
        mended: list[str] = []
        for first in range(0, len(given), ITEMS_AT_ONCE):
            rows = texts(given[first : first + ITEMS_AT_ONCE])
            mended += names_of(await self._store.run("mend", act, rows, reason))
        if mended:
            self._store.bell.ring_everywhere()
        return mended


def _counts(row: Row) -> QueueCounts:
    queue, *counted, oldest = row
    ready, running, done, dead = (int(count or 0) for count in counted)
    return QueueCounts(shown(queue or b""), ready, running, done, dead, int_if_any(oldest))
