"""What crashes left, found by comparing listings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bide.errors import ProviderCorrupt
from bide.providers.s3.bucket import Found, Listed
from bide.providers.s3.documents import Documents
from bide.providers.s3.ending import Ending
from bide.providers.s3.intake import Intake
from bide.providers.s3.keys import Free
from bide.providers.s3.mending import Mending
from bide.providers.s3.names import (
    BATCHES,
    ENDED,
    ITEMS,
    KEYS,
    POLLS,
    READY,
    SCHEDULES,
    instant_and_item,
    sight_of,
)
from bide.providers.s3.poll_documents import Changes, PollDocuments
from bide.providers.s3.records import decoded_key, outbox_of
from bide.providers.s3.store import Store
from bide.providers.s3.subscriptions import Subscriptions
from bide.providers.s3.surveying import Survey

UNDER_WAY_MS = 120_000
"""What was written within that may be under way: it is left for the next round."""


class Audit:
    """Compares what lies in one store."""

    def __init__(
        self,
        store: Store,
        *,
        documents: Documents,
        poll_documents: PollDocuments,
        changes: Changes,
        intake: Intake,
        mending: Mending,
        ending: Ending,
        subscriptions: Subscriptions,
    ) -> None:
        self._store = store
        self._documents = documents
        self._poll_documents = poll_documents
        self._changes = changes
        self._intake = intake
        self._mending = mending
        self._ending = ending
        self._subscriptions = subscriptions

    async def run(self, survey: Survey, now: int, last: int) -> None:
        """One round; the round before was at ``last``. Raises ``ProviderError``."""
        before, since = now - UNDER_WAY_MS, last - 2 * UNDER_WAY_MS
        await self._finish_batches(survey, before)
        await self._free_keys(survey, before, since)
        await self._finish_schedules(survey)
        await self._tell_changes(survey, before)
        await self._end_deliveries(now, since)
        await self._compare(survey, before, since)

    async def _finish_batches(self, survey: Survey, before: int) -> None:
        for listed in _old(await survey.all(BATCHES), before):
            await self._intake.finish_batch(listed.key)

    async def _free_keys(self, survey: Survey, before: int, since: int) -> None:
        """Each key once, some minutes after it was taken: whether its item came."""
        for listed in _old(await survey.all(KEYS), before):
            if listed.modified.before < since:
                continue
            found = await self._store.bucket.get(listed.key)
            if not isinstance(found, Found):
                continue
            item = decoded_key(found.body, listed.key).item
            seen = await self._intake.keys.look(item.queue, item.name, item.key or "")
            if isinstance(seen, Free) and seen.old is None and seen.etag is not None:
                await self._intake.keys.close_free(seen)

    async def _finish_schedules(self, survey: Survey) -> None:
        for listed in await survey.all(SCHEDULES):
            document = await self._documents.read(listed.key)
            if document.value.get("outbox") is not None:
                outbox = outbox_of(document.value["outbox"])
                await self._store.make(outbox.items, outbox.mark)
                kept = {name: value for name, value in document.value.items() if name != "outbox"}
                await self._documents.write(listed.key, document, kept)

    async def _tell_changes(self, survey: Survey, before: int) -> None:
        for key, document in (await self._poll_documents.of(await survey.all(POLLS))).items():
            change = document.value.get("change")
            if change is not None and change["event"]["created_at"] < before:
                await self._documents.write(key, document, await self._changes.told(document.value))

    async def _end_deliveries(self, now: int, since: int) -> None:
        """Of subscriptions that ended since: whoever ended them may have died over their deliveries."""
        for name, row in (await self._subscriptions.rows()).items():
            if row.ended_at is not None and row.ended_at >= since:
                await self._ending.end_deliveries([name], row.ended_reason, now)

    async def _compare(self, survey: Survey, before: int, since: int) -> None:
        """Items and index keys that do not belong to each other.

        An item without a key, or with several, is read; so is, once, each that was written since the last round and
        not surely before its key, whose state may have gone on without it.
        """
        items = {one.key.removeprefix(ITEMS): one for one in await survey.all(ITEMS)}
        index: dict[str, list[Listed]] = {}
        for one in await survey.all(READY):
            sight = sight_of(one.key)
            if sight is not None:
                index.setdefault(sight.item, []).append(one)
        for one in await survey.all(ENDED):
            index.setdefault(instant_and_item(one.key)[1], []).append(one)
        odd = [
            token
            for token, one in items.items()
            if one.modified.before <= before and _may_be_odd(one, index.get(token, ()), since)
        ]
        await self._store.each(odd, lambda token: self._mend(token, index))
        stray = [
            one.key
            for token, listed in index.items()
            if token not in items
            for one in listed
            if one.modified.before <= before
        ]
        await self._delete_stray(stray, index)

    async def _mend(self, token: str, index: Mapping[str, Sequence[Listed]]) -> None:
        """One item whose index keys are none or too many."""
        try:
            kept = await self._store.read(token)
        except ProviderCorrupt:
            return
        kept = None if kept is None else await self._mending.settled(kept)
        if kept is None:
            return
        keys = [one.key for one in index.get(token, ())] or [""]
        await self._mending.put_right_all(keys, kept.item)

    async def _delete_stray(self, keys: Sequence[str], index: Mapping[str, Sequence[Listed]]) -> None:
        """Index keys whose item is gone: it is not there a second time that it is looked for."""
        tokens = {one.key: token for token, listed in index.items() for one in listed}
        are_there = await self._store.each(
            keys, lambda key: self._store.bucket.exists(f"{ITEMS}{tokens[key]}")
        )
        gone = [key for key, is_there in zip(keys, are_there, strict=True) if not is_there]
        if gone:
            await self._store.bucket.delete(gone)


def _old(listed: Sequence[Listed], before: int) -> list[Listed]:
    return [one for one in listed if one.modified.before <= before]


def _may_be_odd(item: Listed, keys: Sequence[Listed], since: int) -> bool:
    """Whether an item may not belong to its index keys, as far as the listings tell."""
    if len(keys) != 1:
        return True
    return item.modified.before > since and item.modified.before > keys[0].modified.earliest
