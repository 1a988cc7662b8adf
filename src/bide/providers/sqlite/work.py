"""Queues of work items on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from bide.core.durations import to_ms
from bide.provider import Empty, Fetched, Items, NewItem, Settled, Settlement
from bide.providers.choosing import in_turn
from bide.providers.longpoll import long_poll
from bide.providers.sqlite.database import Database
from bide.providers.sqlite.fetching import Fetch, fetch, next_eligible_in
from bide.providers.sqlite.items import as_json, insert_items
from bide.providers.sqlite.settling import release, renew, settle
from bide.providers.sqlite.writer import Transaction


class SqliteWork:
    """The work part of :class:`bide.provider.Provider`."""

    _database: Database
    _turn = 0

    async def enqueue(self, items: Sequence[NewItem]) -> None:
        if items:
            await self._database.write_batched(_enqueue, items)

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
        wanted_names = sorted(name for name in set(names) if limits.get(name, 1) > 0)
        turn = in_turn(queues, self._turn)
        self._turn += 1
        pairs = as_json((queue, name) for queue in turn for name in wanted_names)
        database = self._database

        def take() -> asyncio.Future[Items | Empty]:
            wanted = Fetch(
                queues=turn,
                pairs=pairs,
                limit=limit,
                limits=limits,
                lock_ms=to_ms(lock_timeout),
                nonce=database.clock.new_id(),
                fetch_token=fetch_token,
            )
            return database.write(fetch, wanted)

        def peek() -> asyncio.Future[timedelta | None]:
            return database.read(next_eligible_in, pairs)

        try:
            return await long_poll(
                take, peek, bell=database.bell, clock=database.clock, poll_timeout=poll_timeout
            )
        except asyncio.CancelledError:
            # What the thread may be locking at this moment is given back right after it.
            database.write_unheard(release, fetch_token)
            raise

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        if not tokens:
            return []
        return await self._database.write(renew, (tokens, to_ms(lock_timeout)))

    async def release(self, fetch_token: str) -> int:
        return await self._database.write(release, fetch_token)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        if not settlements:
            return []
        return await self._database.write_batched(settle, settlements)

    async def wake(self) -> None:
        self._database.bell.ring_everywhere(end=True)


def _enqueue(transaction: Transaction, batches: list[Sequence[NewItem]]) -> list[None]:
    insert_items(transaction, [item for batch in batches for item in batch])
    return [None] * len(batches)
