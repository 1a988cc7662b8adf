"""Queues of work items on Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from bide.core.durations import to_ms
from bide.errors import KeyConflict, ProviderError
from bide.provider import Empty, Enqueued, Fetched, Items, Limit, NewItem, Settled, Settlement
from bide.providers.choosing import Lane, Turns, in_force
from bide.providers.redis.items import enqueued_of, new_rows, taken_items, token_parts
from bide.providers.redis.rows import (
    all_packed,
    number,
    shown,
    stored,
    stored_if_any,
    unpacked,
)
from bide.providers.redis.session import Session
from bide.providers.redis.settling import Orders
from bide.providers.redis.store import Store
from bide.providers.redis.waiting import long_poll

_R = TypeVar("_R")


class RedisWork:
    """The work part of :class:`bide.provider.Provider`."""

    _store: Store
    _turns: Turns

    async def enqueue(self, items: Sequence[NewItem]) -> list[Enqueued]:
        if not items:
            return []
        rows = new_rows(items)  # what cannot be stored is refused before it shares a call
        store = self._store

        async def act(session: Session) -> list[Enqueued]:
            return await session.batched(self._enqueue_all, (items, rows))

        enqueued = await store.on(act)
        store.bell.ring_everywhere()
        return enqueued

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
        store, turns = self._store, self._turns
        in_turn = turns.next_of(queues)
        bounds = in_force(limits, queues)
        wanted = _wanted(names, most or {}, limit)
        waits = b"1" if poll_timeout > timedelta() else b"0"
        lock_ms, token = to_ms(lock_timeout), stored(fetch_token)

        async def take() -> Items | Empty:
            nonce = store.clock.new_id()
            lines = all_packed([_line(queue, bounds.get(queue), turns.served(queue)) for queue in in_turn])
            asked = (lines, wanted, limit, lock_ms, nonce, token, waits)
            asking = await store.begin(lambda session: store.asked(session, "fetch", *asked))
            taken, next_in, served = await self._or_give_back(asking, fetch_token)
            if not taken:
                return Empty(timedelta(milliseconds=int(next_in)) if next_in else None)
            turns.keep(_lanes(in_turn, bounds, served))
            return Items(taken_items(taken, nonce))

        return await long_poll(take, store=store, poll_timeout=poll_timeout)

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        parts = [token_parts(token) for token in tokens]
        known = [part for part in parts if part is not None]
        if not known:
            return [False] * len(tokens)
        answers = iter(await self._store.run("renew", all_packed(known), to_ms(lock_timeout)))
        return [part is not None and next(answers) == ord("1") for part in parts]

    async def release(self, fetch_token: str) -> int:
        released: int = await self._store.run("release", stored(fetch_token))
        if released:
            self._store.bell.ring_everywhere()
        return released

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        if not settlements:
            return []
        orders = Orders.of(settlements)
        answer = await self._store.run("settle", orders.rows, orders.new)
        if isinstance(answer, list):
            raise orders.conflict(*answer)
        if answer[:1] == b"1":
            self._store.bell.ring_everywhere()
        return orders.results(answer[1:])

    async def wake(self) -> None:
        self._store.bell.ring_everywhere(end=True)

    async def _enqueue_all(
        self, session: Session, calls: list[tuple[Sequence[NewItem], bytes]]
    ) -> list[list[Enqueued] | KeyConflict]:
        """Enqueue what several callers ask for, each of them all or nothing."""
        answer = await self._store.asked(session, "enqueue", all_packed([(rows,) for _, rows in calls]))
        return [enqueued_of(row, items) for row, (items, _) in zip(unpacked(answer, 3), calls, strict=True)]

    async def _or_give_back(self, fetching: asyncio.Future[_R], fetch_token: str) -> _R:
        """What ``fetching`` answers; where that is cancelled, what it takes all the same is given back."""
        try:
            return await asyncio.shield(fetching)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._give_back(fetching, fetch_token)))
            raise

    async def _give_back(self, fetching: asyncio.Future[Any], fetch_token: str) -> None:
        try:
            await fetching
            await self.release(fetch_token)
        except ProviderError:
            return  # its lock will end by itself


def _wanted(names: Collection[str], most: Mapping[str, int], limit: int) -> bytes:
    """The names of a fetch, with how many of each are candidates, and whether that bounds all queues together."""
    return all_packed(
        [
            (stored(name), number(min(limit, most.get(name, limit))), b"1" if name in most else None)
            for name in sorted(set(names))
            if most.get(name, 1) > 0
        ]
    )


def _line(queue: str, limit: Limit | None, served: str | None) -> tuple[bytes | None, ...]:
    """A queue of a fetch, with what may run of it and of each limit key, and the key that was served last."""
    if limit is None:
        return stored(queue), None, None, None
    bounds = [None if bound is None else number(bound) for bound in (limit.queue, limit.per_key)]
    return stored(queue), *bounds, stored_if_any(served)


def _lanes(queues: Sequence[str], bounds: Mapping[str, Limit], served: bytes) -> dict[str, Lane]:
    """The queues with a limit, and the key of each that was served last."""
    keys = [row[0] for row in unpacked(served, 1)]
    return {
        queue: Lane(bounds[queue], after=None if key is None else shown(key))
        for queue, key in zip(queues, keys, strict=True)
        if queue in bounds
    }
