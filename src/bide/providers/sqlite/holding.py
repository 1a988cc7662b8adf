"""A transaction of a caller's on the writing thread: nothing else is written while it is open, so not for long."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import apsw

from bide.clock import Clock
from bide.core.durations import format_duration
from bide.errors import ProviderError
from bide.providers.sqlite.lane import Job, Lane, tell

if TYPE_CHECKING:
    from bide.providers.sqlite.writer import Transaction

_A = TypeVar("_A")
_R = TypeVar("_R")

LONGEST = timedelta(seconds=30)
"""For how long a transaction may be open: everybody else who writes waits for it."""

TOO_LONG = (
    f"it was open for longer than {format_duration(LONGEST)} and was rolled back, since all others wait for it; "
    "do what takes long before it or after it"
)

_ENDED_ITSELF = (
    "one of its statements ended it, and nothing of it was kept; "
    "leave COMMIT and ROLLBACK to the end of its block"
)


@dataclass(frozen=True, slots=True)
class _Step:
    """Something to do in it, and who waits for it; ``end`` is where it ends with that."""

    job: Job | None
    end: Literal["commit", "roll back"] | None = None
    why: str = "it has ended"


class Held:
    """A transaction that is open, or will be in its turn: what its caller does goes through it to the thread."""

    def __init__(self, lane: Lane, clock: Clock) -> None:
        self._lane = lane
        self._clock = clock
        self._steps: queue.SimpleQueue[_Step] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._over: str | None = None
        self._is_ending = False
        self._was_lost = False
        self._refused_commit = False

    def run(self, call: Callable[[Transaction, _A], _R], argument: _A) -> asyncio.Future[_R]:
        """Run ``call(transaction, argument)`` in it. Raises ``ProviderError`` where it has ended."""
        return self._submit(self._lane.job(call, argument))

    def commit(self) -> asyncio.Future[None]:
        """Keep everything. Raises ``ProviderError`` where it has ended already."""
        return self._submit(self._lane.job(_nothing, None), "commit")

    def roll_back(self) -> asyncio.Future[None]:
        """Keep nothing. Raises ``ProviderError`` where it has ended already."""
        return self._submit(self._lane.job(_nothing, None), "roll back")

    def end(self, why: str) -> None:
        """Roll it back whatever its caller does, who is told ``why``. From any thread."""
        self._steps.put(_Step(None, "roll back", why))

    def _submit(self, job: Job, end: Literal["commit", "roll back"] | None = None) -> asyncio.Future[Any]:
        with self._lock:
            if self._over is not None:
                job.fail(ProviderError(f"{self._lane.path}: the transaction cannot be used: {self._over}"))
                job.tell()
            else:
                self._steps.put(_Step(job, end))
        return job.future

    # --- on the thread -----------------------------------------------------------------------------------

    def serve(self, transaction: Transaction) -> bool:
        """Do what the caller says until it ends; whether work became eligible by it."""
        connection = transaction.connection
        connection.set_commit_hook(self._refuse_commit)
        connection.set_rollback_hook(self._note_loss)
        ends_at = self._clock.monotonic() + LONGEST.total_seconds()
        try:
            while True:
                try:
                    step = self._steps.get(timeout=max(ends_at - self._clock.monotonic(), 0))
                except queue.Empty:
                    step = _Step(None, "roll back", TOO_LONG)
                if step.end is not None:
                    return self._finish(transaction, step)
                if step.job is not None and not self._do(transaction, step.job):
                    return False
        finally:
            self._is_ending = True
            connection.set_commit_hook(None)
            connection.set_rollback_hook(None)

    def _do(self, transaction: Transaction, job: Job) -> bool:
        """One step; whether the transaction lives on."""
        transaction.now = self._clock.utc_ms()
        try:
            job.result = job.call(transaction, job.argument)
        except BaseException as error:
            job.fail(error)
        lives = transaction.connection.in_transaction and not self._was_lost
        if not lives:
            ended_itself = job.error is None or self._refused_commit
            why = _ENDED_ITSELF if ended_itself else f"it was rolled back: {job.error}"
            self._close(transaction, why)
            if ended_itself:
                job.fail(ProviderError(f"{self._lane.path}: the transaction cannot be used: {why}"))
        tell([job])
        return lives

    def _finish(self, transaction: Transaction, step: _Step) -> bool:
        self._is_ending = True
        try:
            transaction.connection.execute("COMMIT" if step.end == "commit" else "ROLLBACK")
        except apsw.Error as error:
            if step.job is not None:
                step.job.fail(error)
        kept = step.end == "commit" and not transaction.connection.in_transaction
        self._close(transaction, step.why)
        if step.job is not None:
            tell([step.job])
        return kept and transaction.wakes

    def _close(self, transaction: Transaction, why: str) -> None:
        """Whoever still wants something of it is told ``why`` it cannot be had."""
        with self._lock:
            self._over = why
        if transaction.connection.in_transaction:
            self._is_ending = True
            transaction.connection.execute("ROLLBACK")
        while not self._steps.empty():
            late = self._steps.get().job
            if late is not None:
                late.fail(ProviderError(f"{self._lane.path}: the transaction cannot be used: {why}"))
                tell([late])

    def _refuse_commit(self) -> bool:
        self._refused_commit = not self._is_ending
        return self._refused_commit

    def _note_loss(self) -> None:
        self._was_lost = self._was_lost or not self._is_ending


def _nothing(_: object, __: None) -> None:
    """What only ends a transaction does nothing in it."""
