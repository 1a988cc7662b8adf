"""One thread that owns one connection, and the jobs that event loops hand to it.

A job is a function and its argument; what comes of it is told to the event loop that waits, with one call for
each loop however many jobs there were.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import apsw

from bide.errors import ProviderError
from bide.providers.sqlite.faults import explained

LINGER_S = 0.01
"""Seconds that jobs without haste wait for others to share a sync of the disk with."""

MOST_JOBS = 1000
"""Jobs that are run together, so that one transaction stays short."""


class Job:
    """Something to run on the thread. ``batched``: ``call`` takes a list of arguments and answers a list."""

    __slots__ = ("argument", "batched", "call", "error", "future", "lane", "loop", "result")

    def __init__(self, lane: Lane, call: Callable[..., Any], argument: Any, *, batched: bool = False) -> None:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.lane = lane
        self.call = call
        self.argument = argument
        self.batched = batched
        self.future = future
        self.loop = future.get_loop()
        self.result: Any = None
        self.error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """It failed; errors of SQLite are explained."""
        self.error = _explained(error, self.lane.path)

    def tell(self) -> None:
        """Tell who waits; to be called on its event loop."""
        self.lane.untold.discard(self)
        if self.future.done():  # cancelled: nobody waits any more
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Lane(ABC):
    """A thread with a connection. Subclasses say how it is opened and how jobs are run on it."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._haste = threading.Event()
        """Set while there is a job that should not wait."""
        self.untold: set[Job] = set()
        """Jobs whose callers do not know what came of them yet."""
        self.transactions = 0
        """Transactions begun so far. Only the thread counts."""

    @abstractmethod
    def connect(self) -> apsw.Connection:
        """Open the connection; called on the thread."""

    @abstractmethod
    def run(self, connection: apsw.Connection, jobs: list[Job]) -> None:
        """Run ``jobs``, leaving in each what came of it, and tell them. Raises nothing."""

    async def open(self) -> None:
        """Start the thread and open its connection, unless that is done. Raises what opening raised."""
        if self._thread is not None:
            return
        job = self.job(lambda _: None, None)
        self._closing.clear()
        self._thread = threading.Thread(target=self._serve, args=(job,), name=self._name, daemon=True)
        self._thread.start()
        await job.future

    async def close(self) -> None:
        """Run what was handed in, close the connection and end the thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._closing.set()
        self._jobs.put(None)
        self._haste.set()
        await asyncio.to_thread(thread.join)

    def submit(
        self, call: Callable[..., Any], argument: Any, *, batched: bool = False, haste: bool = True
    ) -> asyncio.Future[Any]:
        """Hand a job to the thread; the future is done when the job is, durably.

        One without ``haste`` may wait for others for up to :data:`LINGER_S`.
        """
        if self._thread is None:
            raise ProviderError(f"{self.path}: the provider is not open")
        job = self.job(call, argument, batched=batched)
        self._jobs.put(job)
        if haste:
            self._haste.set()
        return job.future

    def job(self, call: Callable[..., Any], argument: Any, *, batched: bool = False) -> Job:
        """A job that will be told about on the running event loop."""
        job = Job(self, call, argument, batched=batched)
        self.untold.add(job)
        return job

    def _serve(self, opening: Job) -> None:
        try:
            connection = self.connect()
        except BaseException as error:
            opening.fail(error)
            self._thread = None
            tell([opening])
            return
        tell([opening])
        try:
            while jobs := self._next_jobs():
                self.run(connection, jobs)
        finally:
            connection.close()

    def _next_jobs(self) -> list[Job]:
        """Everything that waits; blocks for the first. Nothing more once closed."""
        first = self._jobs.get()
        if first is None:
            return []
        self._haste.wait(LINGER_S)
        self._haste.clear()
        jobs = [first]
        with contextlib.suppress(queue.Empty):
            while len(jobs) < MOST_JOBS:
                job = self._jobs.get_nowait()
                if job is None:
                    self._jobs.put(None)
                    break
                jobs.append(job)
        return jobs


def _explained(error: BaseException, path: Path) -> BaseException:
    """``error`` as callers see it: what SQLite raised is explained."""
    match error:
        case apsw.Error():
            explanation: BaseException = explained(error, path)
        case UnicodeEncodeError():
            explanation = ProviderError(f"{path}: text with a lone surrogate cannot be stored ({error})")
        case _:
            return error
    explanation.__cause__ = error
    return explanation


def tell(
    jobs: Iterable[Job],
    also: Iterable[asyncio.AbstractEventLoop] = (),
    ring: Callable[[asyncio.AbstractEventLoop], None] | None = None,
) -> None:
    """Tell each event loop, with one call, what came of its jobs; and ``ring`` there and on the loops of ``also``."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {loop: [] for loop in also}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, told in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits there any more
            loop.call_soon_threadsafe(_tell_loop, loop, told, ring)


def _tell_loop(
    loop: asyncio.AbstractEventLoop,
    jobs: list[Job],
    ring: Callable[[asyncio.AbstractEventLoop], None] | None,
) -> None:
    for job in jobs:
        job.tell()
    if ring is not None:
        ring(loop)
