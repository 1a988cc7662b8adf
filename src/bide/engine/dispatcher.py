"""The dispatcher: the loop that fetches work items from a provider and hands them on.

::

    while not stopping:
        fetch as many as there are free places, blocking for up to long_poll_timeout where the provider can
        Items             → hand on; go round by the rule of bide.core.dispatching
        Empty, Contended  → wait by the strategy, or until something will be eligible
        error             → back off, with jitter; say so on the edges only

It never fetches more than there are free places, so nothing sits locked and waiting. At a stop it takes in
nothing more at once; a fetch that is blocked is cancelled, and what it had taken is released, while handlers have
their grace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, assert_never

from bide.clock import Clock
from bide.core.dispatching import (
    FetchFailed,
    FullBatch,
    NothingFound,
    Observation,
    Pace,
    PartBatch,
    TakenByOthers,
    decide,
)
from bide.core.pacing import PollingStrategy
from bide.engine.crew import HandleItem
from bide.engine.fetching import Fetcher
from bide.engine.handling import Hands, Told
from bide.engine.health import ProviderHealth
from bide.engine.stopping import Haste, side_by_side
from bide.engine.waiting import ends_within
from bide.errors import ProviderError
from bide.provider import Contended, Empty, Fetched, Items, Limit, Work
from bide.telemetry import QueuePolled, Telemetry

ZERO = timedelta()


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """How one dispatcher fetches. ``concurrency``: items handled at a time; ``grace``: for handlers at a stop."""

    concurrency: int = 20
    lock_timeout: timedelta = timedelta(seconds=30)
    long_poll_timeout: timedelta = timedelta(seconds=30)
    min_poll_interval: timedelta = timedelta(milliseconds=100)
    grace: timedelta = timedelta(seconds=30)


class Dispatcher:
    """The loop over one or more ``queues``, which the provider serves in turn.

    ``places`` are the names that may be fetched, and how many of each at a time in this process; ``lock_timeouts``
    those whose lock is another than the settings'; ``limits`` bound what runs of a queue over the whole fleet.
    """

    def __init__(
        self,
        provider: Work,
        handle: HandleItem,
        *,
        queues: Collection[str],
        places: Mapping[str, int],
        clock: Clock,
        telemetry: Telemetry,
        told: Told,
        lock_timeouts: Mapping[str, timedelta] | None = None,
        limits: Mapping[str, Limit] | None = None,
        settings: DispatcherSettings | None = None,
        strategy: PollingStrategy | None = None,
    ) -> None:
        self._queue = ",".join(queues)
        self._clock = clock
        self._telemetry = telemetry
        self._settings = settings or DispatcherSettings()
        self._strategy = strategy or PollingStrategy.adaptive()
        self._health = ProviderHealth(self._queue, clock, telemetry)
        self._haste = Haste(clock)
        self._fetcher = Fetcher(provider, queues, limits or {}, clock, self._haste)
        self._lock_timeouts = dict.fromkeys(places, self._settings.lock_timeout) | dict(lock_timeouts or {})
        self._hands = Hands(
            provider,
            handle,
            concurrency=self._settings.concurrency,
            places=places,
            lock_timeouts=self._lock_timeouts,
            clock=clock,
            health=self._health,
            haste=self._haste,
            told=told,
            freed=self.wake,
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """Fetch and hand on until ``stopping`` is set; then stop as the module says.

        Raises ``ProviderError`` where the provider refuses for good.
        """
        async with self._hands.open():
            fetching = asyncio.ensure_future(self._keep_fetching())
            waiting = asyncio.ensure_future(stopping.wait())
            try:
                await asyncio.wait({fetching, waiting}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                fetching.cancel()
                await self._finish(fetching)
        if fetching.done() and not fetching.cancelled():
            fetching.result()

    async def drain(self, limit: timedelta) -> None:
        """HandleItem what is eligible, each item once; return when nothing is left and nothing runs.

        Nothing more is taken in after ``limit``, so that a receiver that is slow holds up no pass for long.
        """
        seen: set[str] = set()
        ends_at = self._clock.monotonic() + limit.total_seconds()
        async with self._hands.open():
            try:
                while self._clock.monotonic() < ends_at and await self._drain_some(seen):
                    pass
            finally:
                await self._finish()

    def in_hand(self) -> dict[str, int]:
        """How many items are fetched and not handled yet, under the queues joined by commas."""
        return {self._queue: self._hands.in_hand}

    def wake(self) -> None:
        """Something was enqueued in this process, or a name has a free place again: look at once."""
        self._fetcher.wake()

    def stop_now(self) -> None:
        """Cut the grace period short, and what the store may take to give back and to settle."""
        self._haste.ask()

    async def _finish(self, fetching: asyncio.Future[None] | None = None) -> None:
        """Let handlers end, and meanwhile what was fetched for nobody be given back."""
        try:
            await side_by_side(self._hands.finish(self._settings.grace), self._fetcher.close(fetching))
        finally:
            self._haste.forget()

    async def _keep_fetching(self) -> None:
        pace = Pace.start(self._strategy, self._settings.min_poll_interval)
        while True:
            await self._hands.wait_for_room()
            began = self._clock.monotonic()
            seen, found = await self._fetch_and_hand_on()
            elapsed = timedelta(seconds=self._clock.monotonic() - began)
            before = pace
            pace, wait = decide(before, seen, elapsed=elapsed, draw=self._clock.draw())
            if self._telemetry.heard:
                self._tell(seen, found, before, pace)
            await self._pause(wait, wakeable=not isinstance(seen, FetchFailed))

    async def _fetch_and_hand_on(self) -> tuple[Observation, int]:
        """What the fetch showed, and how many items it got."""
        names, limit = self._hands.free()
        lock_timeout = min(self._lock_timeouts[name] for name in names)
        try:
            fetched = await self._fetcher.fetch(
                names, limit, lock_timeout=lock_timeout, poll_timeout=self._settings.long_poll_timeout
            )
        except ProviderError as error:
            if not error.retryable:
                raise
            self._health.failed(error)
            return FetchFailed(), 0
        self._health.answered()
        if isinstance(fetched, Items):
            self._hands.take(fetched.items, lock_timeout)
            return _seen(fetched, limit), len(fetched.items)
        return _seen(fetched, limit), 0

    async def _drain_some(self, seen: set[str]) -> bool:
        """One round of a drain; whether there may be more."""
        await self._hands.wait_for_room()
        names, limit = self._hands.free()
        lock_timeout = min(self._lock_timeouts[name] for name in names)
        fetched = await self._fetcher.fetch(names, limit, lock_timeout=lock_timeout, poll_timeout=ZERO)
        items = fetched.items if isinstance(fetched, Items) else ()
        fresh = [item for item in items if item.id not in seen]
        seen.update(item.id for item in items)
        busy = self._hands.busy
        self._hands.give_back([item for item in items if item not in fresh])
        self._hands.take(fresh, lock_timeout)
        if busy and not fresh:
            await self._hands.wait_for_one()
        return busy or bool(fresh)

    def _tell(self, seen: Observation, found: int, before: Pace, pace: Pace) -> None:
        failed = pace.backoff is not None
        interval_s = (pace.backoff or pace.interval).total_seconds()
        backed_off = failed or pace.interval > before.interval
        self._telemetry.emit(QueuePolled(self._queue, _outcome(seen), found, interval_s, backed_off))

    async def _pause(self, wait: timedelta, *, wakeable: bool) -> None:
        """Wait before the next fetch; ``wake`` ends it early where it is ``wakeable``."""
        if wait <= ZERO:
            await asyncio.sleep(0)
            return
        if not wakeable:
            await self._clock.sleep(wait.total_seconds())
            return
        waking = asyncio.ensure_future(self._fetcher.wait_for_wake())
        try:
            await ends_within(self._clock, wait.total_seconds(), waking)
        finally:
            waking.cancel()


def _seen(fetched: Fetched, limit: int) -> Observation:
    match fetched:
        case Items(items=items, blocked=blocked):
            return FullBatch() if len(items) >= limit else PartBatch(blocked)
        case Empty(next_eligible_in=eligible, blocked=blocked):
            return NothingFound(eligible, blocked)
        case Contended():
            return TakenByOthers()
        case _ as unreachable:
            assert_never(unreachable)


def _outcome(seen: Observation) -> Literal["found", "empty", "contended", "failed"]:
    match seen:
        case FullBatch() | PartBatch():
            return "found"
        case NothingFound():
            return "empty"
        case TakenByOthers():
            return "contended"
        case FetchFailed():
            return "failed"
        case _ as unreachable:
            assert_never(unreachable)
