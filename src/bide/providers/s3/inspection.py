"""Looking at what is in the bucket, and mending by hand.

Counting and listing read every item: a listing for each thousand, and one read each. That is for people and for
tests; nothing that a worker does now and then needs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import timedelta

from bide.provider import ItemRow, ItemState, Pruned, QueueCounts
from bide.providers import reasons
from bide.providers.items import Item, as_row
from bide.providers.s3.names import ITEMS, index_key, token_of
from bide.providers.s3.parts import Parts
from bide.providers.s3.records import Record
from bide.providers.s3.removing import remove_items
from bide.providers.s3.store import Kept


class S3Inspection:
    """The inspection part of :class:`bide.provider.Provider`."""

    def _parts(self) -> Parts:
        raise NotImplementedError

    async def counts(self) -> list[QueueCounts]:
        parts = self._parts()
        now = await parts.store.now()
        queues: dict[str, list[Item]] = {}
        for kept in await _all(parts):
            queues.setdefault(kept.item.queue, []).append(kept.item)
        return [_counts_of(queue, items, now) for queue, items in sorted(queues.items())]

    async def items(
        self,
        queue: str,
        *,
        states: Collection[ItemState] | None = None,
        name: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[ItemRow]:
        parts = self._parts()
        now = await parts.store.now()
        items = {kept.item.id: kept.item for kept in await _all(parts)}
        if after is not None and after not in items:
            return []
        found = [
            item
            for item in sorted(items.values(), key=_newest)
            if item.queue == queue
            and (states is None or item.shown_state(now) in states)
            and (name is None or item.name == name)
            and (after is None or item.seq < items[after].seq)
        ]
        return [as_row(item, now) for item in found[:limit]]

    async def item(self, id: str) -> ItemRow | None:
        parts = self._parts()
        kept = await parts.store.read(token_of(id))
        if kept is None or kept.record.gone:
            return None
        return as_row(kept.item, await parts.store.now())

    async def requeue(self, ids: Collection[str]) -> list[str]:
        return await begin_anew(self._parts(), ids)

    async def discard(self, ids: Collection[str], reason: str) -> list[str]:
        parts = self._parts()
        now = await parts.store.now()

        def bury(record: Record) -> bool:
            if record.item.shown_state(now) != "ready":
                return False
            record.item.end("dead", now, reasons.storable(reason))
            return True

        return await parts.ending.end(ids, bury)

    async def purge(self, queue: str, *, states: Collection[ItemState], limit: int = 1000) -> int:
        parts = self._parts()
        now = await parts.store.now()
        wanted = set(states) - {"running"}
        kept = sorted(await _all(parts), key=_oldest) if wanted else []
        found = [one for one in kept if one.item.queue == queue and one.item.shown_state(now) in wanted]
        found = found[: max(limit, 0)]
        await remove_items(parts.store, parts.intake.keys, found)
        return len(found)

    async def prune(self, retention: timedelta, *, limit: int = 500) -> Pruned:
        return await self._parts().sweeping.prune(retention, limit)


async def begin_anew(parts: Parts, ids: Collection[str]) -> list[str]:
    """Make ended items ready, as if they had just been enqueued; the ids that were."""
    store = parts.store
    now = await store.now()

    async def requeue(id: str) -> bool:
        kept = await store.read(token_of(id))
        if kept is None or kept.item.ended_at is None:
            return False
        has_key = await parts.intake.keys.regain(kept.item)
        before: list[Item] = []

        def begin(record: Record) -> bool:
            if record.item.ended_at is None:
                return False
            before.append(kept.item)
            record.item.begin_anew(now)
            record.item.key = record.item.key if has_key else None
            return True

        saved = await store.change(kept.token, begin)
        if saved is None:
            return False
        await store.index([saved.item])
        await store.bucket.delete([index_key(before[-1], store.shards)])
        return True

    ordered = sorted(set(ids))
    are_requeued = await store.each(ordered, requeue)
    return [id for id, is_requeued in zip(ordered, are_requeued, strict=True) if is_requeued]


async def _all(parts: Parts) -> list[Kept]:
    """Every item there is."""
    listed = await parts.store.bucket.all(ITEMS)
    read = await parts.store.each([one.key.removeprefix(ITEMS) for one in listed], parts.store.readable)
    return [kept for kept in read if kept is not None and not kept.record.gone]


def _counts_of(queue: str, items: Iterable[Item], now: int) -> QueueCounts:
    states: Counter[ItemState] = Counter()
    visible = []
    for item in items:
        state = item.shown_state(now)
        states[state] += 1
        if state == "ready" and item.visible_at <= now:
            visible.append(item.visible_at)
    return QueueCounts(
        queue,
        ready=states["ready"],
        running=states["running"],
        done=states["done"],
        dead=states["dead"],
        oldest_ms=now - min(visible) if visible else None,
    )


def _newest(item: Item) -> int:
    return -item.seq


def _oldest(kept: Kept) -> int:
    return kept.item.seq
