"""Periodic tasks: at each instant of their rules one work item, enqueued by whichever process comes first.

The store keeps the last instant of each that happened, and lets a later one happen once. So of many processes one
enqueues, and after an outage the latest instant is caught up with, once. Between two instants nothing is asked but
the store's clock, once a tick, since clocks may be set and machines may sleep.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Protocol

from bide.clock import Clock
from bide.core.pacing import FETCH_BACKOFF, about
from bide.core.periodic import Rule
from bide.core.work import TaskDeclaration
from bide.engine.health import ProviderHealth
from bide.errors import ProviderError
from bide.provider import NewItem, Occurrences
from bide.telemetry import Telemetry

_LEAST_WAIT_S = 0.001


class Store(Occurrences, Protocol):
    """What periodic tasks need of a provider."""

    async def now(self) -> int: ...


class Periodic:
    """Lets the periodic ones of ``tasks`` happen."""

    def __init__(
        self,
        provider: Store,
        tasks: Iterable[TaskDeclaration],
        *,
        tick: timedelta,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._provider = provider
        self._tasks = [(task, task.rule) for task in tasks if task.rule is not None]
        self._tick_s = tick.total_seconds()
        self._clock = clock
        self._health = ProviderHealth("periodic", clock, telemetry)
        self._happened: dict[str, int] | None = None

    def __bool__(self) -> bool:
        """Whether there is any periodic task."""
        return bool(self._tasks)

    async def run(self) -> None:
        """Enqueue what is due, wait for the next instant, and so on, until cancelled.

        Raises ``ProviderError`` where the provider refuses for good.
        """
        backoff = None
        while True:
            try:
                wait = await self.once()
            except ProviderError as error:
                if not error.retryable:
                    raise
                self._health.failed(error)
                backoff = FETCH_BACKOFF.next(backoff)
                await self._clock.sleep(about(backoff, self._clock.draw()).total_seconds())
                continue
            self._health.answered()
            backoff = None
            await self._clock.sleep(wait)

    async def once(self) -> float:
        """Enqueue what is due now; how many seconds to wait until the next look. Raises ``ProviderError``."""
        now = await self._provider.now()
        happened = await self._known(now)
        for task, rule in self._tasks:
            if happened[task.name] > rule.next_instant(now):
                await self._begin_anew(task.name, rule, now)
            at = rule.latest_instant(now)
            if at > happened[task.name]:
                await self._provider.occur(task.name, at, self._item(task))
                happened[task.name] = at
        upcoming = min(rule.next_instant(now) for _, rule in self._tasks)
        return min(max((upcoming - now) / 1000, _LEAST_WAIT_S), self._tick_s)

    async def _known(self, now: int) -> dict[str, int]:
        """The last instant of each task that happened; a new rule begins with the next of its instants."""
        if self._happened is None:
            rules = {task.name: (rule.text, rule.latest_instant(now)) for task, rule in self._tasks}
            self._happened = await self._provider.occurred(rules)
        return self._happened

    async def _begin_anew(self, name: str, rule: Rule, now: int) -> None:
        """What happened last lies further ahead than the next instant: the store's clock was set back since."""
        assert self._happened is not None
        latest = rule.latest_instant(now)
        for text in (f"{rule.text} (begun anew)", rule.text):  # another rule's instant is forgotten
            self._happened |= await self._provider.occurred({name: (text, latest)})

    def _item(self, task: TaskDeclaration) -> NewItem:
        return NewItem(
            id=self._clock.new_id(),
            queue=task.queue,
            name=task.name,
            payload=task.signature.encode((), {}),
            priority=task.priority,
            max_attempts=task.max_attempts,
            within=task.within,
            keep_result=task.keep_result,
        )
