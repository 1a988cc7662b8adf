"""What an app does with its tasks: finds them, knows submitted items, and makes workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, Protocol
from weakref import WeakSet

from bide.clock import Clock, is_cancelled
from bide.core.declaration import Declarations
from bide.core.names import nearest
from bide.core.work import TaskDeclaration
from bide.errors import BideError, UnknownName
from bide.provider import Provider, Transaction
from bide.recorder import Recorder
from bide.task import Handle, Task
from bide.telemetry import Telemetry
from bide.worker import Worker


class Runner(Protocol):
    """What runs tasks in this process: a worker, or the engine of ``run``."""

    def submitted(self) -> None:
        """Something was submitted here: look soon."""
        ...

    def in_hand(self) -> dict[str, int]:
        """How many items are fetched and not handled yet, by the queues that they are fetched from together."""
        ...

    def stop_now(self) -> None:
        """Cut the grace period of a stop short."""
        ...


class Tasks(Recorder):
    """The part of an app that is about tasks."""

    clock: Clock
    telemetry: Telemetry
    environment: Mapping[str, str]

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.home = self
        self.flags: Mapping[str, str | None] = {}
        """Settings of workers that a command line gave, as texts by name; they outrank every other layer."""
        self.count_every: timedelta | None = None
        """How often the items of queues are counted while something runs, for whoever watches; None: never."""
        self.requested_since: int | None = None
        """When the app was first opened (ms since the epoch): since then :meth:`requests` counts."""
        self._requested: Counter[str] = Counter()
        """What was asked of earlier providers."""
        self._counted: Provider | None = None
        self._provider: Provider | None = None
        self._closing: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runners: WeakSet[Runner] = WeakSet()

    @property
    def declarations(self) -> Declarations:
        """What was declared, compiled. Raises ``DeclarationError`` with every mistake."""
        raise NotImplementedError

    @property
    def provider(self) -> Provider:
        """The open provider."""
        if self._provider is None:
            raise not_open()
        return self._provider

    def requests(self) -> Counter[str]:
        """Requests that this app made of its store, by class, since it was first opened. From any thread."""
        counted = Counter(self._requested)
        if self._counted is not None:
            counted.update(self._counted.requests())
        return counted

    def _count(self, provider: Provider) -> None:
        """``provider`` is what the app asks from now on; what an earlier one was asked still counts."""
        if self._counted is None:
            self.requested_since = self.clock.utc_ms()
        self._requested = self.requests()
        self._counted = provider

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the app was opened in."""
        if self._loop is None:
            raise not_open()
        return self._loop

    def declared_task(self, name: str) -> TaskDeclaration:
        """What was declared of a task.

        Raises ``UnknownName``, ``DeclarationError`` with every mistake, and ``BideError`` for a task that was
        declared while the app was open already.
        """
        tasks = self.declarations.tasks
        if name in tasks:
            return tasks[name]
        if any(task.name == name for task in self._tasks):
            raise BideError(f"task {name!r} was declared after the app was opened; declare it before that")
        raise UnknownName("task", name, nearest(name, tasks))

    def task_named(self, name: str) -> Task[..., Any]:
        """The task of that name, to submit it, also where a file declares it. Raises as :meth:`declared_task`."""
        return Task(name, self.declared_task(name).function, self, {})

    def handle(self, id: str) -> Handle:
        """The handle of an item that was submitted before, here or elsewhere."""
        return Handle(self, id)

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction of the store's own, for ``submit(..., transaction=...)`` and statements beside it.

        Committed at the end of the block, rolled back by an exception. On SQLite the file is this transaction's alone
        while it lives; one that lives for longer than 30 seconds is rolled back. Raises ``ProviderError``.
        """
        return self.provider.transaction()

    def worker(self, queues: Sequence[str] | None = None, concurrency: int | None = None) -> Worker:
        """A worker of ``queues`` (None: every one) that handles ``concurrency`` (20) items at a time.

        Both may also be given by ``bide.toml``, the environment and flags, each of which outranks code.
        """
        worker = Worker(self, queues, concurrency)
        self._runners.add(worker)
        return worker

    def in_hand(self) -> dict[str, int]:
        """How many items this process has fetched and not handled yet, by queues that are fetched from together."""
        in_hand: Counter[str] = Counter()
        for runner in list(self._runners):
            in_hand.update(runner.in_hand())
        return dict(in_hand)

    def submitted(self) -> None:
        """A task was submitted: whoever runs tasks in this process looks for it, in the app's own event loop."""
        if self._loop is None or asyncio.get_running_loop() is self._loop:
            self._wake_runners()
        else:
            self._loop.call_soon_threadsafe(self._wake_runners)

    def _wake_runners(self) -> None:
        for runner in self._runners:
            runner.submitted()

    def stop_now(self) -> None:
        """Cut the grace period of a stop short, and the closing of the store, where that is under way."""
        for runner in self._runners:
            runner.stop_now()
        if self._closing is not None:
            self._closing.cancel()

    async def _close(self, provider: Provider) -> None:
        self._closing = asyncio.ensure_future(provider.close())
        try:
            await self._closing
        except asyncio.CancelledError:
            if is_cancelled():
                raise
        finally:
            self._closing = None


def not_open() -> BideError:
    """The error of what needs an open app."""
    return BideError("the app is not open: use `async with app.open():`")
