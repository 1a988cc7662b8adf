"""Retention, and what crashes left: small steps, most of which are one listing that reads nothing.

A step looks at what lies in the store, sees by index keys what has ended and what has a life until when, and reads
only what is due. How long nothing will be due is remembered, so that further steps cost nothing until then, or for
five minutes, after which what other processes did is looked at.

Every five minutes the same look serves one process of all, whoever writes the ``sweep`` object first, to compare:
items without an index key, index keys without an item, batches, keys and changes that nobody finished. It compares
names and reads what does not fit. So there is no cursor that could be lost: each round sees everything. A store of
more than a thousand objects takes a listing for each thousand, and is looked at less often.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

from bide.core.durations import to_ms
from bide.errors import ProviderCorrupt
from bide.provider import Pruned
from bide.providers.s3.auditing import Audit
from bide.providers.s3.bucket import Listed
from bide.providers.s3.ending import Ending
from bide.providers.s3.keys import Keys
from bide.providers.s3.mending import past_life
from bide.providers.s3.names import (
    ENDED_RETAINED,
    ENDED_UNTIL,
    EVENTS,
    READY,
    SWEEP,
    Sight,
    instant_and_item,
    seq_of,
    sight_of,
)
from bide.providers.s3.poll_documents import Changes, PollDocuments, row_of
from bide.providers.s3.records import Record
from bide.providers.s3.removing import remove_items
from bide.providers.s3.store import Store
from bide.providers.s3.surveying import Survey, surveyed

LOOK_MS = 300_000
"""What other processes left to be pruned is noticed within so long, and what crashes left, by one process."""

LOOK_AT_MUCH_MS = 1_800_000
"""The same, of a store that one listing does not show."""


class Sweeping:
    """Prunes one store."""

    def __init__(
        self,
        store: Store,
        *,
        poll_documents: PollDocuments,
        changes: Changes,
        keys: Keys,
        ending: Ending,
        audit: Audit,
    ) -> None:
        self._store = store
        self._poll_documents = poll_documents
        self._changes = changes
        self._keys = keys
        self._ending = ending
        self._audit = audit
        self._next_at = 0
        self._seen = -1

    async def prune(self, retention: timedelta, limit: int) -> Pruned:
        """One step. Raises ``ProviderError``."""
        store = self._store
        now, retention_ms = await store.now(), to_ms(retention)
        changes = store.changes
        if changes == self._seen and now < self._next_at:
            return Pruned()
        survey = await surveyed(store.bucket)
        again_ms = LOOK_MS if survey.is_small else LOOK_AT_MUCH_MS
        self._seen, self._next_at = changes, now + again_ms
        await self._audit_in_turn(survey, now, again_ms)
        events = await self._prune_events(survey, now, retention_ms, limit)
        items = await self._prune_items(survey, now, retention_ms, limit)
        expired = await self._prune_lives(survey, now, limit)
        if events or items or expired:
            self._next_at = now
        return Pruned(events=events, items=items, expired=expired)

    async def _audit_in_turn(self, survey: Survey, now: int, again_ms: int) -> None:
        """Look for what crashes left, unless somebody did: the stamp of an object says when."""
        store = self._store
        written = next((one for one in await survey.first(SWEEP) if one.key == SWEEP), None)
        last = 0 if written is None else written.modified.earliest
        if last <= now < last + again_ms:
            return
        nonce = store.clock.new_id()
        body = json.dumps({"nonce": nonce}).encode()
        if written is None:
            is_ours = await store.create(SWEEP, body, nonce) is not None
        else:
            is_ours = await store.replace(SWEEP, body, written.etag, nonce) is not None
        if is_ours:
            await self._audit.run(survey, now, last)

    # --- what has ended ----------------------------------------------------------------------------------

    async def _prune_items(self, survey: Survey, now: int, retention_ms: int, limit: int) -> int:
        due: list[str] = []
        for prefix, kept_ms in ((ENDED_RETAINED, retention_ms), (ENDED_UNTIL, 0)):
            for listed in await survey.first(prefix):
                instant, _ = instant_and_item(listed.key)
                if instant + kept_ms < now:
                    due.append(listed.key)
                else:
                    self._next_at = min(self._next_at, instant + kept_ms + 1)
                    break
        removed = 0
        for begin in range(0, len(due), limit):
            removed += await self._remove_ended(due[begin : begin + limit - removed], now, retention_ms)
            if removed >= limit:
                break
        return removed

    async def _remove_ended(self, keys: Sequence[str], now: int, retention_ms: int) -> int:
        """Remove the items of index keys that are due; how many were."""
        store = self._store
        read = await store.each([instant_and_item(key)[1] for key in keys], store.readable)
        old = [
            kept
            for kept in read
            if kept is not None
            and kept.item.ended_at is not None
            and kept.item.ended_at < now - kept.item.kept_ms(retention_ms)
        ]
        await remove_items(store, self._keys, old)
        stray = [
            key for key, kept in zip(keys, read, strict=True) if kept is None or kept.item.ended_at is None
        ]
        if stray:
            await store.bucket.delete(stray)
        return len(old)

    async def _prune_lives(self, survey: Survey, now: int, limit: int) -> int:
        """Bury what waits and is past its life."""
        listed = await survey.all(READY)
        sights = [sight for one in listed if (sight := sight_of(one.key)) is not None]
        past = sorted((sight for sight in sights if sight.is_past_life(now)), key=_seq)
        lives = [
            sight.expires_at for sight in sights if sight.expires_at is not None and sight.expires_at > now
        ]
        self._next_at = min([self._next_at, *lives])

        def bury(record: Record) -> bool:
            if record.item.state != "ready" or record.item.ended_at is not None:
                return False
            ended = past_life(record, now).item
            record.item.end("dead", now, ended.error)
            return True

        expired = 0
        for begin in range(0, len(past), max(limit, 1)):
            part = past[begin : begin + limit - expired]
            expired += len(await self._ending.end_of([sight.item for sight in part], bury))
            if expired >= limit:
                break
        return expired

    # --- events ------------------------------------------------------------------------------------------

    async def _prune_events(self, survey: Survey, now: int, retention_ms: int, limit: int) -> int:
        """Remove old events, but the last of each poll."""
        old: list[Listed] = []
        for listed in await survey.first(EVENTS):
            if listed.modified.earliest >= now - retention_ms:
                self._next_at = min(self._next_at, listed.modified.before + retention_ms)
                break
            old.append(listed)
        if not old:
            return 0
        rows = [row_of(document.value) for document in (await self._poll_documents.all()).values()]
        last = {row.event_id for row in rows if row is not None}
        removed: list[str] = []
        for listed in old:
            event = await self._event(listed)
            if event is not None and event[0] not in last and event[1] < now - retention_ms:
                removed.append(listed.key)
            if len(removed) >= limit:
                break
        if removed:
            await self._store.bucket.delete(removed)
        return len(removed)

    async def _event(self, listed: Listed) -> tuple[str, int] | None:
        """Id of an event, and when it was made; None where that cannot be read any more."""
        try:
            event = await self._changes.event(seq_of(listed.key))
        except ProviderCorrupt:
            return None
        return None if event is None else (event.id, event.created_at)


def _seq(sight: Sight) -> int:
    return sight.seq
