"""Work: the dispatcher of tasks, and the periodic ones, over one provider."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from bide.clock import Clock
from bide.core.declaration import Declarations
from bide.core.pacing import PollingStrategy
from bide.engine.dispatcher import Dispatcher, DispatcherSettings
from bide.engine.loops import Loop, until
from bide.engine.outcome import Outcome
from bide.engine.periodic import Periodic
from bide.engine.tasks import TaskHandler
from bide.engine.telling import task_settled
from bide.provider import Limit, Provider, WorkItem
from bide.telemetry import Telemetry


class TaskWork:
    """Items of ``queues`` whose task is declared, handled; and the periodic tasks of these queues, enqueued.

    Items of other names are never fetched. They wait for a process that declares their task.
    """

    def __init__(
        self,
        provider: Provider,
        declarations: Declarations,
        handler: TaskHandler,
        *,
        queues: Collection[str],
        settings: DispatcherSettings,
        strategy: PollingStrategy,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._pauses = not settings.long_poll_timeout
        tasks = declarations.tasks.values()
        self._periodic = Periodic(
            provider,
            [task for task in tasks if task.queue in queues],
            tick=declarations.tick,
            clock=clock,
            telemetry=telemetry,
        )
        self._dispatcher = Dispatcher(
            provider,
            handler.handle,
            queues=queues,
            places={task.name: task.max_concurrent or settings.concurrency for task in tasks},
            clock=clock,
            telemetry=telemetry,
            told=self._tell,
            lock_timeouts=_lock_timeouts(declarations),
            limits=_limits(declarations, queues),
            settings=settings,
            strategy=strategy,
        )

    @property
    def loops(self) -> tuple[Loop, ...]:
        """What runs: the dispatcher, and what lets periodic tasks happen if there are any."""
        if not self._periodic:
            return (self._dispatcher.run,)
        return (self._dispatcher.run, lambda stop: until(stop, self._periodic.run()))

    def in_hand(self) -> dict[str, int]:
        """How many items are fetched and not handled yet, by the queues that they are fetched from together."""
        return self._dispatcher.in_hand()

    def submitted(self) -> None:
        """Something was submitted in this process: look at once, where no fetch waits in the store for it."""
        if self._pauses:
            self._dispatcher.wake()

    def stop_now(self) -> None:
        """Cut the grace period short."""
        self._dispatcher.stop_now()

    def _tell(self, item: WorkItem, outcome: Outcome, lost: bool, elapsed_s: float) -> None:
        if self._telemetry.heard:
            now_ms = self._clock.utc_ms()
            self._telemetry.emit(task_settled(item, outcome, lost, elapsed_s, now_ms=now_ms))


def queues_of(declarations: Declarations) -> list[str]:
    """Every queue that a task is in, and every one that was declared, by name."""
    return sorted({task.queue for task in declarations.tasks.values()} | declarations.queues.keys())


def _lock_timeouts(declarations: Declarations) -> dict[str, timedelta]:
    timeouts = {name: task.lock_timeout for name, task in declarations.tasks.items()}
    return {name: timeout for name, timeout in timeouts.items() if timeout is not None}


def _limits(declarations: Declarations, queues: Collection[str]) -> dict[str, Limit]:
    declared = [queue for name, queue in declarations.queues.items() if name in queues]
    return {
        queue.name: Limit(queue.limit, queue.per_key)
        for queue in declared
        if queue.limit is not None or queue.per_key is not None
    }
