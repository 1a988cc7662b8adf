"""Queues of work items in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import assert_never

from bide.core.durations import to_ms
from bide.provider import (
    DELIVERIES,
    Abandon,
    Ack,
    Bury,
    Empty,
    Fetched,
    Items,
    NewItem,
    Settled,
    Settlement,
    WorkItem,
)
from bide.providers import reasons
from bide.providers.choosing import Candidate, choose, in_turn
from bide.providers.longpoll import long_poll
from bide.providers.memory.store import Item, Store, atomic, refuse_surrogates


class MemoryWork:
    """The work part of :class:`bide.provider.Provider`."""

    _store: Store
    _turn = 0

    @atomic
    def enqueue(self, items: Sequence[NewItem]) -> None:
        self._store.add(items, self._store.now())

    async def fetch_work_items(
        self,
        queues: Collection[str],
        names: Collection[str],
        *,
        limit: int,
        lock_timeout: timedelta,
        poll_timeout: timedelta,
        fetch_token: str,
        limits: Mapping[str, int] | None = None,
    ) -> Fetched:
        if limit < 1:
            raise ValueError(f"a fetch takes at least one item, not {limit}")
        limits = limits or {}
        turn = in_turn(queues, self._turn)
        self._turn += 1
        wanted = {(queue, name) for queue in turn for name in names if limits.get(name, 1) > 0}
        store = self._store

        async def take() -> Items | Empty:
            await asyncio.sleep(0)
            with store.lock:
                candidates = _candidates(store, wanted, limit, limits)
                chosen = choose(candidates, turn, limit=limit, limits=limits)
                if not chosen:
                    return Empty(_next_eligible_in(store, wanted))
                return _lock(store, {candidate.seq for candidate in chosen}, fetch_token, lock_timeout)

        async def peek() -> timedelta | None:
            with store.lock:
                return _next_eligible_in(store, wanted)

        return await long_poll(take, peek, bell=store.bell, clock=store.clock, poll_timeout=poll_timeout)

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
        for settlement in settlements:
            if isinstance(settlement, Ack):
                refuse_surrogates(settlement.enqueue)
        settled: list[Settled] = []
        for settlement in sorted(settlements, key=_acks_first):
            item = _locked_by(store, settlement.token, now)
            if item is not None:
                _settle(store, item, settlement, now)
            settled.append("stale" if item is None else "settled")
        store.wake()
        in_order = sorted(range(len(settlements)), key=lambda at: _acks_first(settlements[at]))
        by_place = dict(zip(in_order, settled, strict=True))
        return [by_place[at] for at in range(len(settlements))]

    async def wake(self) -> None:
        self._store.bell.ring_everywhere(end=True)


def _sweep(store: Store, now: int) -> None:
    """Give back what its worker lost, and bury what is out of lives, attempts or time."""
    for item in store.running():
        if (
            item.locked_until > now + 2 * item.lock_ms
        ):  # the clock was set back: one more length, to be renewed in
            item.locked_until = now + item.lock_ms
        elif item.locked_until <= now:
            _count_death(item, now)
    past = [item for item in store.unfetched() if item.expires_at is not None and item.expires_at <= now]
    for item in past:
        item.end("dead", now, reasons.expired(item.within_ms or 0, item.error))


def _count_death(item: Item, now: int) -> None:
    item.deaths += 1
    if item.deaths >= reasons.DEATHS_BEFORE_BURIAL:
        item.end("dead", now, reasons.killed_workers(item.deaths))
    elif item.max_attempts is not None and item.attempts >= item.max_attempts:
        item.end("dead", now, reasons.gave_up(item.attempts, reasons.LOCK_EXPIRED))
    else:
        item.error = reasons.LOCK_EXPIRED
        item.give_back()


def _eligible(store: Store, wanted: Collection[tuple[str, str]], now: int) -> list[Item]:
    """Items that may be taken, the most urgent first."""
    taken_lines = {item.line for item in store.running()} - {None}
    eligible = []
    for item in store.unfetched():
        if item.line is not None:
            if item.line in taken_lines:
                continue
            taken_lines.add(item.line)
        if item.is_visible(now) and (item.queue, item.name) in wanted:
            eligible.append(item)
    return sorted(eligible, key=_place)


def _is_front(store: Store, item: Item) -> bool:
    """Whether no other item of its line is before it."""
    if item.line is None:
        return True
    others = [other for other in store.items.values() if other.line == item.line and other is not item]
    return not any(
        other.state == "running" or (other.state == "ready" and other.seq < item.seq) for other in others
    )


def _candidates(
    store: Store, wanted: Collection[tuple[str, str]], limit: int, limits: Mapping[str, int]
) -> list[Candidate]:
    """The first eligible ones of each queue and name: more of one than may be taken need no look."""
    now = store.now()
    _sweep(store, now)
    counted: dict[tuple[str, str], int] = {}
    candidates = []
    for item in _eligible(store, wanted, now):
        pair = item.queue, item.name
        counted[pair] = counted.get(pair, 0) + 1
        if counted[pair] <= min(limit, limits.get(item.name, limit)):
            candidates.append(Candidate(item.seq, item.queue, item.name, item.rank, item.deaths))
    return candidates


def _next_eligible_in(store: Store, wanted: Collection[tuple[str, str]]) -> timedelta | None:
    now = store.now()
    if _eligible(store, wanted, now):
        return timedelta()
    of_wanted = [item for item in store.items.values() if (item.queue, item.name) in wanted]
    instants = [item.locked_until for item in of_wanted if item.state == "running"]
    waiting = [item for item in of_wanted if item.state == "ready" and not item.is_visible(now)]
    instants += [item.visible_at for item in waiting if _is_front(store, item)]
    return timedelta(milliseconds=max(min(instants) - now, 0)) if instants else None


def _lock(store: Store, seqs: Collection[int], fetch_token: str, lock_timeout: timedelta) -> Items:
    """Lock the items of these ``seqs``, in order of rank."""
    now, lock_ms, nonce = store.now(), to_ms(lock_timeout), store.clock.new_id()
    locked = sorted((item for item in store.unfetched() if item.seq in seqs), key=_place)
    for item in locked:
        item.state = "running"
        item.attempts += 1
        item.token, item.fetch_token = f"{item.seq}:{nonce}", fetch_token
        item.locked_until, item.lock_ms = now + lock_ms, lock_ms
    return Items(tuple(_work_item(item) for item in locked))


def _locked_by(store: Store, token: str, now: int) -> Item | None:
    return next((item for item in store.running() if item.is_locked_by(token, now)), None)


def _settle(store: Store, item: Item, settlement: Settlement, now: int) -> None:
    match settlement:
        case Ack(_, enqueue):
            store.add(enqueue, now)
            item.end("done", now, None)
        case Abandon():
            _abandon(store, item, settlement, now)
        case Bury(_, error):
            item.end("dead", now, reasons.storable(error))
        case _:
            assert_never(settlement)


def _abandon(store: Store, item: Item, settlement: Abandon, now: int) -> None:
    """Back in its queue; or dead at once where no attempt is left, or nobody wants the delivery any more."""
    if settlement.error is not None:
        item.error = reasons.storable(settlement.error)
    if not settlement.count_attempt:
        item.attempts -= 1
    row = store.subscriptions.get(item.name) if item.queue == DELIVERIES else None
    if settlement.count_attempt and item.max_attempts is not None and item.attempts >= item.max_attempts:
        item.end("dead", now, reasons.gave_up(item.attempts, item.error))
    elif row is not None and row.ended_at is not None:
        item.end("dead", now, reasons.subscription_ended(row.ended_reason))
    else:
        item.hold_ms = to_ms(settlement.delay)
        item.visible_at = now + item.hold_ms
        item.give_back()


def _acks_first(settlement: Settlement) -> bool:
    return not isinstance(settlement, Ack)


def _place(item: Item) -> tuple[int, int]:
    return item.rank, item.seq


def _work_item(item: Item) -> WorkItem:
    return WorkItem(
        id=item.id,
        queue=item.queue,
        name=item.name,
        payload="" if item.unreadable else item.payload,
        token=item.token,
        attempt=item.attempts,
        deaths=item.deaths,
        enqueued_at=item.enqueued_at,
        expires_at=item.expires_at,
        max_attempts=item.max_attempts,
        unreadable=item.unreadable,
    )
