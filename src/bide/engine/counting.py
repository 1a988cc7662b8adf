"""Counting the items of queues now and then, for whoever watches how they stand."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from bide.clock import Clock
from bide.engine.health import ProviderHealth
from bide.engine.loops import until
from bide.errors import ProviderError
from bide.provider import Inspection
from bide.telemetry import QueueCounted, Telemetry


class Counting:
    """Asks the store each ``every`` how many items of each queue are in which state, and tells telemetry.

    Nothing depends on it: a store that does not answer is asked again the next time, whatever its error says.
    """

    def __init__(self, provider: Inspection, every: timedelta, *, clock: Clock, telemetry: Telemetry) -> None:
        self._provider = provider
        self._every = every
        self._clock = clock
        self._telemetry = telemetry
        self._health = ProviderHealth("counting", clock, telemetry)
        self._counted: set[str] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Count until ``stop`` is set."""
        await until(stop, self._keep_counting())

    async def once(self) -> None:
        """Count now. A queue that was counted before and has nothing any more is told as empty."""
        try:
            counts = await self._provider.counts()
        except ProviderError as error:
            self._health.failed(error)
            return
        self._health.answered()
        told = {
            queue.queue: QueueCounted(
                queue.queue, queue.ready, queue.running, queue.done, queue.dead, queue.oldest_ms
            )
            for queue in counts
        }
        for queue in sorted(self._counted | told.keys()):
            self._telemetry.emit(told.get(queue) or QueueCounted(queue, 0, 0, 0, 0))
        self._counted = set(told)

    async def _keep_counting(self) -> None:
        while True:
            await self.once()
            await self._clock.sleep(self._every.total_seconds())
