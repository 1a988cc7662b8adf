"""Workers: what runs an app's tasks, with settings from every layer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from bide.clock import Clock
from bide.config.options import WorkerRunOptions
from bide.config.worker import WorkerSettings, worker_settings
from bide.core.declaration import Declarations
from bide.core.names import nearest
from bide.core.template import hiding
from bide.engine.counting import Counting
from bide.engine.dispatcher import DispatcherSettings
from bide.engine.loops import Loop, run_together, until
from bide.engine.tasks import TaskHandler
from bide.engine.upkeep import Upkeep
from bide.engine.working import TaskWork, queues_of
from bide.errors import BideError, UnknownName
from bide.provider import Provider
from bide.telemetry import Telemetry


class Employer(Protocol):
    """What a worker needs of its app."""

    clock: Clock
    telemetry: Telemetry
    environment: Mapping[str, str]
    flags: Mapping[str, str | None]
    before_hooks: list[Callable[..., Any]]
    after_hooks: list[Callable[..., Any]]
    count_every: timedelta | None

    @property
    def provider(self) -> Provider:
        """The open provider. Raises ``BideError`` where the app is not open."""
        ...

    @property
    def declarations(self) -> Declarations:
        """What was declared. Raises ``DeclarationError`` with every mistake."""
        ...

    def raw(self) -> dict[str, Any]:
        """What was declared, as the tables of a file."""
        ...


class Worker:
    """Runs the tasks of an app's queues, and its periodic tasks."""

    def __init__(self, app: Employer, queues: Sequence[str] | None, concurrency: int | None) -> None:
        self._app = app
        self._queues = queues
        self._concurrency = concurrency
        self._work: TaskWork | None = None

    async def run(
        self, options: WorkerRunOptions | None = None, *, stopping: asyncio.Event | None = None
    ) -> None:
        """Run until ``stopping`` is set (None: until cancelled), then stop gracefully.

        At a stop nothing more is taken in, handlers under way get the grace, and are then cancelled and given back.
        Raises ``BideError`` where there is no task, where the app is not open and where this worker runs already,
        ``UnknownName`` for a queue that nobody declared, ``DeclarationError`` for a setting that is wrong, and
        ``ProviderError`` where the provider refuses for good.
        """
        if self._work is not None:
            raise BideError("this worker runs already; make another one with app.worker()")
        app = self._app
        upkeep = upkeep_of(app)
        settings = worker_settings(
            app.raw(),
            app.environment,
            flags=app.flags,
            options=options,
            queues=self._queues,
            concurrency=self._concurrency,
        )
        require_queues(app.declarations, settings)
        self._work = work = task_work(app, settings)
        try:
            await upkeep.begin()
            await run_together(
                stopping or asyncio.Event(),
                app.telemetry,
                *work.loops,
                lambda stop: until(stop, upkeep.run()),
                *counting_of(app),
            )
        finally:
            self._work = None

    def in_hand(self) -> dict[str, int]:
        """How many items are fetched and not handled yet, by the queues that they are fetched from together."""
        return {} if self._work is None else self._work.in_hand()

    def submitted(self) -> None:
        """Something was submitted in this process: look soon."""
        if self._work is not None:
            self._work.submitted()

    def stop_now(self) -> None:
        """Cut the grace period of a stop short."""
        if self._work is not None:
            self._work.stop_now()


def require_queues(declarations: Declarations, settings: WorkerSettings) -> None:
    """Raise ``UnknownName`` for a queue of ``settings`` that nobody declared."""
    known = queues_of(declarations)
    for queue in settings.queues or ():
        if queue not in known:
            raise UnknownName("queue", queue, nearest(queue, known))


def task_work(app: Employer, settings: WorkerSettings) -> TaskWork:
    """The work that ``settings`` describe. Raises ``BideError`` where there is no task."""
    declarations = app.declarations
    if not declarations.tasks:
        raise BideError(
            "no task is declared, so there is nothing for a worker to do; declare one with @app.task"
        )
    handler = TaskHandler(
        declarations.tasks,
        clock=app.clock,
        places=settings.concurrency,
        lock_timeout=settings.lock_timeout,
        before=app.before_hooks,
        after=app.after_hooks,
        hide=hiding(declarations.variables, app.environment),
    )
    return TaskWork(
        app.provider,
        declarations,
        handler,
        queues=settings.queues or queues_of(declarations),
        settings=DispatcherSettings(
            concurrency=settings.concurrency,
            lock_timeout=settings.lock_timeout,
            long_poll_timeout=settings.long_poll_timeout,
            min_poll_interval=settings.min_poll_interval,
            grace=settings.grace,
        ),
        strategy=settings.strategy,
        clock=app.clock,
        telemetry=app.telemetry,
    )


def upkeep_of(app: Employer) -> Upkeep:
    """Pruning alone: a worker has no subscriptions to speak for."""
    return Upkeep(
        app.provider,
        (),
        retention=app.declarations.retention,
        tick=app.declarations.tick,
        living=lambda living: None,
        clock=app.clock,
        telemetry=app.telemetry,
    )


def counting_of(app: Employer) -> list[Loop]:
    """What counts the items of queues, where somebody wants to know."""
    if app.count_every is None:
        return []
    return [Counting(app.provider, app.count_every, clock=app.clock, telemetry=app.telemetry).run]
