"""Items in hand: from the fetch to the settlement.

Each item's handler runs as a task of its own under a lock that is kept alive; what comes of it is settled in
batches. A handler whose lock is lost is cancelled and its result discarded. At a stop handlers get a grace
period, then are cancelled and their items given back uncounted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bide.clock import Clock
from bide.core.pacing import DELIVERY_BACKOFF
from bide.engine.health import ProviderHealth
from bide.engine.locks import HeldLocks, RenewalThread
from bide.engine.outcome import GivenBack, Outcome, Retried, settlement
from bide.engine.settling import Settler
from bide.errors import ProviderError
from bide.provider import Abandon, Work, WorkItem

Handle = Callable[[WorkItem], Coroutine[Any, Any, Outcome]]
"""Handles one item and tells what came of it; an exception is a failed attempt."""

Told = Callable[[WorkItem, Outcome, bool, float], None]
"""Told of each item that left the hands: its outcome, whether its lock had been lost, and the seconds it took."""

ZERO = timedelta()

SETTLE_LIMIT_S = 5.0
"""Seconds that settling may take at a stop once the handlers have ended."""


@dataclass(slots=True)
class _Running:
    item: WorkItem
    handler: asyncio.Task[Outcome]
    lost: bool = False


class Hands:
    """Up to ``concurrency`` items in hand, and of each name no more than its ``places``."""

    def __init__(
        self,
        provider: Work,
        handle: Handle,
        *,
        concurrency: int,
        places: Mapping[str, int],
        lock_timeout: timedelta,
        clock: Clock,
        health: ProviderHealth,
        told: Told,
        freed: Callable[[], None],
    ) -> None:
        self._provider = provider
        self._handle = handle
        self._concurrency = concurrency
        self._places = dict(places)
        self._lock_timeout = lock_timeout
        self._clock = clock
        self._health = health
        self._told = told
        self._freed = freed
        self._settler = Settler(provider, clock)
        self._held = HeldLocks(self._lock_lost)
        self._running: dict[str, _Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._by_name: Counter[str] = Counter()
        self._hurry = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def busy(self) -> bool:
        """Whether any item is in hand."""
        return bool(self._tasks)

    @property
    def free(self) -> int:
        """Items that may be taken into hand now."""
        return self._concurrency - len(self._tasks)

    @property
    def free_by_name(self) -> dict[str, int]:
        """Names that have free places, with how many."""
        left = {name: places - self._by_name[name] for name, places in self._places.items()}
        return {name: free for name, free in left.items() if free > 0}

    def renewal(self) -> RenewalThread:
        """Keeps the locks alive while it is entered."""
        self._loop = asyncio.get_running_loop()
        return RenewalThread(self._provider, self._held, self._clock, self._lock_timeout)

    async def wait_for_place(self) -> None:
        """Wait until there is a free place of some name."""
        while self._tasks and (self.free <= 0 or not self.free_by_name):
            await self.wait_for_one()

    async def wait_for_one(self) -> None:
        """Wait until one of the items in hand is through."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    def take(self, items: Collection[WorkItem]) -> None:
        """Take fetched items into hand and start their handlers."""
        ends = self._clock.monotonic() + self._lock_timeout.total_seconds()
        for item in items:
            self._held.add(item.token, ends)
            self._by_name[item.name] += 1
            running = _Running(item, asyncio.get_running_loop().create_task(self._handle(item)))
            self._running[item.token] = running
            task = asyncio.ensure_future(self._see_through(running))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def give_back(self, items: Collection[WorkItem]) -> None:
        """Give back items that were never started: uncounted, due at once, their last error as it was."""
        for item in items:
            await self._settler.settle(Abandon(item.token, ZERO, count_attempt=False))

    async def finish(self, grace: timedelta) -> None:
        """Let handlers end within ``grace`` (or until :meth:`stop_now`), cancel the rest, settle what can be.

        What is not settled :data:`SETTLE_LIMIT_S` later keeps its lock until that expires.
        """
        if not self._tasks:
            return
        everything = asyncio.ensure_future(asyncio.wait(set(self._tasks)))
        try:
            await self._first_of(everything, self._clock.sleep(grace.total_seconds()), self._hurry.wait())
            for running in self._running.values():
                running.handler.cancel()
            await self._first_of(everything, self._clock.sleep(SETTLE_LIMIT_S))
        finally:
            everything.cancel()
            self._hurry.clear()
            for task in self._tasks:
                task.cancel()  # a handler that cannot be cancelled, or a provider that is away

    def stop_now(self) -> None:
        """Cut the grace period short."""
        self._hurry.set()

    async def _see_through(self, running: _Running) -> None:
        item, began = running.item, self._clock.monotonic()
        try:
            outcome = await self._outcome(running)
            self._held.remove(item.token)
            lost = running.lost or await self._settler.settle(settlement(item, outcome)) == "stale"
            self._told(item, outcome, lost, self._clock.monotonic() - began)
        except ProviderError as error:
            self._health.failed(error)  # its lock will expire, and the item be fetched again
        finally:
            running.handler.cancel()
            self._held.remove(item.token)
            self._running.pop(item.token, None)
            self._by_name[item.name] -= 1
            self._freed()

    async def _outcome(self, running: _Running) -> Outcome:
        await asyncio.wait({running.handler})
        handler = running.handler
        if handler.cancelled() and handler.cancelling():
            return GivenBack("stopped before it was done", ZERO)
        error = asyncio.CancelledError() if handler.cancelled() else handler.exception()
        if error is None:
            return handler.result()
        delay = DELIVERY_BACKOFF.delay(running.item.attempt, self._clock.draw())
        return Retried(f"{type(error).__name__}: {error}", delay)

    def _lock_lost(self, token: str) -> None:
        """Called on the renewal thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._cancel_lost, token)

    def _cancel_lost(self, token: str) -> None:
        running = self._running.get(token)
        if running is not None:
            running.lost = True
            running.handler.cancel()

    @staticmethod
    async def _first_of(everything: asyncio.Future[Any], *others: Awaitable[object]) -> None:
        limits = [asyncio.ensure_future(other) for other in others]
        try:
            await asyncio.wait({everything, *limits}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for limit in limits:
                limit.cancel()
