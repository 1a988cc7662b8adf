"""What a store needs now and then: subscriptions declared anew, lives that are over ended, old things removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Protocol

from bide.clock import Clock
from bide.engine.health import ProviderHealth
from bide.errors import ProviderError
from bide.provider import Events, Inspection, Subscription
from bide.telemetry import Telemetry

PRUNE_STEPS = 20
"""Small steps of pruning in one round; what is left waits for the next round, so that nobody is held up."""


class Store(Events, Inspection, Protocol):
    """What upkeep needs of a provider."""


class Upkeep:
    """Once a tick: say that the subscribers are still declared, and prune in small steps.

    ``living`` is told the names of declared subscriptions that live, so that polls which nobody hears any
    more are not called.
    """

    def __init__(
        self,
        provider: Store,
        subscriptions: Sequence[Subscription],
        *,
        retention: timedelta,
        tick: timedelta,
        living: Callable[[Collection[str]], None],
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._provider = provider
        self._subscriptions = subscriptions
        self._retention = retention
        self._tick = tick
        self._living = living
        self._clock = clock
        self._health = ProviderHealth("upkeep", clock, telemetry)

    async def once(self) -> None:
        """One round. Raises ``ProviderError``."""
        if self._subscriptions:
            self._living(await self._provider.register_subscriptions(self._subscriptions))
        for _ in range(PRUNE_STEPS):
            if not (await self._provider.prune(self._retention)).any:
                return
            await asyncio.sleep(0)

    async def begin(self) -> None:
        """The first round of a run. A provider that is away for the moment is waited for by the rounds to come.

        Raises ``ProviderError`` where it refuses for good.
        """
        try:
            await self.once()
        except ProviderError as error:
            if not error.retryable:
                raise
            self._health.failed(error)
        else:
            self._health.answered()

    async def run(self) -> None:
        """A round each tick, until cancelled. Raises as :meth:`begin` does."""
        while True:
            await self._clock.sleep(self._tick.total_seconds())
            await self.begin()
