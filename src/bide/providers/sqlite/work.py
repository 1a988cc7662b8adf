"""Queues of work items on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import islice, product

from bide.core.durations import to_ms
from bide.errors import ProviderError
from bide.provider import ZERO, Empty, Enqueued, Fetched, Items, Limit, NewItem, Settled, Settlement
from bide.providers.choosing import Turns, in_force
from bide.providers.longpoll import long_poll
from bide.providers.sqlite.database import Database
from bide.providers.sqlite.enqueueing import insert_items
from bide.providers.sqlite.fetching import Fetch, fetch, next_eligible_in
from bide.providers.sqlite.items import as_json
from bide.providers.sqlite.settling import Batch, release, renew, settle
from bide.providers.sqlite.standing import Offer
from bide.providers.sqlite.writer import Transaction


class SqliteWork:
    """The work part of :class:`bide.provider.Provider`."""

    _database: Database
    _turns: Turns
    _limited: set[str]
    """Queues of which somebody here fetches within a limit."""

    async def enqueue(self, items: Sequence[NewItem]) -> list[Enqueued]:
        if not items:
            return []
        return await self._database.write_batched(_enqueue, items)

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
        wanted_names = tuple(sorted(name for name in set(names) if most.get(name, 1) > 0))
        turn = self._turns.next_of(queues)
        bounding = in_force(limits, queues)
        self._limited |= bounding.keys()
        wanted = Fetch(
            queues=turn,
            names=wanted_names,
            limit=limit,
            most=most,
            limits=bounding,
            lock_ms=to_ms(lock_timeout),
            fetch_token=fetch_token,
            turns=self._turns,
            pairs=as_json(product(turn, wanted_names)),
            free_pairs=as_json(product((queue for queue in turn if queue not in bounding), wanted_names)),
        )
        nonce = self._database.clock.new_id()
        offer = Offer(partial(fetch, wanted=wanted, nonce=nonce), waits=poll_timeout > ZERO)
        try:
            found = await self._take_or_wait(wanted, offer, poll_timeout)
        except (asyncio.CancelledError, ProviderError):
            # What the thread may be locking at this moment is given back right after it.
            offer.waits = False
            self._database.write_unheard(self._database.standing.withdraw, offer)
            self._database.write_unheard(release, fetch_token)
            raise
        if isinstance(found, Items) and found.blocked:
            self._database.watch.useful()
        return found

    async def _take_or_wait(self, wanted: Fetch, offer: Offer, poll_timeout: timedelta) -> Items | Empty:
        database, standing = self._database, self._database.standing

        async def take() -> Items | Empty:
            if offer.found is not None:
                return offer.found
            database.watch.will_look()
            return await database.write(standing.look, offer)

        def peek() -> asyncio.Future[timedelta | None]:
            return database.read(next_eligible_in, wanted)

        with database.watch.waiter() as waiter:
            found = await long_poll(
                take,
                peek,
                bell=database.bell,
                clock=database.clock,
                poll_timeout=poll_timeout,
                look_again_s=waiter.look_again_s,
            )
        if isinstance(found, Items) or not offer.waits:
            return found
        late = await database.write(standing.withdraw, offer)
        return found if late is None else replace(late, blocked=True)

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        if not tokens:
            return []
        return await self._database.write(renew, (tokens, to_ms(lock_timeout)))

    async def release(self, fetch_token: str) -> int:
        return await self._database.write(release, fetch_token)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        if not settlements:
            return []
        return await self._database.write_batched(settle, Batch(settlements, frozenset(self._limited)))

    async def wake(self) -> None:
        self._database.bell.ring_everywhere(end=True)


def _enqueue(transaction: Transaction, batches: list[Sequence[NewItem]]) -> list[list[Enqueued]]:
    if len(batches) == 1:
        return [insert_items(transaction, batches[0])]
    enqueued = iter(insert_items(transaction, [item for batch in batches for item in batch]))
    return [list(islice(enqueued, len(batch))) for batch in batches]
