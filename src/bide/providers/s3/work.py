"""Queues of work items in a bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from bide.core.abilities import S3, unsupported
from bide.errors import ProviderError
from bide.provider import (
    Abandon,
    Contended,
    Empty,
    Enqueued,
    Fetched,
    Items,
    Limit,
    NewItem,
    Settled,
    Settlement,
    SubscriptionRow,
)
from bide.providers.choosing import Turns, in_force
from bide.providers.s3.fetching import Fetch
from bide.providers.s3.parts import Parts


class S3Work:
    """The work part of :class:`bide.provider.Provider`."""

    _turns: Turns

    def _parts(self) -> Parts:
        raise NotImplementedError

    async def enqueue(self, items: Sequence[NewItem]) -> list[Enqueued]:
        return await self._parts().intake.enqueue(items) if items else []

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
        if in_force(limits, queues):
            raise unsupported(S3, "limits")
        parts, most = self._parts(), most or {}
        fetch = Fetch(
            queues=self._turns.next_of(queues),
            names=frozenset(name for name in names if most.get(name, 1) > 0),
            limit=limit,
            most=most,
            lock_timeout=lock_timeout,
            fetch_token=fetch_token,
        )
        if not fetch.queues or not fetch.names:
            return Empty()
        return await self._taken(parts, fetch)

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        return await self._parts().settling.renew(tokens, lock_timeout)

    async def release(self, fetch_token: str) -> int:
        return await self._parts().settling.release(fetch_token)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        parts = self._parts()
        ended: dict[str, SubscriptionRow] = {}
        if any(isinstance(one, Abandon) and parts.may_be_delivery(one.token) for one in settlements):
            rows = await parts.subscriptions.rows()
            ended = {name: row for name, row in rows.items() if row.ended_at is not None}
        return await parts.settling.settle(settlements, ended)

    async def wake(self) -> None:
        """No fetch waits here."""

    async def _taken(self, parts: Parts, fetch: Fetch) -> Items | Empty | Contended:
        """What a fetch takes. Where it is cancelled or fails, what it had locked is given back."""
        taking = asyncio.get_running_loop().create_task(parts.taking.take(fetch))
        try:
            return await asyncio.shield(taking)
        except BaseException:
            await self._give_back(parts, fetch, taking)
            raise

    async def _give_back(self, parts: Parts, fetch: Fetch, taking: asyncio.Task[Fetched]) -> None:
        await asyncio.wait({taking})
        try:
            await parts.settling.release(fetch.fetch_token)
        except ProviderError:
            return  # whoever fetched calls release again; else the lock expires
