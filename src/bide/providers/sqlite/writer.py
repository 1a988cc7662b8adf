"""The one connection that writes: group commit.

Everything that waits is run in one ``BEGIN IMMEDIATE … COMMIT``, so that one sync of the disk serves many callers.
Each function has its own savepoint, so that one failing rolls back alone; functions that take batches are given
all their arguments at once. Fetches that wait are served in the same transaction. Nobody hears of a result before it
is committed. A transaction of a caller's has the connection for itself while it is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from bide.clock import Clock
from bide.errors import ProviderError
from bide.provider import Items
from bide.providers.longpoll import Bell
from bide.providers.sqlite.faults import moved
from bide.providers.sqlite.holding import Held
from bide.providers.sqlite.lane import Job, Lane, tell
from bide.providers.sqlite.migrations import migrate
from bide.providers.sqlite.standing import Offer, Standing

BUSY_TIMEOUT_MS = 5000
"""How long SQLite itself waits for another process to finish its transaction."""

BUSY_RETRIES = 5
"""How often we ask again after that, with a jittered pause, before callers are told."""

BUSY_PAUSE_S = 0.2

Bindings = Sequence[Any] | dict[str, Any]


class Transaction:
    """What a function gets: the connection inside the transaction, and the store's time, ``now``.

    ``wakes`` is set by functions that made work items eligible.

    Statements are compiled once and kept by their text. One with a bare parameter as its LIMIT would be compiled
    again each time, which costs more than running it: they say ``LIMIT 0 + ?``.
    """

    __slots__ = ("connection", "now", "wakes")

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self.connection = connection
        self.now = now
        self.wakes = False

    def rows(self, statement: str, bindings: Bindings = ()) -> list[Any]:
        """Run one statement; all its rows."""
        return self.connection.execute(statement, bindings).fetchall()

    def row(self, statement: str, bindings: Bindings = ()) -> Any:
        """Run one statement; its first row, or None."""
        return self.connection.execute(statement, bindings).fetchone()

    def many(self, statement: str, bindings: Sequence[Bindings]) -> None:
        """Run one statement once for each of ``bindings``."""
        self.connection.executemany(statement, bindings)


class _RolledBack(Exception):
    """SQLite gave up the whole transaction, so what others did in it is gone too."""


class Writer(Lane):
    """The writing thread."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        bell: Bell,
        knock: Callable[[], None],
        standing: Standing,
        synchronous: str,
    ) -> None:
        super().__init__(path, f"bide-sqlite-{path.name}")
        self._clock = clock
        self._standing = standing
        self._bell = bell
        self._knock = knock
        self._synchronous = synchronous
        self._opened: tuple[int, int] | None = None
        self._pausing = threading.Event()
        self._held: Held | None = None

    def hold(self, held: Held) -> asyncio.Future[None]:
        """Open a transaction of a caller's in its turn; the future is done when it is open."""
        return self.submit(_open_for_caller, held)

    async def close(self) -> None:
        self._closing.set()
        if self._held is not None:
            self._held.end("the provider was closed")
        await super().close()

    def connect(self) -> apsw.Connection:
        connection = migrate(self.path, synchronous=self._synchronous, busy_timeout_ms=BUSY_TIMEOUT_MS)
        self._opened = self._identity()
        return connection

    def run(self, connection: apsw.Connection, jobs: list[Job]) -> None:
        together: list[Job] = []
        for job in jobs:
            if job.call is not _open_for_caller:
                together.append(job)
                continue
            self._run_together(connection, together)
            together = []
            self._run_held(connection, job)
        self._run_together(connection, together)

    def _run_together(self, connection: apsw.Connection, jobs: list[Job]) -> None:
        wanted = [job for job in jobs if not job.future.cancelled()]
        wakes = bool(wanted) and self._commit_or_fail(connection, wanted)
        self._tell(jobs, wakes=wakes)

    def _run_held(self, connection: apsw.Connection, opening: Job) -> None:
        """Open the transaction of a caller's and serve it to its end."""
        self._held = held = opening.argument
        try:
            if self._closing.is_set() or opening.future.cancelled():
                raise ProviderError(f"{self.path}: the provider is not open")
            self._begin(connection)
        except BaseException as error:
            opening.fail(error)
            self._tell([opening], wakes=False)
        else:
            self._tell([opening], wakes=False)
            wakes = held.serve(Transaction(connection, self._clock.utc_ms()))
            self._tell([], wakes=wakes)
        finally:
            self._held = None
            self._roll_back(connection)

    def _tell(self, jobs: list[Job], *, wakes: bool) -> None:
        """Tell what came of ``jobs``, and here and in other processes that there may be work."""
        if not wakes:
            tell(jobs)
            return
        tell(jobs, self._bell.loops(), self._bell.ring)
        self._knock()

    def _commit_or_fail(self, connection: apsw.Connection, jobs: list[Job]) -> bool:
        """Run ``jobs`` in one transaction, or one by one where that was lost; whether work became eligible."""
        try:
            return self._commit(connection, jobs)
        except _RolledBack as lost:
            self._roll_back(connection)
            if len(jobs) > 1:
                woken = [self._commit_or_fail(connection, [job]) for job in jobs]
                return any(woken)
            jobs[0].fail(lost.__cause__ or lost)
        except BaseException as error:
            self._roll_back(connection)
            for job in jobs:
                job.fail(error)
        return False

    def _commit(self, connection: apsw.Connection, jobs: list[Job]) -> bool:
        self._begin(connection)
        transaction = Transaction(connection, self._clock.utc_ms())
        groups = _grouped(jobs)
        if len(groups) == 1:
            self._run_alone(transaction, groups[0])
        else:
            for group in groups:
                self._run_beside_others(transaction, group)
        served = self._served(transaction) if transaction.wakes else []
        connection.execute("COMMIT")
        for offer, found in served:
            offer.found = found
        return transaction.wakes

    def _identity(self) -> tuple[int, int] | None:
        """Which file is at the path; None where there is none. SQLite itself would write on without it."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _begin(self, connection: apsw.Connection) -> None:
        if self._identity() != self._opened:
            raise moved(self.path)
        self._roll_back(connection)  # should an earlier one have failed
        for attempt in range(BUSY_RETRIES + 1):
            try:
                connection.execute("BEGIN IMMEDIATE")
            except apsw.BusyError:
                if attempt == BUSY_RETRIES or self._closing.is_set():
                    raise
                self._pausing.wait(BUSY_PAUSE_S * (0.5 + self._clock.draw()))
            else:
                self.transactions += 1
                return

    def _run_alone(self, transaction: Transaction, group: list[Job]) -> None:
        """The only group of its transaction: rolling that back is enough."""
        try:
            _run_group(transaction, group)
        except BaseException as error:
            raise _RolledBack from error

    def _served(self, transaction: Transaction) -> list[tuple[Offer, Items]]:
        try:
            return self._standing.serve(transaction)
        except BaseException as error:
            raise _RolledBack from error

    def _run_beside_others(self, transaction: Transaction, group: list[Job]) -> None:
        connection = transaction.connection
        connection.execute("SAVEPOINT job")
        try:
            _run_group(transaction, group)
        except BaseException as error:
            if not connection.in_transaction:
                raise _RolledBack from error
            connection.execute("ROLLBACK TO job")
            if len(group) == 1:
                group[0].fail(error)
        else:
            connection.execute("RELEASE job")
            return
        connection.execute("RELEASE job")
        if len(group) > 1:
            for job in group:
                self._run_beside_others(transaction, [job])

    def _roll_back(self, connection: apsw.Connection) -> None:
        with contextlib.suppress(apsw.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _open_for_caller(_: Transaction, __: Held) -> None:
    """Marks the jobs that open a transaction of a caller's."""


def _grouped(jobs: list[Job]) -> list[list[Job]]:
    """``jobs`` in order, those of one batched function together at the place of the first."""
    groups: list[list[Job]] = []
    batches: dict[Callable[..., Any], list[Job]] = {}
    for job in jobs:
        if not job.batched:
            groups.append([job])
        elif job.call in batches:
            batches[job.call].append(job)
        else:
            batches[job.call] = [job]
            groups.append(batches[job.call])
    return groups


def _run_group(transaction: Transaction, group: list[Job]) -> None:
    for job in group:
        job.error = None  # of an earlier transaction that was lost
    first = group[0]
    if not first.batched:
        first.result = first.call(transaction, first.argument)
        return
    results = first.call(transaction, [job.argument for job in group])
    for job, result in zip(group, results, strict=True):
        job.result = result
