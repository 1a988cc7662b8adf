"""Queues of work items on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from bide.core.durations import to_ms
from bide.errors import KeyConflict, ProviderError
from bide.provider import Contended, Empty, Enqueued, Fetched, Items, Limit, NewItem, Settled, Settlement
from bide.providers.postgres.database import Database, finished
from bide.providers.postgres.fetching import Fetching
from bide.providers.postgres.items import (
    MOST_ROWS,
    columns_of,
    enqueue,
    enqueue_all,
    enqueue_arguments,
    is_token,
    split,
)
from bide.providers.postgres.session import Session
from bide.providers.postgres.settling import Orders, plain_acks, settle
from bide.providers.postgres.texts import stored
from bide.providers.postgres.turns import Turns
from bide.providers.postgres.waiting import long_poll

_RENEW = "SELECT bide.renew($1, $2, $3)"
_RELEASE = "SELECT bide.release($1)"

SHARED_ROWS = 20
"""Items of one call that share a statement with those of others; more of them have one of their own."""

_R = TypeVar("_R")


class PostgresWork:
    """The work part of :class:`bide.provider.Provider`."""

    _database: Database
    _turns: Turns

    async def enqueue(self, items: Sequence[NewItem]) -> list[Enqueued]:
        if not items:
            return []

        async def act(session: Session) -> list[Enqueued]:
            if len(items) > MOST_ROWS:
                enqueued = await session.atomically(lambda given: enqueue_all(given.rows, items))
                self._database.wake(session)
            elif len(items) > SHARED_ROWS:
                enqueued = await _announced(session, items)
                self._database.bell.ring_everywhere()
            else:
                enqueue_arguments(items)  # what cannot be stored is refused before it shares a statement
                enqueued = await session.batched(_enqueue_shared, items)
                self._database.bell.ring_everywhere()
            return enqueued

        return await self._database.run(act)

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
        database = self._database
        fetching = Fetching.of(
            self._turns.next_of(queues),
            names,
            limit=limit,
            lock_timeout=lock_timeout,
            fetch_token=fetch_token,
            most=most or {},
            limits=limits or {},
        )

        async def take() -> Items | Empty | Contended:
            nonce = database.clock.new_id()
            asking = database.rows(*fetching.take(nonce, self._turns))
            rows = await self._or_give_back(asking, fetch_token)
            return fetching.taken(rows, nonce, self._turns)

        async def peek() -> timedelta | None:
            next_in: int | None = await database.value(*fetching.peek())
            return None if next_in is None else timedelta(milliseconds=next_in)

        return await long_poll(take, peek, database=database, poll_timeout=poll_timeout)

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        known = [token for token in tokens if is_token(token)]
        if not known:
            return [False] * len(tokens)
        arguments = (*columns_of(map(split, known)), to_ms(lock_timeout))
        renewed = {token for (token,) in await self._database.rows(_RENEW, *arguments)}
        return [token in renewed for token in tokens]

    async def release(self, fetch_token: str) -> int:
        async def act(session: Session) -> int:
            released: int = await session.value(_RELEASE, stored(fetch_token))
            if released:
                self._database.wake(session)
            return released

        return await self._database.run(act)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        if not settlements:
            return []
        acks = plain_acks(settlements)
        orders = None if acks else Orders.of(settlements)

        async def act(session: Session) -> list[str]:
            if orders is None:
                ((stale, wakes),) = await session.rows(*acks or ())
            else:
                stale, wakes = await settle(session, orders)
            if wakes:
                self._database.wake(session)
            return list(stale)

        if orders is not None:
            return orders.results(await self._database.run(act) if orders.places else ())
        dead = frozenset(await self._database.run(act))
        return ["stale" if settlement.token in dead else "settled" for settlement in settlements]

    async def wake(self) -> None:
        self._database.bell.ring_everywhere(end=True)

    async def _or_give_back(self, fetching: Awaitable[_R], fetch_token: str) -> _R:
        """What ``fetching`` answers; where that is cancelled, what it takes all the same is given back."""
        task = asyncio.ensure_future(fetching)
        try:
            return await finished(task)
        except asyncio.CancelledError:
            await finished(asyncio.ensure_future(self._give_back(task, fetch_token)))
            raise

    async def _give_back(self, fetching: asyncio.Future[Any], fetch_token: str) -> None:
        try:
            await fetching
            await self.release(fetch_token)
        except ProviderError:
            return  # its lock will end by itself


async def _announced(session: Session, items: Sequence[NewItem]) -> list[Enqueued]:
    """Enqueue ``items``; others are told by the same statement, or soon where they were told just now."""
    herald = session.herald
    notify = herald.begin()
    enqueued = await enqueue(session.rows, items, notify)
    if not notify:
        herald.tell()
    return enqueued


async def _enqueue_shared(
    session: Session, calls: list[Sequence[NewItem]]
) -> list[list[Enqueued] | KeyConflict]:
    """Enqueue what several callers ask for: together, or one after the other where a key is in the way."""
    try:
        enqueued = iter(await _announced(session, [item for items in calls for item in items]))
    except KeyConflict as conflict:
        if len(calls) == 1:
            return [conflict]
        return [(await _enqueue_shared(session, [items]))[0] for items in calls]
    return [[next(enqueued) for _ in items] for items in calls]
