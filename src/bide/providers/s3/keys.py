"""Keys of items: who has one, how it is taken, and how it is free again.

The object of a key holds the item whole. Of one item that is enqueued by itself, **creating this object is what
enqueues it**: the item follows, and whoever meets the key without its item finishes that. Two submitters race for the
creation; the loser reads who won.

Of items that come with others (a batch, what an ack enqueues, an instant of a schedule) the key is taken first, with
a mark of the *carrier* whose write is to enqueue them. Whoever meets such a key without its item reads the carrier:
if the mark is there, it finishes what was begun; if not, the write may still come, for a minute, and the key is not
free until then. Its owner gives up before the minute is over.

A key is freed by marking it *closing* under its ETag, and then deleting it; it is taken over 24 hours after its item
ended by replacing it under its ETag. Nothing is deleted unconditionally that others could have taken meanwhile:
whoever meets a closing key waits until it is gone, or for a minute, after which no deletion can be under way any
more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bide.errors import KeyConflict, ProviderError
from bide.provider import NewItem
from bide.providers.items import Item, made
from bide.providers.s3.bucket import Found
from bide.providers.s3.names import key_name, token_of
from bide.providers.s3.records import KeyEntry, Record, decoded_key, encoded_key
from bide.providers.s3.store import Kept, Store

UNSURE_MS = 60_000
"""For so long a key that was taken for a write is not free, though the write has not come."""

COMMIT_WITHIN_MS = 20_000
"""A write for which keys were taken is begun within that, or not at all."""

_TRIES = 60
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Holder:
    """The item that has a key."""

    id: str
    payload: str


@dataclass(frozen=True, slots=True)
class Free:
    """Nobody has it. ``etag``: of the object to be replaced; ``old``: the item that had it, if any is left."""

    key: str
    etag: str | None = None
    old: Kept | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A key that the caller took, and may give back."""

    key: str
    entry: KeyEntry
    etag: str


Finish = Callable[[str, str], Awaitable[bool]]
"""Finish what a carrier with a mark began; False where the carrier has no such mark."""


class Keys:
    """The keys of items of one store."""

    def __init__(self, store: Store, finish: Finish) -> None:
        self._store = store
        self._finish = finish

    async def look(self, queue: str, name: str, key: str) -> Holder | Free:
        """Who has a key. Raises ``ProviderError``, retryable where that is not decided yet."""
        where = key_name(queue, name, key)
        for _ in range(_TRIES):
            found = await self._store.bucket.get(where)
            if not isinstance(found, Found):
                return Free(where)
            entry = decoded_key(found.body, where)
            seen = await self._look_at(where, entry, found.etag)
            if seen is not None:
                return seen
            await self._store.clock.sleep(_PAUSE_S)
        raise ProviderError(
            f"{self._store.bucket.place}: another process is taking the key {key!r}; asking again may help",
            retryable=True,
        )

    async def take(self, free: Free, item: Item, *, carrier: str | None, mark: str | None) -> Taken | None:
        """Take a free key for ``item``; None where others were first."""
        store = self._store
        nonce = store.clock.new_id()
        entry = KeyEntry(item, nonce, await store.now(), carrier, mark)
        body = encoded_key(entry)
        if free.etag is None:
            etag = await store.create(free.key, body, nonce)
        else:
            etag = await store.replace(free.key, body, free.etag, nonce)
        if etag is None:
            return None
        if free.old is not None:
            await store.change(free.old.token, _without_key)
        return Taken(free.key, entry, etag)

    async def give_back(self, taken: Taken) -> None:
        """It was taken for a write that did not come."""
        await self._close(taken.key, taken.entry, taken.etag)

    async def free(self, item: Item) -> None:
        """The item is about to go: nobody has its key any more."""
        if item.key is None:
            return
        where = key_name(item.queue, item.name, item.key)
        found = await self._store.bucket.get(where)
        if isinstance(found, Found):
            entry = decoded_key(found.body, where)
            if entry.item.id == item.id:
                await self._close(where, entry, found.etag)

    async def close_free(self, free: Free) -> None:
        """Nobody has it, and its object is left over from a crash: that goes."""
        found = await self._store.bucket.get(free.key)
        if isinstance(found, Found) and found.etag == free.etag:
            await self._close(free.key, decoded_key(found.body, free.key), found.etag)

    async def regain(self, item: Item) -> bool:
        """The item lives again: whether it has its key, or had it free to take."""
        if item.key is None:
            return False
        where = key_name(item.queue, item.name, item.key)
        found = await self._store.bucket.get(where)
        if isinstance(found, Found):
            entry = decoded_key(found.body, where)
            return entry.item.id == item.id and not entry.closing
        return await self.take(Free(where), item, carrier=None, mark=None) is not None

    async def _look_at(self, where: str, entry: KeyEntry, etag: str) -> Holder | Free | None:
        """What an entry means; None: that is to be seen in a moment."""
        store, item = self._store, entry.item
        now = await store.now()
        is_old = now - entry.at > UNSURE_MS
        if entry.closing:
            return Free(where, etag) if is_old else None
        kept = await store.read(token_of(item.id))
        if kept is not None and kept.item.key == item.key and _is_same_kind(kept.item, item):
            key = item.queue, item.name, item.key or ""
            if kept.item.holds(key, now):
                return Holder(item.id, item.payload)
            return Free(where, etag, kept)
        if kept is not None:
            return Free(where, etag)
        if entry.carrier is not None and entry.mark is not None:
            if await self._finish(entry.carrier, entry.mark):
                return Holder(item.id, item.payload)
            if await store.read(token_of(item.id)) is not None:
                return None  # it was finished meanwhile
            return Free(where, etag) if is_old else None
        again = await store.bucket.get(where, etag)
        if isinstance(again, Found):
            return None
        await store.make([item], entry.nonce)
        return Holder(item.id, item.payload)

    async def _close(self, where: str, entry: KeyEntry, etag: str) -> None:
        store = self._store
        nonce = store.clock.new_id()
        closing = KeyEntry(entry.item, nonce, await store.now(), closing=True)
        if await store.replace(where, encoded_key(closing), etag, nonce) is not None:
            await store.bucket.delete([where])


def _is_same_kind(one: Item, other: Item) -> bool:
    return (one.queue, one.name) == (other.queue, other.name)


def _without_key(record: Record) -> bool:
    had = record.item.key is not None
    record.item.key = None
    return had


def conflict(item: NewItem, holder: str) -> KeyConflict:
    """The error of whoever enqueues another payload under a key that is taken."""
    return KeyConflict(item.queue, item.name, item.key or "", holder)


def made_at(item: NewItem, store: Store, now: int) -> Item:
    """A new item as it is kept."""
    return made(item, store.next_seq(now), now)
