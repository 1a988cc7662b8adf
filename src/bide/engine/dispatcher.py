"""The dispatcher: the loop that fetches work items from a provider and hands them on.

::

    while not stopping:
        fetch as many as there are free places, blocking for up to long_poll_timeout where the provider can
        Items             → hand on; go round by the rule of bide.core.dispatching
        Empty, Contended  → wait by the strategy, or until something will be eligible
        error             → back off, with jitter; say so on the edges only

It never fetches more than there are free places, so nothing sits locked and waiting. At a stop it takes in
nothing more at once; a fetch that is blocked is cancelled, and what it had taken is released.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from bide.clock import Clock
from bide.core.dispatching import FetchFailed, FullBatch, NothingFound, Observation, Pace, PartBatch, decide
from bide.core.pacing import PollingStrategy
from bide.engine.handling import Handle, Hands, Told
from bide.engine.health import ProviderHealth
from bide.errors import ProviderError
from bide.provider import Contended, Empty, Fetched, Items, Work
from bide.telemetry import Telemetry

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
    """One queue's loop. ``places``: the names that may be fetched, and how many of each at a time."""

    def __init__(
        self,
        provider: Work,
        handle: Handle,
        *,
        queue: str,
        places: Mapping[str, int],
        clock: Clock,
        telemetry: Telemetry,
        told: Told,
        settings: DispatcherSettings | None = None,
        strategy: PollingStrategy | None = None,
    ) -> None:
        self._provider = provider
        self._queue = queue
        self._clock = clock
        self._settings = settings or DispatcherSettings()
        self._strategy = strategy or PollingStrategy.adaptive()
        self._health = ProviderHealth(queue, clock, telemetry)
        self._woken = asyncio.Event()
        self._hands = Hands(
            provider,
            handle,
            concurrency=self._settings.concurrency,
            places=places,
            lock_timeout=self._settings.lock_timeout,
            clock=clock,
            health=self._health,
            told=told,
            freed=self.wake,
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """Fetch and hand on until ``stopping`` is set; then stop as the module says.

        Raises ``ProviderError`` where the provider refuses for good.
        """
        with self._hands.renewal():
            fetching = asyncio.ensure_future(self._keep_fetching())
            waiting = asyncio.ensure_future(stopping.wait())
            try:
                await asyncio.wait({fetching, waiting}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                fetching.cancel()
                await asyncio.wait({fetching})
                await self._hands.finish(self._settings.grace)
        if not fetching.cancelled():
            fetching.result()

    async def drain(self, limit: timedelta) -> None:
        """Handle what is eligible, each item once; return when nothing is left and nothing runs.

        Nothing more is taken in after ``limit``, so that a receiver that is slow holds up no pass for long.
        """
        seen: set[str] = set()
        ends_at = self._clock.monotonic() + limit.total_seconds()
        with self._hands.renewal():
            try:
                while self._clock.monotonic() < ends_at and await self._drain_some(seen):
                    pass
            finally:
                await self._hands.finish(self._settings.grace)

    def wake(self) -> None:
        """Something was enqueued in this process, or a place became free: look at once."""
        self._woken.set()

    def stop_now(self) -> None:
        """Cut the grace period short."""
        self._hands.stop_now()

    async def _keep_fetching(self) -> None:
        pace = Pace.start(self._strategy, self._settings.min_poll_interval)
        while True:
            await self._hands.wait_for_place()
            began = self._clock.monotonic()
            seen = await self._fetch_and_hand_on()
            elapsed = timedelta(seconds=self._clock.monotonic() - began)
            pace, wait = decide(pace, seen, elapsed=elapsed, draw=self._clock.draw())
            await self._pause(wait, wakeable=not isinstance(seen, FetchFailed))

    async def _fetch_and_hand_on(self) -> Observation:
        limit = self._hands.free
        try:
            fetched = await self._fetch_unless_woken(limit)
        except ProviderError as error:
            if not error.retryable:
                raise
            self._health.failed(error)
            return FetchFailed()
        self._health.answered()
        match fetched:
            case Items(items=items, blocked=blocked):
                self._hands.take(items)
                return FullBatch() if len(items) >= limit else PartBatch(blocked)
            case Empty(next_eligible_in=eligible):
                return NothingFound(eligible)
            case Contended():
                return NothingFound()
            case _ as unreachable:
                assert_never(unreachable)

    async def _fetch_unless_woken(self, limit: int) -> Fetched:
        """A blocking fetch that a freed place ends early, so that the next one asks for its name too."""
        self._woken.clear()
        async with self._releasing() as fetch_token:
            fetching = asyncio.ensure_future(
                self._fetch(limit, self._settings.long_poll_timeout, fetch_token)
            )
            waking = asyncio.ensure_future(self._woken.wait())
            try:
                await asyncio.wait({fetching, waking}, return_when=asyncio.FIRST_COMPLETED)
                if not fetching.done():
                    await self._provider.wake()
                return await fetching
            finally:
                waking.cancel()
                fetching.cancel()
                await asyncio.wait({fetching})

    @contextlib.asynccontextmanager
    async def _releasing(self) -> AsyncIterator[str]:
        """A fetch token; whatever a cancelled or failed fetch had taken under it is given back."""
        fetch_token = self._clock.new_id()
        try:
            yield fetch_token
        except (asyncio.CancelledError, ProviderError):
            with contextlib.suppress(ProviderError):
                await self._provider.release(fetch_token)
            raise

    async def _fetch(self, limit: int, poll_timeout: timedelta, fetch_token: str) -> Fetched:
        names = self._hands.free_by_name
        return await self._provider.fetch_work_items(
            [self._queue],
            list(names),
            limit=limit,
            lock_timeout=self._settings.lock_timeout,
            poll_timeout=poll_timeout,
            fetch_token=fetch_token,
            most=names,
        )

    async def _drain_some(self, seen: set[str]) -> bool:
        """One round of a drain; whether there may be more."""
        await self._hands.wait_for_place()
        async with self._releasing() as fetch_token:
            fetched = await self._fetch(self._hands.free, ZERO, fetch_token)
        items = fetched.items if isinstance(fetched, Items) else ()
        fresh = [item for item in items if item.id not in seen]
        seen.update(item.id for item in items)
        await self._hands.give_back([item for item in items if item not in fresh])
        self._hands.take(fresh)
        if fresh:
            return True
        if self._hands.busy:
            await self._hands.wait_for_one()
            return True
        return False

    async def _pause(self, wait: timedelta, *, wakeable: bool) -> None:
        """Wait before the next fetch; ``wake`` ends it early where it is ``wakeable``."""
        if wait <= ZERO:
            await asyncio.sleep(0)
            return
        sleeping = asyncio.ensure_future(self._clock.sleep(wait.total_seconds()))
        waking = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait(
                {sleeping, waking} if wakeable else {sleeping}, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            sleeping.cancel()
            waking.cancel()
