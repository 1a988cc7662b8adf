"""A second connection that only reads, so that listings never hold up a write."""

from __future__ import annotations

from pathlib import Path

import apsw

from bide.clock import Clock
from bide.providers.sqlite.lane import Job, Lane, tell
from bide.providers.sqlite.writer import BUSY_TIMEOUT_MS, Transaction


class Reader(Lane):
    """The reading thread. Each job sees one state of the store."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, f"bide-sqlite-read-{path.name}")
        self._clock = clock

    def connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.execute("PRAGMA query_only = ON")
        return connection

    def run(self, connection: apsw.Connection, jobs: list[Job]) -> None:
        for job in jobs:
            try:
                connection.execute("BEGIN")
                self.transactions += 1
                job.result = job.call(Transaction(connection, self._clock.utc_ms()), job.argument)
                connection.execute("COMMIT")
            except BaseException as error:
                job.fail(error)
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        tell(jobs)
