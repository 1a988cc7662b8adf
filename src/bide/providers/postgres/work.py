"""Queues of work items on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from bide.core.durations import to_ms
from bide.errors import ProviderError
from bide.provider import ZERO, Contended, Empty, Fetched, Items, NewItem, Settled, Settlement, WorkItem
from bide.providers.choosing import in_turn
from bide.providers.longpoll import long_poll
from bide.providers.postgres.database import Database
from bide.providers.postgres.items import ENQUEUE, columns_of, row_of, seq_of
from bide.providers.postgres.session import Session
from bide.providers.postgres.settling import Orders, settle
from bide.providers.postgres.texts import readable, shown, stored

_FETCH = "SELECT * FROM bide.fetch($1, $2, $3, $4, $5, $6, $7)"
_NEXT = "SELECT bide.next_eligible_in($1, $2, bide.now_ms())"
_RENEW = "SELECT bide.renew($1, $2, $3)"
_RELEASE = "SELECT bide.release($1)"

_R = TypeVar("_R")


class PostgresWork:
    """The work part of :class:`bide.provider.Provider`."""

    _database: Database
    _turn = 0

    async def enqueue(self, items: Sequence[NewItem]) -> None:
        if not items:
            return
        rows = [
            row_of(item) for item in items
        ]  # what cannot be stored is refused before it shares a transaction

        async def act(session: Session) -> None:
            await session.batched(_enqueue, rows)
            self._database.wake(session)

        await self._database.run(act)

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
        wanted = sorted(name for name in set(names) if limits.get(name, 1) > 0)
        turn = [stored(queue) for queue in in_turn(queues, self._turn)]
        self._turn += 1
        stored_names = [stored(name) for name in wanted]
        mosts = [min(limit, limits.get(name, limit)) for name in wanted]
        database = self._database

        async def take() -> Items | Empty:
            arguments = (turn, stored_names, mosts, limit, to_ms(lock_timeout), database.clock.new_id())
            fetching = database.rows(_FETCH, *arguments, stored(fetch_token))
            return _fetched(await self._or_give_back(fetching, fetch_token))

        async def peek() -> timedelta | None:
            return _as_wait(await database.value(_NEXT, turn, stored_names))

        found = await long_poll(
            take,
            peek,
            bell=database.bell,
            clock=database.clock,
            poll_timeout=poll_timeout,
            look_again_s=database.look_again_s,
        )
        if isinstance(found, Empty) and found.next_eligible_in == ZERO and not found.blocked:
            return Contended()
        return found

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        known = [(seq, token) for token in tokens if (seq := seq_of(token)) is not None]
        if not known:
            return [False] * len(tokens)
        seqs, texts = [seq for seq, _ in known], [token for _, token in known]
        renewed = {token for (token,) in await self._database.rows(_RENEW, seqs, texts, to_ms(lock_timeout))}
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
        orders = Orders.of(settlements)

        async def act(session: Session) -> set[str]:
            settled, wakes = await settle(session, orders)
            if wakes:
                self._database.wake(session)
            return settled

        return orders.results(await self._database.run(act) if orders.seqs else set())

    async def wake(self) -> None:
        self._database.bell.ring_everywhere(end=True)

    async def _or_give_back(self, fetching: Awaitable[_R], fetch_token: str) -> _R:
        """What ``fetching`` answers; where that is cancelled, what it takes all the same is given back."""
        task = asyncio.ensure_future(fetching)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            giving = asyncio.ensure_future(self._give_back(task, fetch_token))
            await asyncio.shield(giving)
            raise

    async def _give_back(self, fetching: asyncio.Future[Any], fetch_token: str) -> None:
        try:
            await fetching
            await self.release(fetch_token)
        except ProviderError:
            return  # its lock will end by itself


async def _enqueue(session: Session, batches: list[list[tuple[Any, ...]]]) -> list[None]:
    await session.rows(ENQUEUE, *columns_of(row for batch in batches for row in batch))
    return [None] * len(batches)


def _fetched(rows: list[Any]) -> Items | Empty:
    if rows[0]["seq"] is None:
        return Empty(_as_wait(rows[0]["next_in"]))
    rows.sort(key=lambda row: (row["rank"], row["seq"]))
    return Items(tuple(_work_item(row) for row in rows))


def _as_wait(next_in_ms: int | None) -> timedelta | None:
    return None if next_in_ms is None else timedelta(milliseconds=next_in_ms)


def _work_item(row: Any) -> WorkItem:
    _, _, id, queue, name, kept, token, attempts, deaths, enqueued_at, expires_at, max_attempts, _ = row
    payload, unreadable = readable(kept)
    return WorkItem(
        id=shown(id),
        queue=shown(queue),
        name=shown(name),
        payload=payload,
        token=token,
        attempt=attempts,
        deaths=deaths,
        enqueued_at=enqueued_at,
        expires_at=expires_at,
        max_attempts=max_attempts,
        unreadable=unreadable,
    )
