"""Taking work: look, choose, read what was chosen, choose again knowing all of it, and lock.

Nothing is written but the lock: one read and one compare-and-swap for each item. Its index key stays as it is while
it runs. Whoever meets the key reads the item once and knows then until when it is locked; that is also how a lock
that expired is found.

Fetches of one process do not go for the same item. Those of several do: after losing a race a process prefers the
items of its own shard for a while, so that with as many shards as workers they seldom meet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bide.core.durations import to_ms
from bide.provider import Contended, Empty, Items
from bide.providers.choosing import Candidate, choose
from bide.providers.items import Item, as_fetched
from bide.providers.s3.holding import Held
from bide.providers.s3.mending import Mending
from bide.providers.s3.names import Sight, token_of
from bide.providers.s3.store import Kept, Store, copied
from bide.providers.s3.together import gathered
from bide.providers.s3.watching import Wanted, without

MOST_ROUNDS = 50
"""How often one fetch goes on to what is next, where what it chose could not be had."""

PREFER_OWN_S = 10.0
"""For so long after a lost race the own shard comes first."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """What is asked for. ``queues`` are in this turn's order."""

    queues: tuple[str, ...]
    names: frozenset[str]
    limit: int
    most: Mapping[str, int]
    lock_timeout: timedelta
    fetch_token: str

    @property
    def wanted(self) -> Wanted:
        return Wanted(frozenset(map(token_of, self.queues)), frozenset(map(token_of, self.names)))


class Taking:
    """Takes items for the fetches of one process."""

    def __init__(self, store: Store, held: Held, mending: Mending, shard: int) -> None:
        self._store = store
        self._held = held
        self._mending = mending
        self._shard = shard
        self._claiming: set[str] = set()
        self._lost_at = float("-inf")

    async def take(self, fetch: Fetch) -> Items | Empty | Contended:
        """What can be had now. Raises ``ProviderError``; what was locked then is released by the fetch token."""
        store, wanted = self._store, fetch.wanted
        await store.watch.look(wanted, await store.now(roughly=True), fetch.limit)
        now = await store.now(roughly=store.watch.next_at(wanted) is None)
        self._held.forget_lapsed(now)
        others_took = False
        passed: set[str] = set()
        for _ in range(MOST_ROUNDS):
            sights = store.watch.eligible(wanted, now)
            free = without(sights, self._claiming | passed)
            others_took = others_took or len(free) < len(without(sights, passed))
            chosen = self._chosen(fetch, free)
            if not chosen:
                break
            taken, lost = await self._claim(fetch, chosen, passed, now)
            others_took = others_took or lost
            if taken:
                return Items(tuple(as_fetched(kept.item) for kept in taken))
        return Contended() if others_took else Empty(self._next_in(wanted, now, passed))

    def _chosen(self, fetch: Fetch, sights: Sequence[Sight]) -> list[Sight]:
        """What of ``sights`` to read: as many as the fetch may take, as far as their keys tell."""
        own = self._own_first(sights)
        names = {token_of(name): name for name in fetch.names}
        queues = {token_of(queue): queue for queue in fetch.queues}
        candidates = [
            Candidate(at, queues[sight.queue], names[sight.name], sight.rank, 0)
            for at, sight in enumerate(own)
        ]
        chosen = choose(candidates, fetch.queues, limit=fetch.limit, most=fetch.most)
        return [own[candidate.seq] for candidate in chosen]

    def _own_first(self, sights: Sequence[Sight]) -> Sequence[Sight]:
        """All of them; of the own shard only, where there are any and others are about."""
        if self._store.clock.monotonic() - self._lost_at > PREFER_OWN_S:
            return sights
        return [sight for sight in sights if sight.shard == self._shard] or sights

    async def _claim(
        self, fetch: Fetch, chosen: Sequence[Sight], passed: set[str], now: int
    ) -> tuple[list[Kept], bool]:
        """Lock what of ``chosen`` may be locked; whether any was lost to others. ``passed`` gets the rest."""
        store = self._store
        tokens = {sight.item for sight in chosen}
        self._claiming |= tokens
        try:
            sure = now - store.time.error_ms()
            looked = await store.each(chosen, lambda sight: self._mending.look_at(sight, now, sure))
            found = {kept.token: kept for kept in looked if kept is not None}
            first = self._first_of(fetch, list(found.values()))
            locked = await gathered([self._lock(kept, fetch, now, sure) for kept in first])
            taken = [kept for kept in locked if kept is not None]
            passed |= tokens if not taken else set()
            is_lost = len(taken) < len(first)
            if is_lost:
                self._lost_at = store.clock.monotonic()
            return taken, is_lost
        finally:
            self._claiming -= tokens

    def _first_of(self, fetch: Fetch, found: Sequence[Kept]) -> list[Kept]:
        """What to lock of what was read: in order, within the fetch's bounds, and killers alone."""
        ordered = sorted(found, key=_place)
        candidates = [
            Candidate(at, kept.item.queue, kept.item.name, kept.item.rank, kept.item.deaths)
            for at, kept in enumerate(ordered)
        ]
        chosen = choose(candidates, fetch.queues, limit=fetch.limit, most=fetch.most)
        return [ordered[candidate.seq] for candidate in chosen]

    async def _lock(self, kept: Kept, fetch: Fetch, now: int, sure: int) -> Kept | None:
        """``kept`` under lock; None where others took it first."""
        store = self._store
        record = copied(kept.record)
        lock(record.item, token_of(record.item.id), store.clock.new_id(), fetch, now)
        saved = await store.save(kept, record)
        if saved is None:
            store.watch.put_off(kept.token, now + 1)
            return None
        store.watch.put_off(saved.token, saved.item.locked_until)
        self._held.keep(saved)
        return saved

    def _next_in(self, wanted: Wanted, now: int, passed: Collection[str]) -> timedelta | None:
        """When something will be eligible, as far as is known."""
        watch = self._store.watch
        instant, listing_s = watch.next_at(wanted), watch.wait_s()
        waits = [] if instant is None else [max(instant - now, 1 if passed else 0)]
        waits += [] if listing_s is None else [round(listing_s * 1000)]
        return timedelta(milliseconds=min(waits)) if waits else None


def lock(item: Item, token: str, nonce: str, fetch: Fetch, now: int) -> None:
    """``item`` is running from now on."""
    item.state = "running"
    item.attempts += 1
    item.token, item.fetch_token = f"{token}:{nonce}", fetch.fetch_token
    item.lock_ms = to_ms(fetch.lock_timeout)
    item.locked_until = now + item.lock_ms


def _place(kept: Kept) -> tuple[int, int]:
    return kept.item.rank, kept.item.seq
