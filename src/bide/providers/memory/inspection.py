"""Looking at what is in memory, and mending by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import timedelta

from bide.core.durations import to_ms
from bide.provider import ItemRow, ItemState, Pruned, QueueCounts
from bide.providers import reasons
from bide.providers.items import as_row
from bide.providers.memory.store import Store, atomic


class MemoryInspection:
    """The inspection part of :class:`bide.provider.Provider`."""

    _store: Store

    @atomic
    def counts(self) -> list[QueueCounts]:
        now = self._store.now()
        queues = sorted({item.queue for item in self._store.items.values()})
        return [self._counts_of(queue, now) for queue in queues]

    @atomic
    def items(
        self,
        queue: str,
        *,
        states: Collection[ItemState] | None = None,
        name: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[ItemRow]:
        items, now = self._store.items, self._store.now()
        if after is not None and after not in items:
            return []
        found = [
            item
            for item in sorted(items.values(), key=lambda item: -item.seq)
            if item.queue == queue
            and (states is None or item.shown_state(now) in states)
            and (name is None or item.name == name)
            and (after is None or item.seq < items[after].seq)
        ]
        return [as_row(item, now) for item in found[:limit]]

    @atomic
    def item(self, id: str) -> ItemRow | None:
        item = self._store.items.get(id)
        return None if item is None else as_row(item, self._store.now())

    @atomic
    def requeue(self, ids: Collection[str]) -> list[str]:
        return begin_anew(self._store, ids)

    @atomic
    def discard(self, ids: Collection[str], reason: str) -> list[str]:
        store, now = self._store, self._store.now()
        found = [
            item for item in store.items.values() if item.id in set(ids) and item.shown_state(now) == "ready"
        ]
        for item in found:
            item.end("dead", now, reasons.storable(reason))
        store.wake()
        return sorted(item.id for item in found)

    @atomic
    def purge(self, queue: str, *, states: Collection[ItemState], limit: int = 1000) -> int:
        now = self._store.now()
        items = sorted(self._store.items.values(), key=lambda item: item.seq)
        wanted = set(states) - {"running"}
        found = [item for item in items if item.queue == queue and item.shown_state(now) in wanted]
        found = found[: max(limit, 0)]
        for item in found:
            del self._store.items[item.id]
        self._store.wake()
        return len(found)

    @atomic
    def prune(self, retention: timedelta, *, limit: int = 500) -> Pruned:
        store, now = self._store, self._store.now()
        retention_ms = to_ms(retention)
        last = {row.event_id for row in store.polls.values()}
        old_events = [
            event for event in store.events if event.created_at < now - retention_ms and event.id not in last
        ]
        old_items = [
            item
            for item in store.items.values()
            if item.ended_at is not None and item.ended_at < now - item.kept_ms(retention_ms)
        ]
        past_life = [
            item for item in store.unfetched() if item.expires_at is not None and item.expires_at <= now
        ]
        for event in old_events[:limit]:
            store.events.remove(event)
        for item in old_items[:limit]:
            del store.items[item.id]
        for item in past_life[:limit]:
            item.end("dead", now, reasons.expired(item.queue, item.within_ms or 0, item.error))
        store.wake()
        counts = [min(len(found), limit) for found in (old_events, old_items, past_life)]
        return Pruned(events=counts[0], items=counts[1], expired=counts[2])

    def _counts_of(self, queue: str, now: int) -> QueueCounts:
        items = [item for item in self._store.items.values() if item.queue == queue]
        states = Counter(item.shown_state(now) for item in items)
        lines: set[tuple[str, str] | None] = {item.line for item in items if item.state == "running"}
        visible = [item.visible_at for item in items if item.is_lapsed(now)]
        for item in self._store.unfetched():
            if item.queue == queue and (item.line is None or item.line not in lines):
                lines.add(item.line)
                visible.append(item.visible_at)
        oldest = min((instant for instant in visible if instant <= now), default=None)
        return QueueCounts(
            queue,
            ready=states["ready"],
            running=states["running"],
            done=states["done"],
            dead=states["dead"],
            oldest_ms=None if oldest is None else now - oldest,
        )


def begin_anew(store: Store, ids: Collection[str]) -> list[str]:
    """Make ended items ready, as if they had just been enqueued; the ids that were."""
    now = store.now()
    known = [store.items[id] for id in sorted(set(ids) & set(store.items))]
    ended = [item for item in known if item.ended_at is not None]
    for item in ended:
        item.begin_anew(now)
    store.wake()
    return [item.id for item in ended]
