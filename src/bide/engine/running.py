"""The engine: ticker, dispatcher of deliveries, tasks and upkeep over one provider, run together or for one pass."""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from bide.clock import Clock
from bide.core.declaration import Command, Declarations, Function, Subscriber, Target, Webhook
from bide.core.http import shown_url
from bide.core.pacing import PollingStrategy
from bide.engine.asking import HeardPoll
from bide.engine.deliveries import DeliveryHandler
from bide.engine.dispatcher import Dispatcher, DispatcherSettings
from bide.engine.loops import Loop, run_together, until
from bide.engine.outcome import Outcome
from bide.engine.telling import delivery_settled
from bide.engine.ticker import Ticker
from bide.engine.upkeep import Upkeep
from bide.engine.working import TaskWork
from bide.provider import DELIVERIES, Provider, Subscription, WorkItem
from bide.telemetry import PollAnswered, PollFailed, Telemetry

DELIVERY_OUTCOMES = ("succeeded", "retried", "dead", "given_back", "lost")


@dataclass(frozen=True, slots=True)
class FailedPoll:
    """A poll whose call failed in this pass, and why."""

    poll: str
    error: str


@dataclass(frozen=True, slots=True)
class TickReport:
    """What one pass did, poll by poll; ``deliveries`` counts attempts by how they ended."""

    claimed: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    failed: list[FailedPoll] = field(default_factory=list)
    deliveries: dict[str, int] = field(default_factory=dict)


class Engine:
    """Everything that runs over one open provider."""

    def __init__(
        self,
        provider: Provider,
        declarations: Declarations,
        polls: Mapping[str, HeardPoll],
        handler: DeliveryHandler,
        *,
        clock: Clock,
        telemetry: Telemetry,
        hide: Callable[[str], str],
        dispatching: DispatcherSettings | None = None,
        strategy: PollingStrategy | None = None,
        tasks: TaskWork | None = None,
    ) -> None:
        dispatching = dispatching or DispatcherSettings(concurrency=declarations.concurrency)
        self._tick = declarations.tick
        self._telemetry = telemetry
        self._polls = polls
        self._settled: Counter[str] = Counter()
        subscribers = declarations.subscribers
        self._subscribers = subscribers
        self._tasks = tasks
        self._clock = clock
        self._ticker = Ticker(
            provider,
            polls,
            tick=declarations.tick,
            max_calls=declarations.max_calls,
            clock=clock,
            telemetry=telemetry,
            hide=hide,
            grace=dispatching.grace,
        )
        self._dispatcher = self._make_dispatcher(provider, handler, clock, dispatching, strategy)
        self._upkeep = Upkeep(
            provider,
            [subscription_of(subscriber) for subscriber in subscribers.values()],
            retention=declarations.retention,
            tick=declarations.tick,
            living=self._hear,
            clock=clock,
            telemetry=telemetry,
        )

    def _make_dispatcher(
        self,
        provider: Provider,
        handler: DeliveryHandler,
        clock: Clock,
        settings: DispatcherSettings,
        strategy: PollingStrategy | None,
    ) -> Dispatcher | None:
        """The one that brings deliveries, where there is somebody to bring them to."""
        if not self._subscribers:
            return None
        return Dispatcher(
            provider,
            handler.handle,
            queues=[DELIVERIES],
            places={name: subscriber.max_concurrent for name, subscriber in self._subscribers.items()},
            clock=clock,
            telemetry=self._telemetry,
            told=self._tell,
            settings=settings,
            strategy=strategy,
        )

    async def tick(self) -> TickReport:
        """One pass: deliver what waits, call what is due, deliver again. Raises ``ProviderError``."""
        self._settled.clear()
        await self._upkeep.once()
        await self._drain()
        called = await self._ticker.pass_once()
        await self._drain()
        return _report(called, self._settled)

    async def run(self, stopping: asyncio.Event, *beside: Loop) -> None:
        """Run until ``stopping`` is set, then stop gracefully; and the loops ``beside`` with it.

        Raises ``ProviderError`` where the provider refuses for good.
        """
        await self._upkeep.begin()
        loops = [self._ticker.run, lambda stop: until(stop, self._upkeep.run()), *beside]
        if self._dispatcher is not None:
            loops.append(self._dispatcher.run)
        if self._tasks is not None:
            loops += self._tasks.loops
        await run_together(stopping, self._telemetry, *loops)

    def in_hand(self) -> dict[str, int]:
        """How many items are fetched and not handled yet, by the queues that they are fetched from together."""
        deliveries = {} if self._dispatcher is None else self._dispatcher.in_hand()
        return deliveries | ({} if self._tasks is None else self._tasks.in_hand())

    def submitted(self) -> None:
        """A task was submitted in this process: look soon."""
        if self._tasks is not None:
            self._tasks.submitted()

    def stop_now(self) -> None:
        """Cut the grace period of a stop short."""
        self._ticker.stop_now()
        if self._dispatcher is not None:
            self._dispatcher.stop_now()
        if self._tasks is not None:
            self._tasks.stop_now()

    async def _drain(self) -> None:
        if self._dispatcher is not None:
            await self._dispatcher.drain(self._tick)

    def _hear(self, living: Collection[str]) -> None:
        """Call only the polls whose event some living subscriber of ours hears."""
        events = {self._subscribers[name].event for name in living if name in self._subscribers}
        self._ticker.hear(
            {name: heard for name, heard in self._polls.items() if heard.poll.event.name in events}
        )

    def _tell(self, item: WorkItem, outcome: Outcome, lost: bool, elapsed_s: float) -> None:
        told = delivery_settled(item, outcome, lost, elapsed_s, now_ms=self._clock.utc_ms())
        self._settled[told.outcome] += 1
        self._telemetry.emit(told)


def subscription_of(subscriber: Subscriber) -> Subscription:
    """The row that says that ``subscriber`` hears its event."""
    kind, target = _shown(subscriber.target)
    return Subscription(
        subscriber.name,
        subscriber.event,
        kind,
        target,
        subscriber.within,
        ordered=subscriber.ordered,
        max_attempts=subscriber.max_attempts,
    )


def _shown(target: Target) -> tuple[str, str]:
    match target:
        case Webhook(url=url):
            return "webhook", shown_url(url.text)
        case Command(argv=argv):
            return "command", shlex.join(argv)
        case Function(reference=reference):
            return "function", reference
        case _ as unreachable:
            assert_never(unreachable)


def _report(called: list[PollAnswered | PollFailed], settled: Mapping[str, int]) -> TickReport:
    answered = [told for told in called if isinstance(told, PollAnswered)]
    return TickReport(
        claimed=[told.poll for told in called],
        changed=[told.poll for told in answered if told.outcome == "changed"],
        unchanged=[told.poll for told in answered if told.outcome in ("unchanged", "not_modified")],
        failed=[FailedPoll(told.poll, told.error) for told in called if isinstance(told, PollFailed)],
        deliveries={outcome: settled.get(outcome, 0) for outcome in DELIVERY_OUTCOMES},
    )
