"""Settling in batches: while one batch is on its way to the provider, the next one gathers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from bide.clock import Clock
from bide.core.pacing import FETCH_BACKOFF, about
from bide.engine.health import ProviderHealth
from bide.engine.outcome import GivenBack, Outcome, settlement, storable
from bide.engine.waiting import answer_of
from bide.errors import ProviderError
from bide.provider import Abandon, Bury, Settled, Settlement, Work, WorkItem

Handled = tuple[WorkItem, Outcome | None, float]
"""An item that left a handler's hands, what came of it (None: it was never begun), and the seconds it took."""

Answered = Callable[[Sequence[Handled], Sequence[Settled | None]], None]
"""Told what the provider answered for each; None: it refused to settle that one, whose lock will expire."""

SETTLING = "settling"


class Settler:
    """Hands to ``provider`` what was handled, as much as has gathered at a time.

    While the provider cannot be reached a batch is tried again with back-off, along with what gathers meanwhile;
    locks may expire, and then the answer is ``"stale"`` and another worker has the item. What the provider refuses
    for good is tried one by one, so that it harms no other; an item that cannot be settled as it should is buried
    with the reason.
    """

    def __init__(self, provider: Work, clock: Clock, health: ProviderHealth, answered: Answered) -> None:
        self._provider = provider
        self._clock = clock
        self._health = health
        self._answered = answered
        self._gathered: list[Handled] = []
        self._sending = 0
        self._more = asyncio.Event()

    def __len__(self) -> int:
        """How many items are handled and not settled."""
        return len(self._gathered) + self._sending

    def add(self, item: WorkItem, outcome: Outcome | None, elapsed_s: float) -> None:
        """Settle ``item`` as soon as may be."""
        self._gathered.append((item, outcome, elapsed_s))
        if len(self._gathered) == 1:
            self._more.set()

    async def run(self) -> None:
        """Settle what is added, until cancelled; then what is not settled is forgotten."""
        try:
            while True:
                await self._more.wait()
                await self._send()
                if not self._gathered:
                    self._more.clear()
        finally:
            self._gathered.clear()
            self._sending = 0

    async def _send(self) -> None:
        batch: list[Handled] = []
        backoff: timedelta | None = None
        while True:
            batch += self._gathered
            self._gathered = []
            self._sending = len(batch)
            try:
                settled: Sequence[Settled | None] = await answer_of(
                    self._provider.settle([_settlement(item, outcome) for item, outcome, _ in batch])
                )
            except Exception as error:
                if _passes(error):
                    backoff = await self._back_off(error, backoff)
                    continue
                settled = [await self._settle_alone(item, outcome) for item, outcome, _ in batch]
            else:
                self._health.answered(SETTLING)
            self._sending = 0
            self._answered(batch, settled)
            return

    async def _settle_alone(self, item: WorkItem, outcome: Outcome | None) -> Settled | None:
        """Settle what was refused as a part of a batch, for its own sake or another's."""
        try:
            return await self._try(_settlement(item, outcome))
        except Exception as error:
            refusal = error
        if outcome is not None and not isinstance(outcome, GivenBack):
            reason = (
                f"handled ({type(outcome).__name__.lower()}), but the store refused to keep that: {refusal}"
            )
            try:
                return await self._try(Bury(item.token, storable(reason)))
            except Exception as error:
                refusal = error
        self._health.failed(refusal, SETTLING)
        return None

    async def _try(self, wanted: Settlement) -> Settled:
        """Settle one; raises what will not pass."""
        backoff: timedelta | None = None
        while True:
            try:
                (settled,) = await answer_of(self._provider.settle([wanted]))
            except Exception as error:
                if not _passes(error):
                    raise
                backoff = await self._back_off(error, backoff)
                continue
            self._health.answered(SETTLING)
            return settled

    async def _back_off(self, error: Exception, backoff: timedelta | None) -> timedelta:
        self._health.failed(error, SETTLING)
        backoff = FETCH_BACKOFF.next(backoff)
        await self._clock.sleep(about(backoff, self._clock.draw()).total_seconds())
        return backoff


def _settlement(item: WorkItem, outcome: Outcome | None) -> Settlement:
    if outcome is None:
        return Abandon(item.token, timedelta(), count_attempt=False)
    return settlement(item, outcome)


def _passes(error: Exception) -> bool:
    return isinstance(error, ProviderError) and error.retryable
