"""Queues of work items in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import assert_never

from bide.clock import Clock
from bide.core.durations import to_ms
from bide.provider import (
    DELIVERIES,
    Abandon,
    Ack,
    Bury,
    Empty,
    Enqueued,
    Fetched,
    Items,
    Limit,
    NewItem,
    Settled,
    Settlement,
)
from bide.providers import reasons
from bide.providers.choosing import Turns, in_force
from bide.providers.items import Item, abandon, refuse_unstorable
from bide.providers.longpoll import long_poll
from bide.providers.memory.fetching import Fetch, next_eligible_in, take
from bide.providers.memory.store import Store, atomic


class MemoryWork:
    """The work part of :class:`bide.provider.Provider`."""

    _store: Store
    _clock: Clock
    _turns: Turns

    @atomic
    def enqueue(self, items: Sequence[NewItem]) -> list[Enqueued]:
        return self._store.add(items, self._store.now())

    async def fetch_work_items(
        self,
        queues: Collection[str],
        names: Collection[str],
        *,
        limit: int,
        lock_timeout: timedelta,
        poll_timeout: timedelta,
        fetch_token: str,
        most: Mapping[str, int] | None = None,
        limits: Mapping[str, Limit] | None = None,
    ) -> Fetched:
        if limit < 1:
            raise ValueError(f"a fetch takes at least one item, not {limit}")
        most = most or {}
        fetch = Fetch(
            queues=self._turns.next_of(queues),
            names=frozenset(name for name in names if most.get(name, 1) > 0),
            limit=limit,
            most=most,
            limits=in_force(limits, queues),
            lock_timeout=lock_timeout,
            fetch_token=fetch_token,
        )
        store, turns = self._store, self._turns

        async def take_now() -> Items | Empty:
            await asyncio.sleep(0)
            with store.lock:
                return take(store, fetch, turns)

        async def peek() -> timedelta | None:
            with store.lock:
                return next_eligible_in(store, fetch)

        return await long_poll(take_now, peek, bell=store.bell, clock=self._clock, poll_timeout=poll_timeout)

    @atomic
    def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        now, lock_ms = self._store.now(), to_ms(lock_timeout)
        renewed = []
        for token in tokens:
            item = _locked_by(self._store, token, now)
            if item is not None:
                item.locked_until, item.lock_ms = now + lock_ms, lock_ms
            renewed.append(item is not None)
        return renewed

    @atomic
    def release(self, fetch_token: str) -> int:
        now = self._store.now()
        held = [
            item
            for item in self._store.running()
            if item.fetch_token == fetch_token and item.locked_until > now
        ]
        for item in held:
            item.attempts -= 1
            item.give_back()
        self._store.wake()
        return len(held)

    @atomic
    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        store = self._store
        now = store.now()
        in_order = sorted(range(len(settlements)), key=lambda at: not isinstance(settlements[at], Ack))
        _enqueue_of_acks(store, settlements, now)
        settled: list[Settled] = ["stale"] * len(settlements)
        for at in in_order:  # acks first
            item = _locked_by(store, settlements[at].token, now)
            if item is not None:
                _settle(store, item, settlements[at], now)
                settled[at] = "settled"
        store.wake()
        return settled

    async def wake(self) -> None:
        self._store.bell.ring_everywhere(end=True)


def _locked_by(store: Store, token: str, now: int) -> Item | None:
    return next((item for item in store.running() if item.is_locked_by(token, now)), None)


def _enqueue_of_acks(store: Store, settlements: Sequence[Settlement], now: int) -> None:
    """Put in what the acks that hold enqueue, all or none: before anything else is changed."""
    held: dict[str, Ack] = {}
    for settlement in settlements:
        if isinstance(settlement, Ack) and _locked_by(store, settlement.token, now):
            held.setdefault(settlement.token, settlement)
            refuse_unstorable(settlement.result or "")
    new = [item for ack in held.values() for item in ack.enqueue]
    if new:
        store.add(new, now)


def _settle(store: Store, item: Item, settlement: Settlement, now: int) -> None:
    match settlement:
        case Ack(_, result):
            item.end("done", now, None)
            item.result = None if item.keep_ms is None else result
            if item.leaves_nothing:
                del store.items[item.id]
        case Abandon():
            row = store.subscriptions.get(item.name) if item.queue == DELIVERIES else None
            abandon(item, settlement, now, row if row is not None and row.ended_at is not None else None)
        case Bury(_, error):
            item.end("dead", now, reasons.storable(error))
        case _:
            assert_never(settlement)
