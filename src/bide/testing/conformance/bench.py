"""What a provider is put on to be tested: the provider, and a side door that goes round its methods."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

import pytest

from bide.core.abilities import Ability
from bide.core.change import digest
from bide.core.conditional import Validators
from bide.provider import (
    DELIVERIES,
    Answered,
    Changed,
    Claim,
    Fetched,
    ItemRow,
    Items,
    Limit,
    NewItem,
    PollRow,
    Provider,
    Recorded,
    Schedule,
    Subscription,
    WorkItem,
)

ITEM = NewItem(id="", queue="q", name="n", payload="{}")
"""What most tests enqueue: it leaves nothing behind once it is done."""

KEPT = replace(ITEM, keep_result=timedelta(days=1))
"""One that can be looked at once it is done."""

pytest.register_assert_rewrite(
    "bide.testing.conformance.suites"
)  # in time, so that failures show what differs

MINUTE = timedelta(minutes=1)
LOCK = timedelta(seconds=30)


PATIENCE_S = 10.0
"""Real seconds after which a fetch that should have ended counts as one that never does."""


class Absent(Exception):
    """The store has no such thing, so that there is nothing to prove; its text says why."""


class Bench(ABC):
    """A provider under test. Subclasses say how time passes for it, and how its data can be reached otherwise.

    ``provider`` is open. ``slack`` is how late a blocked fetch may answer, in seconds of the provider's clock.
    The last three of the side door have defaults, for stores in which they mean nothing.

    What the provider does not do is said here, each with its reason, which the tests that prove it are skipped with:
    ``absent`` has promises, by number, and single tests of one that is kept weaker, by name; ``lacks`` has abilities,
    for which the provider then raises :class:`~bide.errors.Unsupported`, as :mod:`bide.providers.lacking` does.
    """

    provider: Provider
    slack: float = 0.05
    absent: Mapping[int | str, str] = MappingProxyType({})
    lacks: Mapping[Ability, str] = MappingProxyType({})

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """Let so much time pass for the store, and everything happen that happens in it."""

    @abstractmethod
    def set_back(self, seconds: float) -> None:
        """Set the store's wall clock back, as an administrator would."""

    @abstractmethod
    async def corrupt(self, item_id: str) -> None:
        """Damage the stored payload of an item so that it is no text any more."""

    @abstractmethod
    async def reopen(self) -> None:
        """Close the provider and open the same store again, as a restart does."""

    @abstractmethod
    def now_ms(self) -> int:
        """The store's clock."""

    @asynccontextmanager
    async def another(self, *, ahead: float = 0) -> AsyncIterator[Provider]:
        """A second provider object on the same store, open, as a worker beside the first has it.

        The wall clock of that worker's machine is ``ahead`` seconds before the store's (see
        :class:`bide.testing.SkewedClock`); a store that only one machine can use has one clock for all of them.
        By default it is the first one again.
        """
        yield self.provider

    async def drop(self) -> bool:
        """Cut whatever connections the provider has to its store, as a network's fault does; False: it has none."""
        return False

    async def open_as_older(self) -> None:
        """Open the store, as it were written by a newer version, with the present program.

        Raises what the provider raises; :class:`Absent` where the store has no version.
        """
        raise Absent("nothing of it outlives the program, so that there is no version to refuse")

    # --- short forms -------------------------------------------------------------------------------------

    async def put(
        self, *ids: str, queue: str = "q", name: str = "n", template: NewItem | None = None
    ) -> None:
        """Enqueue one item for each id, as ``template`` has it."""
        given = template or replace(ITEM, queue=queue, name=name)
        await self.provider.enqueue([replace(given, id=id) for id in ids])

    async def fetch(
        self,
        limit: int = 10,
        *,
        queues: Collection[str] = ("q",),
        names: Collection[str] = ("n",),
        lock: timedelta = LOCK,
        wait: float = 0,
        by: str = "fetch",
        most: Mapping[str, int] | None = None,
        limits: Mapping[str, Limit] | None = None,
        on: Provider | None = None,
    ) -> Fetched:
        """Fetch, with what most tests ask for; ``by`` is the fetch token, ``on`` another provider object."""
        return await (on or self.provider).fetch_work_items(
            queues,
            names,
            limit=limit,
            lock_timeout=lock,
            poll_timeout=timedelta(seconds=wait),
            fetch_token=by,
            most=most,
            limits=limits,
        )

    async def take(
        self,
        limit: int = 10,
        *,
        queues: Collection[str] = ("q",),
        names: Collection[str] = ("n",),
        lock: timedelta = LOCK,
        most: Mapping[str, int] | None = None,
        limits: Mapping[str, Limit] | None = None,
        on: Provider | None = None,
    ) -> list[WorkItem]:
        """What a fetch that does not wait takes."""
        return items_of(
            await self.fetch(limit, queues=queues, names=names, lock=lock, most=most, limits=limits, on=on)
        )

    def begin_fetch(
        self,
        wait: float,
        *,
        by: str = "blocked",
        queues: Collection[str] = ("q",),
        names: Collection[str] = ("n",),
        limits: Mapping[str, Limit] | None = None,
        on: Provider | None = None,
    ) -> asyncio.Task[Fetched]:
        """A fetch that may wait, under way."""
        fetch = self.fetch(wait=wait, by=by, queues=queues, names=names, limits=limits, on=on)
        return asyncio.create_task(fetch)

    async def ended(self, fetching: asyncio.Task[Fetched]) -> Fetched:
        """What a fetch answers that has a reason to end at this instant; fails where it stays blocked."""
        await asyncio.wait({fetching}, timeout=PATIENCE_S)
        if not fetching.done():
            fetching.cancel()
            raise AssertionError("a blocked fetch was not woken")
        return await fetching

    async def item(self, id: str, queue: str = "q") -> ItemRow:
        """One item as the listing has it."""
        return next(row for row in await self.provider.items(queue, limit=10_000) if row.id == id)

    async def states(self, queue: str = "q") -> dict[str, str]:
        """States by item."""
        return {row.id: row.state for row in await self.provider.items(queue, limit=10_000)}

    async def claim(self, *names: str, every: timedelta = MINUTE, limit: int = 100) -> list[Claim]:
        """Claim polls, each of them due every so often."""
        return await self.provider.claim_polls([Schedule(name, every) for name in names], limit)

    async def answer(self, claim: Claim, price: int) -> Recorded:
        """Record an answer whose payload is one number."""
        return await self.provider.record_answer(claim, answered(price, claim))

    async def row(self, name: str) -> PollRow:
        """What is kept of a poll."""
        (row,) = await self.provider.poll_rows([name])
        return row

    async def change(self, name: str, price: int) -> Changed:
        """Make a poll due, claim it and record an answer that is new."""
        await self.provider.poll_now([name])
        (claim,) = await self.claim(name)
        recorded = await self.answer(claim, price)
        assert isinstance(recorded, Changed)
        return recorded

    async def subscribe(self, *names: str, template: Subscription | None = None) -> None:
        """Register one subscription for each name, as ``template`` has it."""
        given = template or subscription()
        await self.provider.register_subscriptions([replace(given, name=name) for name in names])

    async def deliveries(self, *names: str) -> list[WorkItem]:
        """What waits for these subscribers, taken."""
        return await self.take(100, queues=[DELIVERIES], names=names)


def items_of(fetched: Fetched) -> list[WorkItem]:
    """What a fetch took."""
    return list(fetched.items) if isinstance(fetched, Items) else []


def ids_of(fetched: Fetched) -> list[str]:
    """The ids of what a fetch took."""
    return [item.id for item in items_of(fetched)]


def subscription(name: str = "a") -> Subscription:
    """A webhook that hears ``shop.PriceChanged``."""
    return Subscription(name, "shop.PriceChanged", "webhook", "http://localhost/hook", timedelta(days=3))


def answered(price: int, claim: Claim) -> Answered:
    """An answer whose payload is one number."""
    payload = f'{{"price":{price}}}'
    return Answered(
        event_id=f"evt_{claim.name}_{claim.generation}",
        event="shop.PriceChanged",
        payload=payload,
        digest=digest(payload),
        validators=Validators(f'"{price}"'),
        declaration="declared",
    )
