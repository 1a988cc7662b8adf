"""Rows of polls as documents, each with the change that was recorded last until that has been told.

A change is recorded by one write of the poll's document: digest, validators and the *change* (the event, and who
hears it) together. Then the event gets its number, by being created at the first that is free, and the deliveries are
made; both have names of their own, so that doing it again does no harm. The change stays in the document, at no cost,
until the next claim writes over it; whoever does that tells it first, unless this process knows that it was told.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from bide.core.conditional import Validators
from bide.core.durations import to_ms
from bide.errors import ProviderError
from bide.provider import Changed, EventRow, PollRow, Subscription
from bide.providers.fanout import delivery_of, envelope_of
from bide.providers.s3.bucket import Found, Listed
from bide.providers.s3.documents import Document, Documents
from bide.providers.s3.keys import made_at
from bide.providers.s3.names import EVENTS, POLLS, event_key, seq_of, token_of
from bide.providers.s3.records import json_of
from bide.providers.s3.store import Store

LIST_APART_S = 5.0
"""What others do to polls is noticed within so long."""


def poll_key(name: str) -> str:
    """Where the row of a poll lies."""
    return f"{POLLS}{token_of(name)}"


def row_of(value: dict[str, Any]) -> PollRow | None:
    """The row in a document; None where there is no poll."""
    if not value:
        return None
    read = value["row"]
    return PollRow(**{**read, "validators": Validators(**read["validators"])})


def value_of(row: PollRow, before: dict[str, Any], change: dict[str, Any] | None = None) -> dict[str, Any]:
    """A document of ``row``, with what it had before beside it; or with another change."""
    value = {"row": asdict(row), "event_seq": before.get("event_seq")}
    told = before.get("change") if change is None else change
    return value if told is None else {**value, "change": told}


class Changes:
    """Tells changes: numbers events and makes their deliveries."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._turns: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._told: dict[str, int] = {}
        self._last = 0

    def change_of(
        self, event: EventRow, last: EventRow | None, hearing: Collection[Subscription]
    ) -> dict[str, Any]:
        """What a document keeps of a change until it is told."""
        named = [{**asdict(one), "within": to_ms(one.within)} for one in hearing]
        return {
            "event": asdict(event),
            "previous": None if last is None else last.payload,
            "hearing": named,
            "after": self._last,
        }

    async def tell(self, change: dict[str, Any], *, is_new: bool) -> Changed:
        """Number the event, where it has no number yet, and make its deliveries. Raises ``ProviderError``."""
        event = EventRow(**change["event"])
        seq = self._told.get(event.id)
        if seq is None:
            async with self._turn():
                seq = await self._numbered(event, change["after"], is_new)
        event = replace(event, seq=seq)
        text = envelope_of(event, change["previous"])
        subscriptions = [
            Subscription(**{**one, "within": timedelta(milliseconds=one["within"])})
            for one in change["hearing"]
        ]
        now = await self._store.now()
        items = [
            made_at(delivery_of(event, subscription, text), self._store, now)
            for subscription in subscriptions
        ]
        await self._store.make(items, event.id)
        self._told[event.id] = seq
        return Changed(event_id=event.id, seq=seq, deliveries=len(items))

    async def told(self, value: dict[str, Any]) -> dict[str, Any]:
        """A document without its change, which has been told then."""
        change = value.get("change")
        if change is None:
            return value
        event_id = change["event"]["id"]
        seq = self._told.pop(event_id, None)
        if seq is None:
            seq = (await self.tell(change, is_new=False)).seq
            self._told.pop(event_id, None)
        return {"row": value["row"], "event_seq": seq}

    async def last_of(self, value: dict[str, Any]) -> EventRow | None:
        """The last event of a poll, where it is still kept."""
        row = row_of(value)
        seq = value.get("event_seq")
        if row is None or row.event_id is None or seq is None:
            return None
        return await self.event(seq)

    async def event(self, seq: int) -> EventRow | None:
        """One event by its number."""
        key = event_key(seq)
        found = await self._store.bucket.get(key)
        return EventRow(**json_of(found.body, key)["event"]) if isinstance(found, Found) else None

    async def numbers(self, after: int = 0) -> list[int]:
        """Numbers of the events that are kept, in order."""
        return [seq_of(one.key) for one in await self._store.bucket.all(EVENTS, event_key(after))]

    async def _numbered(self, event: EventRow, after: int, is_new: bool) -> int:
        """The number of an event: the one that it has, or the first that is free."""
        if self._last == 0 or not is_new:
            numbers = await self.numbers(after)
            self._last = max([self._last, after, *numbers])
            for seq in numbers if not is_new else ():
                kept = await self.event(seq)
                if kept is not None and kept.id == event.id:
                    return seq
        while True:
            seq = self._last + 1
            body = _event_body(replace(event, seq=seq))
            if await self._store.create(event_key(seq), body, event.id) is not None:
                self._last = seq
                self._store.changes += 1
                return seq
            numbers = await self.numbers(self._last)
            if not numbers:
                raise ProviderError(f"{self._store.bucket.place}: events cannot be listed", retryable=True)
            self._last = numbers[-1]

    def _turn(self) -> asyncio.Lock:
        """Events of one process get their numbers one after the other."""
        loop = asyncio.get_running_loop()
        with self._guard:
            for closed in [one for one in self._turns if one.is_closed()]:
                del self._turns[closed]
            return self._turns.setdefault(loop, asyncio.Lock())


class PollDocuments:
    """The documents of all polls, read again only where they have changed."""

    def __init__(self, store: Store, documents: Documents) -> None:
        self._store = store
        self._documents = documents
        self._listed_at = float("-inf")
        self._there: set[str] = set()

    async def refresh(self, keys: Collection[str]) -> dict[str, Document]:
        """What is known of these, no older than a few seconds: one listing, and what changed."""
        clock = self._store.clock
        if clock.monotonic() - self._listed_at >= LIST_APART_S:
            self._listed_at = clock.monotonic()
            listed = {one.key: one.etag for one in await self._store.bucket.all(POLLS)}
            self._there = set(listed)
            stale = [
                key for key in keys if key in listed and _etag(self._documents.known(key)) != listed[key]
            ]
            for key in keys:
                if key not in listed:
                    self._documents.forget(key)
            await self._store.each(stale, self._documents.read)
        unknown = [key for key in keys if key in self._there and self._documents.known(key) is None]
        await self._store.each(unknown, self._documents.read)
        return {key: known for key in keys if (known := self._documents.known(key)) is not None}

    async def all(self) -> dict[str, Document]:
        """All of them as they are now."""
        return await self.of(await self._store.bucket.all(POLLS))

    async def of(self, objects: Sequence[Listed]) -> dict[str, Document]:
        """Those that were listed, no older than the listing."""
        listed = {one.key: one.etag for one in objects}
        stale = [key for key, etag in listed.items() if _etag(self._documents.known(key)) != etag]
        await self._store.each(stale, self._documents.read)
        return {key: known for key in listed if (known := self._documents.known(key)) is not None}


def _etag(document: Document | None) -> str | None:
    return None if document is None else document.etag


def _event_body(event: EventRow) -> bytes:
    return json.dumps({"nonce": event.id, "event": asdict(event)}).encode()
