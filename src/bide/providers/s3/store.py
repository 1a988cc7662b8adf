"""The store: items as objects, each with one index key, and how one is changed.

An item is changed by compare-and-swap of its object, and by nothing else. Its index key follows: what it should be
is a function of the item (:func:`bide.providers.s3.names.index_key`), so that whoever meets a wrong one can put it
right. The new key is written before the old one is deleted. Between, and after a crash anywhere, an unfinished item
has a key that leads to it, except where its creator crashed before the first: the sweep finds that one.

A write whose answer was lost is settled by reading back: the nonce of its body says whose it is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from bide.clock import Clock
from bide.errors import ProviderCorrupt, ProviderError
from bide.providers.items import Item
from bide.providers.s3.bucket import Bucket, Found, Lost, Written
from bide.providers.s3.marker import Marker
from bide.providers.s3.names import ITEMS, index_key, ready_key, token_of
from bide.providers.s3.records import Record, decoded, encoded, nonce_in, record_of
from bide.providers.s3.timing import StoreClock
from bide.providers.s3.together import gathered
from bide.providers.s3.watching import Watch

AT_ONCE = 32
"""Requests that one call has under way at a time."""

RACES = 40
"""How often a change that others overtook is tried again."""

AT_ONCE_RACES = 12
"""The first so many tries follow each other at once: each takes a round trip, and somebody always wins."""


_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Kept:
    """A record as it lies in the store now."""

    record: Record
    etag: str

    @property
    def item(self) -> Item:
        return self.record.item

    @property
    def token(self) -> str:
        return token_of(self.record.item.id)


class Store:
    """Everything that the parts of the provider share."""

    def __init__(self, bucket: Bucket, clock: Clock, shards: int) -> None:
        self.bucket = bucket
        self.clock = clock
        self.time = StoreClock(bucket, clock)
        self.marker = Marker(bucket, clock)
        self.watch = Watch(bucket, self.marker, clock)
        self.shards = shards
        self.changes = 0
        """How often this process made, ended or indexed anything: so that others need not look without a reason."""
        self._counter = 0
        self._guard = threading.Lock()
        self._steps = 0

    async def now(self, *, roughly: bool = False) -> int:
        """The server's clock. What was known before it was set is forgotten."""
        now = await self.time.now(roughly=roughly)
        if self.time.steps != self._steps:
            self._steps = self.time.steps
            self.watch.forget()
        return now

    def next_seq(self, now: int) -> int:
        """The place of an item that is enqueued now: after all that this process enqueued before."""
        with self._guard:
            self._counter = max(self._counter + 1, now * 1_000_000)
            return self._counter

    # --- objects -----------------------------------------------------------------------------------------

    async def create(self, key: str, body: bytes, nonce: str) -> str | None:
        """The ETag of a new object; None where there is one already. Raises ``ProviderError``."""
        try:
            written = await self.bucket.create(key, body)
        except ProviderError as error:
            return await self._read_back(key, nonce, error)
        return written.etag if isinstance(written, Written) else await self._is_mine(key, nonce)

    async def replace(self, key: str, body: bytes, etag: str, nonce: str) -> str | None:
        """The new ETag; None where others were first. Raises ``ProviderError``."""
        try:
            written = await self.bucket.replace(key, body, etag)
        except ProviderError as error:
            return await self._read_back(key, nonce, error)
        return None if isinstance(written, Lost) else written.etag

    async def _read_back(self, key: str, nonce: str, error: ProviderError) -> str | None:
        """After a write of which nobody knows whether it was done: its ETag if it was, else the error."""
        if not error.retryable:
            raise error
        try:
            etag = await self._is_mine(key, nonce)
        except ProviderError:
            raise error from None
        if etag is None:
            raise error
        return etag

    async def _is_mine(self, key: str, nonce: str) -> str | None:
        found = await self.bucket.get(key)
        return found.etag if isinstance(found, Found) and nonce_in(found.body) == nonce else None

    # --- items -------------------------------------------------------------------------------------------

    async def read(self, token: str) -> Kept | None:
        """The item of a token. Raises ``ProviderError``."""
        key = f"{ITEMS}{token}"
        found = await self.bucket.get(key)
        if not isinstance(found, Found):
            return None
        return Kept(decoded(found.body, key), found.etag)

    async def readable(self, token: str) -> Kept | None:
        """As :meth:`read`; None too where what lies there is no item. Raises ``ProviderError``."""
        try:
            return await self.read(token)
        except ProviderCorrupt:
            return None

    async def save(self, kept: Kept, record: Record) -> Kept | None:
        """``record`` in place of what was kept; None where others were first. Raises ``ProviderError``."""
        record.nonce = self.clock.new_id()
        key = f"{ITEMS}{kept.token}"
        etag = await self.replace(key, encoded(record), kept.etag, record.nonce)
        return None if etag is None else Kept(record, etag)

    async def change(self, token: str, decide: Callable[[Record], bool]) -> Kept | None:
        """What an item has become. ``decide`` changes the record that it is given, or answers False to leave it.

        None where there is none, or ``decide`` left it. The index is for the caller. Raises ``ProviderError``.
        """
        for tried in range(RACES):
            kept = await self.read(token)
            if kept is None or kept.record.gone:
                return None
            record = copied(kept.record)
            if not decide(record):
                return None
            saved = await self.save(kept, record)
            if saved is not None:
                return saved
            await self.step_aside(tried)
        raise ProviderError(f"{self.bucket.place}: others kept changing an item", retryable=True)

    async def step_aside(self, tried: int) -> None:
        """After a lost race: let others go first, longer each time."""
        if tried >= AT_ONCE_RACES:
            await self.clock.sleep(0.1 * (tried - AT_ONCE_RACES + 1) * self.clock.draw())

    async def make(self, items: Sequence[Item], mark: str) -> list[bool]:
        """Create items and their index keys; which of them are new. Making them again with that mark does no harm.

        What a crash in between leaves is found by whoever makes the same items again, and by the sweep.
        """

        async def create(item: Item) -> bool:
            record = record_of(item)
            record.nonce = f"new:{mark}"
            key = f"{ITEMS}{token_of(item.id)}"
            return await self.create(key, encoded(record), record.nonce) is not None

        are_new = await self.each(items, create)
        await self.index(item for item, is_new in zip(items, are_new, strict=True) if is_new)
        await self.each(
            [item.id for item, is_new in zip(items, are_new, strict=True) if not is_new], self.repair
        )
        return are_new

    async def repair(self, id: str) -> None:
        """Write the index key of an item that was made before, if whoever made it may have crashed."""
        kept = await self.read(token_of(id))
        if kept is not None and kept.item.ended_at is None and not kept.record.gone:
            await self.index([kept.item])

    async def index(self, items: Iterable[Item]) -> None:
        """Write the index keys of items that have not ended, and tell of them."""
        self.changes += 1
        keys = [ready_key(item, self.shards) for item in items]
        await self.each(keys, self.bucket.put)
        self.watch.add(keys)
        await self.marker.tell(keys)

    async def moved(self, before: Item, after: Item) -> list[str]:
        """Write the index key of an item that has changed; the keys that are to be deleted now."""
        self.changes += 1
        old, new = index_key(before, self.shards), index_key(after, self.shards)
        if old != new:
            await self.bucket.put(new)
        if after.ended_at is None:
            self.watch.add([new])
            await self.marker.tell([new])
        else:
            self.watch.drop(token_of(after.id))
        return [old] if old != new else []

    async def each(self, things: Iterable[_T], act: Callable[[_T], Awaitable[_R]]) -> list[_R]:
        """What ``act`` answers of each, several at a time; an error only when all have ended."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def acted(thing: _T) -> _R:
            async with gate:
                return await act(thing)

        return await gathered([acted(thing) for thing in things])


def copied(record: Record) -> Record:
    """A record that can be changed while the other is kept."""
    return replace(record, item=replace(record.item))
