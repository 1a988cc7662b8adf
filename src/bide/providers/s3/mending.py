"""Putting right what is met: an item read by one of its index keys, and what that shows of crashes and of time.

Whoever reads an item to take it finds what somebody else left: an end without its index, an outbox not emptied, a key
that leads nowhere, a life or a lock that is over. Each is put right there and then, by the one who met it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bide.errors import ProviderCorrupt
from bide.providers import reasons
from bide.providers.items import Item, count_death
from bide.providers.s3.names import ITEMS, Sight, index_key, ready_key, token_of
from bide.providers.s3.records import Record
from bide.providers.s3.store import Kept, Store, copied

UNREADABLE_MS = 600_000
"""An object that is no item is left where it lies, and looked at again only after so long."""


class Mending:
    """Reads items by their sights, and mends."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def look_at(self, sight: Sight, now: int, sure: int) -> Kept | None:
        """The item, where it may be taken now; else it is put right or off, and None.

        The record answered may be further than what lies there: a lock that expired is counted in it, to be written
        with the next lock. ``sure`` is an instant that has surely come.
        """
        store = self._store
        try:
            kept = await store.read(sight.item)
        except ProviderCorrupt:
            store.watch.put_off(sight.item, now + UNREADABLE_MS)
            return None
        if kept is None:
            await self._forget(sight)
            return None
        kept = await self.settled(kept)
        if kept is None or kept.item.ended_at is not None:
            await self._forget(sight) if kept is None else await self.put_right(sight.key, kept.item)
            return None
        if sight.key != ready_key(kept.item, store.shards):
            await self.put_right(sight.key, kept.item)
        return await self._as_eligible(kept, now, sure)

    async def settled(self, kept: Kept) -> Kept | None:
        """The item without an outbox; None where it was done and leaves nothing, and is gone now."""
        store = self._store
        outbox = kept.record.outbox
        if outbox is not None:
            await store.make(outbox.items, outbox.mark)
        if kept.record.gone:
            await store.bucket.delete([f"{ITEMS}{kept.token}", ready_key(kept.item, store.shards)])
            return None
        if outbox is None:
            return kept
        record = copied(kept.record)
        record.outbox = None
        return await store.save(kept, record) or await store.read(kept.token)

    async def end(self, kept: Kept, record: Record) -> Kept | None:
        """``record``, which has ended, in place of ``kept``; None where others were first."""
        saved = await self._store.save(kept, record)
        if saved is not None:
            await self._store.bucket.delete(await self._store.moved(kept.item, saved.item))
        return saved

    async def put_right(self, key: str, item: Item) -> None:
        """``key`` leads to ``item`` and is not its index key: the right one is there afterwards."""
        await self.put_right_all([key], item)

    async def put_right_all(self, keys: Sequence[str], item: Item) -> None:
        """``keys`` lead to ``item``: its index key is there afterwards, and none of the others."""
        store = self._store
        right = index_key(item, store.shards)
        if right not in keys:
            await store.bucket.put(right)
        wrong = [key for key in keys if key and key != right]
        if wrong:
            await store.bucket.delete(wrong)
        if item.ended_at is None:
            store.watch.add([right])
        else:
            store.watch.drop(token_of(item.id))

    async def _forget(self, sight: Sight) -> None:
        """The key leads nowhere."""
        self._store.watch.drop(sight.item)
        await self._store.bucket.delete([sight.key])

    async def _as_eligible(self, kept: Kept, now: int, sure: int) -> Kept | None:
        store, item = self._store, kept.item
        if item.state == "running":
            if item.locked_until > now + 2 * item.lock_ms:
                await self._shorten(kept, now)
                return None
            if not item.is_lapsed(sure):
                store.watch.put_off(kept.token, item.locked_until + store.time.error_ms())
                return None
            record = copied(kept.record)
            count_death(record.item, now)
            if record.item.ended_at is not None:
                await self.end(kept, record)
                return None
            kept = Kept(record, kept.etag)
            item = record.item
        if item.expires_at is not None and item.expires_at <= now:
            await self.end(kept, past_life(kept.record, now))
            return None
        return kept if item.is_visible(now) else None

    async def _shorten(self, kept: Kept, now: int) -> None:
        """The clock was set back: its lock has one more length, to be renewed in."""
        record = copied(kept.record)
        record.item.locked_until = now + record.item.lock_ms
        await self._store.save(kept, record)
        self._store.watch.put_off(kept.token, record.item.locked_until)


def past_life(record: Record, now: int) -> Record:
    """The record after its whole life is over."""
    after = replace(record, item=replace(record.item))
    item = after.item
    item.end("dead", now, reasons.expired(item.queue, item.within_ms or 0, item.error))
    return after
