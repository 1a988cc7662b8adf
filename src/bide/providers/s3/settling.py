"""Renewing, settling and releasing locks: one compare-and-swap each, and less where nothing is to be left.

**An ack that leaves nothing is one deletion.** While a lock surely lives, nobody but its holder changes the item, so
the holder may delete it with its index key unconditionally, many in one request, as long as the request ends before
the lock does. Where the lock has less time left than a request may take, the item is first marked *gone* under its
ETag. A crash in the middle leaves a key without an item, or an item without a key whose lock expires: both are found.

What an ack enqueues stands in the item's outbox, by the same write that ends it; a moment later it is made, and the
outbox goes. Of several settlements of one call those with an outbox come first, since they alone can fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import assert_never

from bide.core.durations import to_ms
from bide.errors import ProviderError
from bide.provider import DELIVERIES, Abandon, Ack, Bury, Settled, Settlement, SubscriptionRow
from bide.providers import reasons
from bide.providers.items import abandon, refuse_unstorable
from bide.providers.s3.bucket import REQUEST_S
from bide.providers.s3.holding import Held, item_in
from bide.providers.s3.intake import Intake, refuse
from bide.providers.s3.names import ITEMS, ready_key
from bide.providers.s3.records import Outbox, Record
from bide.providers.s3.store import RACES, Kept, Store, copied

SURELY_MS = 2 * REQUEST_S * 1000 // 3
"""A lock with so much time left outlives the deletion of its item."""


@dataclass(slots=True)
class Leavings:
    """What settling leaves to be deleted at the end of its call."""

    keys: list[str] = field(default_factory=list)


class Settling:
    """Renews, settles and releases for one process."""

    def __init__(self, store: Store, held: Held, intake: Intake) -> None:
        self._store = store
        self._held = held
        self._intake = intake

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        """Prolong locks; False for each token that is dead. Raises ``ProviderError``."""
        lock_ms = to_ms(lock_timeout)
        now = await self._store.now()

        def prolonged(record: Record) -> None:
            record.item.locked_until, record.item.lock_ms = now + lock_ms, lock_ms

        async def renew(token: str) -> bool:
            for tried in range(RACES):
                kept = await self._locked(token, now)
                if kept is None:
                    return False
                record = copied(kept.record)
                prolonged(record)
                if (saved := await self._saved(kept, record)) is not None:
                    self._store.watch.put_off(saved.token, saved.item.locked_until)
                    return True
                await self._store.step_aside(tried)
            return False

        return await self._store.each(tokens, renew)

    async def settle(
        self, settlements: Sequence[Settlement], ended: Mapping[str, SubscriptionRow]
    ) -> list[Settled]:
        """Settle items, each by its token. ``ended``: subscriptions that have ended, by name.

        Raises ``KeyConflict`` and ``ProviderError``.
        """
        for settlement in settlements:
            if isinstance(settlement, Ack):
                refuse_unstorable(settlement.result or "")
                refuse(settlement.enqueue)
        leavings = Leavings()
        settled: list[Settled] = ["stale"] * len(settlements)
        first, rest = _in_turn(settlements)
        if len(first) > 1 or (first and rest):
            await self._foresee(settlements[at] for at in first)
        try:
            for at in first:  # one by one, each a transaction of its own
                ack = settlements[at]
                assert isinstance(ack, Ack)
                settled[at] = await self._ack_enqueueing(ack, leavings)

            async def settle(at: int) -> None:
                settled[at] = await self._settle(settlements[at], ended, leavings)

            await self._store.each(rest, settle)
        finally:
            if leavings.keys:
                await self._store.bucket.delete(leavings.keys)
        return settled

    async def release(self, fetch_token: str) -> int:
        """Give back what a fetch took and still holds, attempt uncounted. Raises ``ProviderError``."""
        tokens = self._held.of_fetch(fetch_token)
        return sum(await self._store.each(tokens, self._give_back))

    # --- one settlement ----------------------------------------------------------------------------------

    async def _settle(
        self, settlement: Settlement, ended: Mapping[str, SubscriptionRow], leavings: Leavings
    ) -> Settled:
        for tried in range(RACES):
            now = await self._store.now()
            kept = await self._locked(settlement.token, now)
            if kept is None:
                self._held.drop([settlement.token])
                return "stale"
            if isinstance(settlement, Ack) and self._may_delete(kept, now):
                self._leave_nothing(kept, leavings)
                return "settled"
            record = copied(kept.record)
            match settlement:
                case Ack(_, result):
                    _end(record, now, result)
                case Abandon():
                    row = ended.get(record.item.name) if record.item.queue == DELIVERIES else None
                    abandon(record.item, settlement, now, row)
                case Bury(_, error):
                    record.item.end("dead", now, reasons.storable(error))
                case _:
                    assert_never(settlement)
            if await self._finished(kept, record, leavings):
                return "settled"
            await self._store.step_aside(tried)
        raise ProviderError(f"{self._store.bucket.place}: others kept changing an item", retryable=True)

    async def _foresee(self, acks: Iterable[Settlement]) -> None:
        """Raise ``KeyConflict`` before anything is changed, where the items of several acks conflict."""
        now = await self._store.now()
        items = [
            item
            for ack in acks
            if isinstance(ack, Ack) and await self._locked(ack.token, now) is not None
            for item in ack.enqueue
        ]
        await self._intake.plan(items)

    async def _ack_enqueueing(self, ack: Ack, leavings: Leavings) -> Settled:
        """End the item by the write that enqueues what follows."""
        for tried in range(RACES):
            now = await self._store.now()
            kept = await self._locked(ack.token, now)
            if kept is None:
                self._held.drop([ack.token])
                return "stale"
            saved: list[Kept] = []

            async def commit(
                outbox: Outbox, kept: Kept = kept, now: int = now, saved: list[Kept] = saved
            ) -> bool:
                record = copied(kept.record)
                _end(record, now, ack.result)
                record.outbox = outbox
                done = await self._saved(kept, record)
                saved += [done] if done is not None else []
                return done is not None

            if await self._intake.carried(ack.enqueue, f"{ITEMS}{kept.token}", commit):
                self._held.drop([ack.token])
                await self._empty(kept, saved[0], leavings)
                return "settled"
            await self._store.step_aside(tried)
        raise ProviderError(f"{self._store.bucket.place}: others kept changing an item", retryable=True)

    async def _empty(self, before: Kept, done: Kept, leavings: Leavings) -> None:
        """What it enqueued is made: its outbox goes, and the item too where it leaves nothing."""
        if done.record.gone:
            self._leave_nothing(done, leavings)
            return
        record = copied(done.record)
        record.outbox = None
        await self._store.save(done, record)
        leavings.keys += await self._store.moved(before.item, record.item)

    async def _give_back(self, token: str) -> bool:
        for tried in range(RACES):
            kept = await self._locked(token, await self._store.now())
            if kept is None:
                self._held.drop([token])
                return False
            record = copied(kept.record)
            record.item.attempts -= 1
            record.item.give_back()
            if await self._store.save(kept, record) is not None:
                self._held.drop([token])
                await self._store.index([record.item])
                return True
            self._held.drop([token])
            await self._store.step_aside(tried)
        return False

    # --- locks -------------------------------------------------------------------------------------------

    async def _locked(self, token: str, now: int) -> Kept | None:
        """The item that ``token`` locks, as it was last seen; None where the token is dead."""
        kept = self._held.get(token)
        if kept is not None and kept.item.is_locked_by(token, now):
            return kept
        item = item_in(token)
        kept = None if item is None else await self._store.read(item)
        if kept is None or not kept.item.is_locked_by(token, now):
            return None
        self._held.keep(kept)
        return kept

    async def _saved(self, kept: Kept, record: Record) -> Kept | None:
        """``record`` written in place of ``kept``; None where that is not what lies there any more."""
        token = kept.item.token
        saved = await self._store.save(kept, record)
        self._held.drop([token])
        if saved is not None and saved.item.token == token:
            self._held.keep(saved)
        return saved

    async def _finished(self, kept: Kept, record: Record, leavings: Leavings) -> bool:
        """The settled ``record`` written, with its index; False where others were first."""
        saved = await self._saved(kept, record)
        if saved is None:
            return False
        if saved.record.gone:
            self._leave_nothing(saved, leavings)
        else:
            leavings.keys += await self._store.moved(kept.item, saved.item)
        return True

    def _may_delete(self, kept: Kept, now: int) -> bool:
        """Whether its lock surely outlives a deletion, and nothing of it is to be kept."""
        left = kept.item.locked_until - self._store.time.error_ms() - now
        return kept.item.leaves_nothing and left > SURELY_MS

    def _leave_nothing(self, kept: Kept, leavings: Leavings) -> None:
        self._held.drop([kept.item.token])
        self._store.watch.drop(kept.token)
        leavings.keys += [f"{ITEMS}{kept.token}", ready_key(kept.item, self._store.shards)]


def _in_turn(settlements: Sequence[Settlement]) -> tuple[list[int], list[int]]:
    """Acks that enqueue, then the rest; of several with one token the first counts, acks before others."""
    order = sorted(range(len(settlements)), key=lambda at: not isinstance(settlements[at], Ack))
    seen: Counter[str] = Counter()
    first: list[int] = []
    rest: list[int] = []
    for at in order:
        settlement = settlements[at]
        seen[settlement.token] += 1
        if seen[settlement.token] > 1:
            continue
        (first if isinstance(settlement, Ack) and settlement.enqueue else rest).append(at)
    return first, rest


def _end(record: Record, now: int, result: str | None) -> None:
    """It is done; it may keep its result, or leave nothing."""
    item = record.item
    record.gone = item.leaves_nothing
    if record.gone:
        item.give_back()
        item.token = ""
        return
    item.end("done", now, None)
    item.result = None if item.keep_ms is None else result
