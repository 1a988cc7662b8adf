"""Ending items that nobody holds: discarded, past their life, or of a subscription that ended."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from bide.provider import DELIVERIES
from bide.providers import reasons
from bide.providers.items import Item
from bide.providers.s3.names import READY, sight_of, token_of
from bide.providers.s3.records import Record
from bide.providers.s3.store import Store


class Ending:
    """Ends items of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def end(self, ids: Collection[str], decide: Callable[[Record], bool]) -> list[str]:
        """End the items of ``ids`` that ``decide`` ends; which these are, in order."""
        tokens = {token_of(id): id for id in sorted(set(ids))}
        ended = await self.end_of(list(tokens), decide)
        return [id for token, id in tokens.items() if token in ended]

    async def end_of(self, tokens: Collection[str], decide: Callable[[Record], bool]) -> set[str]:
        """End items by their tokens; which ``decide`` ended."""
        store = self._store
        stale: list[str] = []

        async def end(token: str) -> bool:
            before: list[Item] = []

            def decided(record: Record) -> bool:
                before[:] = [replace(record.item)]
                return decide(record)

            saved = await store.change(token, decided)
            if saved is None:
                return False
            stale.extend(await store.moved(before[0], saved.item))
            return True

        ordered = list(tokens)
        are_ended = await store.each(ordered, end)
        if stale:
            await store.bucket.delete(stale)
        return {token for token, is_ended in zip(ordered, are_ended, strict=True) if is_ended}

    async def end_deliveries(self, names: Collection[str], reason: str | None, now: int) -> None:
        """Deliveries that wait for these subscribers, which have ended, are dead."""
        queue, tokens = token_of(DELIVERIES), {token_of(name) for name in names}

        def bury(record: Record) -> bool:
            if record.item.state != "ready" or record.item.ended_at is not None:
                return False
            record.item.end("dead", now, reasons.subscription_ended(reason))
            return True

        listed = await self._store.bucket.all(READY)
        sights = [sight for one in listed if (sight := sight_of(one.key)) is not None]
        await self.end_of(
            {sight.item for sight in sights if sight.queue == queue and sight.name in tokens}, bury
        )
