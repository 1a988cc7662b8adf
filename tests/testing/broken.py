"""Memory providers with one fault each, of the kind that real ones had; ``python broken.py FAULT NUMBER`` tries one.

It prints the number and verdict of each promise that was tried: those of NUMBER alone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from bide.errors import ProviderError
from bide.provider import (
    ZERO,
    Abandon,
    Ack,
    Empty,
    Enqueued,
    Fetched,
    Items,
    NewItem,
    Provider,
    Settled,
    Settlement,
)
from bide.providers.memory import MemoryProvider
from bide.testing import SkewedClock
from bide.testing.benches.memory import MemoryBench
from bide.testing.conformance import Bench, bench
from bide.testing.trial import try_out


class Deaf(MemoryProvider):
    """What happens wakes nobody."""

    def __init__(self, clock: Any, *, beside: MemoryProvider | None = None) -> None:
        super().__init__(clock, beside=beside)
        self._store.bell.ring_everywhere = lambda *, end=False: None  # type: ignore[method-assign]


class Late(MemoryProvider):
    """Waits twice as long as it may."""

    async def fetch_work_items(self, *args: Any, poll_timeout: timedelta, **options: Any) -> Fetched:
        return await super().fetch_work_items(*args, poll_timeout=2 * poll_timeout, **options)


class GreedyWhenCancelled(MemoryProvider):
    """A wait that is cancelled takes what comes after it."""

    async def fetch_work_items(self, *args: Any, fetch_token: str, **options: Any) -> Fetched:
        try:
            return await super().fetch_work_items(*args, fetch_token=fetch_token, **options)
        except asyncio.CancelledError:
            lost = super().fetch_work_items(*args, fetch_token="lost", **options)
            self.lost = asyncio.create_task(lost)
            raise


class LockFromTheWait(MemoryProvider):
    """The lock begins with the wait."""

    async def fetch_work_items(self, *args: Any, lock_timeout: timedelta, **options: Any) -> Fetched:
        began = self._store.now()
        fetched = await super().fetch_work_items(*args, lock_timeout=lock_timeout, **options)
        for item in fetched.items if isinstance(fetched, Items) else ():
            self._store.items[item.id].locked_until = began + lock_timeout // timedelta(milliseconds=1)
        return fetched


class EmptyForContended(MemoryProvider):
    """Who is not alone finds nothing, and says that there was nothing."""

    asking = 0

    async def fetch_work_items(self, *args: Any, **options: Any) -> Fetched:
        type(self).asking += 1
        try:
            await asyncio.sleep(0)
            if type(self).asking > 1:
                return Empty()
            return await super().fetch_work_items(*args, **options)
        finally:
            type(self).asking -= 1


class ImmortalTokens(MemoryProvider):
    """A token is good until somebody else has the item."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        for item in self._store.running():
            if item.locked_until <= self._store.now():
                item.locked_until = self._store.now() + 1
        return await super().settle(settlements)


class HalfAnAck(MemoryProvider):
    """First the acks, and then what they enqueue."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        settled = await super().settle(
            [replace(one, enqueue=()) if isinstance(one, Ack) else one for one in settlements]
        )
        for one in settlements:
            if isinstance(one, Ack):
                await self.enqueue(one.enqueue)
        return settled


class UncountedDeaths(MemoryProvider):
    """An attempt that its worker did not survive leaves no trace."""

    async def fetch_work_items(self, *args: Any, **options: Any) -> Fetched:
        for item in self._store.running():
            if item.locked_until <= self._store.now():
                item.give_back()
        return await super().fetch_work_items(*args, **options)


class DelayAsLock(MemoryProvider):
    """An item that waits is kept by its old lock."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        settled: list[Settled] = []
        for one in settlements:
            if isinstance(one, Abandon) and one.delay > ZERO:
                (renewed,) = await self.renew([one.token], one.delay)
                settled.append("settled" if renewed else "stale")
            else:
                settled += await super().settle([one])
        return settled


class OwnClock(MemoryProvider):
    """Each worker goes by its own clock."""

    def __init__(self, clock: Any, *, beside: MemoryProvider | None = None) -> None:
        super().__init__(clock, beside=beside)
        if isinstance(clock, SkewedClock):
            self._store = replace(self._store, clock=clock)


class ForgetfulKeys(MemoryProvider):
    """A key ends with its item."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        settled = await super().settle(settlements)
        for item in self._store.items.values():
            if item.ended_at is not None:
                item.key = None
        return settled


class KeysLookedUpFirst(MemoryProvider):
    """Looks whether a key is there, and puts it in afterwards."""

    async def enqueue(self, items: Sequence[NewItem]) -> list[Enqueued]:
        known = {item.key for item in self._store.items.values() if item.key is not None}
        await asyncio.sleep(0)
        given = [item if item.key in known else replace(item, key=None) for item in items]
        enqueued = await super().enqueue(given)
        for item in items:
            if item.id in self._store.items:
                self._store.items[item.id].key = item.key
        return enqueued


class AnyName(MemoryProvider):
    """Takes what comes, whatever its name."""

    async def fetch_work_items(self, queues: Any, names: Any, **options: Any) -> Fetched:
        everything = {item.name for item in self._store.items.values()}
        return await super().fetch_work_items(queues, {*names, *everything}, **options)


class LimitsOfOneProcess(MemoryProvider):
    """Counts what it has taken itself."""

    def __init__(self, clock: Any, *, beside: MemoryProvider | None = None) -> None:
        super().__init__(clock, beside=beside)
        self._is_first = beside is None

    async def fetch_work_items(self, *args: Any, limits: Any = None, **options: Any) -> Fetched:
        return await super().fetch_work_items(*args, limits=limits if self._is_first else None, **options)


class UnfairKeys(MemoryProvider):
    """Always begins with the same key."""

    async def fetch_work_items(self, *args: Any, **options: Any) -> Fetched:
        self._turns._served.clear()
        return await super().fetch_work_items(*args, **options)


class NoFanOut(MemoryProvider):
    """Keeps the event, and makes its deliveries some time later."""

    def _record_change(self, *args: Any) -> Any:
        kept = dict(self._store.subscriptions)
        self._store.subscriptions.clear()
        try:
            return super()._record_change(*args)
        finally:
            self._store.subscriptions.update(kept)


class SilentDamage(MemoryProvider):
    """A payload that cannot be read is an empty one."""

    def damage(self, item_id: str) -> None:
        self._store.items[item_id].payload = ""


class EverythingIsRetryable(MemoryProvider):
    """Whatever went wrong, ask again."""

    async def enqueue(self, items: Sequence[NewItem]) -> list[Enqueued]:
        try:
            return await super().enqueue(items)
        except ProviderError as error:
            raise ProviderError(str(error), retryable=True) from error


class EmptyAfterRestart(MemoryProvider):
    """Kept in memory after all."""

    async def close(self) -> None:
        self._store.items.clear()


class BrokenScratch:
    """Stores of a broken provider."""

    place = "memory"

    def __init__(self, made: Callable[..., MemoryProvider]) -> None:
        self._made = made

    async def prepare(self) -> None: ...

    async def remove(self) -> None: ...

    @asynccontextmanager
    async def bench(self) -> AsyncIterator[Bench]:
        made = self._made

        class BrokenBench(MemoryBench):
            def __init__(self) -> None:
                super().__init__()
                self.provider = self.memory = made(self.clock)

            @asynccontextmanager
            async def another(self, *, ahead: float = 0) -> AsyncIterator[Provider]:
                yield made(SkewedClock(self.clock, ahead), beside=self.memory)

        yield BrokenBench()


if __name__ == "__main__":
    bench.PATIENCE_S = 0.2
    fault, number = sys.argv[1:]
    for verdict in try_out(BrokenScratch(globals()[fault]), [int(number)]):
        print(verdict.number, verdict.word, *(tried.test for tried in verdict.of("failed")))
