"""What the hot statements look at does not grow with what is done, and errors of SQLite are told clearly."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from bide.errors import ProviderCorrupt, ProviderError
from bide.providers.sqlite import (
    candidates,
    enqueueing,
    fetching,
    inspection,
    items,
    mending,
    occurring,
    polls,
    recording,
    settling,
)
from bide.providers.sqlite.faults import explained
from bide.providers.sqlite.migrations import migrate

CLAIM = {"schedules": '{"eu.price":[60000,90000,1]}', "now": 1, "slack": 0, "limit": 1}
PAGE = {"queue": "q", "after": None, "newest": 1, "name": None, "limit": 1, "now": 1}
ROW = ("a",) * 17
STATEMENTS = [
    (polls._CLAIMABLE, CLAIM),
    (polls._CLAIM, {"claimed": "[]", "now": 1}),
    (recording._SAME, ("[]",)),
    (recording._UNCHANGED, ("[]", 1)),
    (recording._KEPT, ("a", 1)),
    (recording._FAILED, ("[]", 1)),
    (enqueueing._LAST, ()),
    (enqueueing._WAS_THERE, ("a", 1)),
    (enqueueing._HOLDER, ("q", "n", "k")),
    (enqueueing._FREE_KEY, (1,)),
    *((statement, ROW * rows) for rows, statement in enqueueing.INSERTS.items()),
    (fetching._LOCK_OVER, (1,)),
    (fetching._ONE_MORE_LENGTH, (1, 1)),
    (fetching._GIVE_BACK, (1, "e", 1)),
    (fetching._PAST_LIFE, (1, 1)),
    (fetching._BECOME_READY, ("[]", 1, 1)),
    (fetching._DOOMED, (1,)),
    (fetching._LOCK, ("[]", "n", "f", 1, 1)),
    (fetching._TAKEN, ("[]",)),
    (fetching._TAKEN_ONE_BY_ONE, ("[]",)),
    (fetching._NEXT, ("[]", "[]", "[]")),
    (candidates._FIRST, ("[]", 1, 1)),
    (candidates._RUNNING, ("[]",)),
    (candidates.KEYS_BEHIND, ("q", "n", "k", "[]", 1)),
    (candidates.KEYS_FROM, ("q", "n", "k", "[]", 1)),
    (candidates._OF_KEYS, ("[]", 1, 1, "q", "n")),
    (settling._HELD, ("[]", 1, "[]")),
    (settling._GONE, ("[]",)),
    (settling._DONE, ("[]", 1)),
    (settling._IS_WAITED_FOR, ("q",)),
    (settling._LIVE, ("1:x", 1)),
    (settling._ABANDON, ("ready", 1, 1, 1, 1, 1, "e", 1)),
    (settling._RENEW, ("[]", 1, 1)),
    (settling._RELEASE, ("f", 1)),
    (items._BURY, (1, "e", 1)),
    (items._FRONT, ("q", "k")),
    (items._NEXT, ("q", "k")),
    (mending._BEGIN_ANEW, ("[]", 1, 1)),
    (mending._TO_DISCARD, ("[]", 1)),
    (mending._OLD_EVENTS, (1, 1)),
    (mending._OLD_ITEMS, (1, 1, 1)),
    (mending._NOT_KEPT, (1, 1)),
    (mending._ENDED_OF, ("q", "done", 1)),
    (mending._LIVING_OF, ("q", 1, 1)),
    (mending._PURGE, ("[]",)),
    (occurring._KEEP, ("n", "r", 1)),
    (occurring._LAST, ("n",)),
    (occurring._HAPPEN, ("n", 1)),
    (inspection._RUNNING, (1,)),
    (f"{inspection._ROW} WHERE id = :id", {"id": "a", "now": 1}),
    *((statement, PAGE) for statement in inspection._ITEMS.values()),
]
SHORT = ("work_running",)
"""Indexes that only hold what is running: they may be read from end to end."""


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    path = tmp_path_factory.mktemp("plans") / "bide.db"
    return migrate(path, synchronous="NORMAL", busy_timeout_ms=1000)


@pytest.mark.parametrize(("statement", "bindings"), STATEMENTS)
def test_no_statement_reads_a_whole_table(
    connection: apsw.Connection, statement: str, bindings: tuple[object, ...]
) -> None:
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)]
    scans = [step for step in plan if step.startswith("SCAN ") and "VIRTUAL TABLE" not in step]
    tables = ("work_items", "events", "polls", "subscriptions", "schedules", " w ")
    assert [
        step
        for step in scans
        if any(table in f"{step} " for table in tables) and not any(index in step for index in SHORT)
    ] == []


FIRST = (candidates._FIRST, candidates._OF_KEYS, candidates.KEYS_FROM, candidates.KEYS_BEHIND)


@pytest.mark.parametrize(
    ("statement", "bindings"), [(statement, given) for statement, given in STATEMENTS if statement in FIRST]
)
def test_what_comes_first_is_read_in_order_and_not_sorted(
    connection: apsw.Connection, statement: str, bindings: tuple[object, ...]
) -> None:
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)]
    assert [step for step in plan if "TEMP B-TREE" in step] == []


@pytest.mark.parametrize(
    ("error", "kind", "retryable", "message"),
    [
        (apsw.BusyError("locked"), ProviderError, True, "another process keeps it locked"),
        (apsw.LockedError("locked"), ProviderError, True, "it is locked"),
        (apsw.FullError("full"), ProviderError, True, "the disk is full"),
        (apsw.IOError("I/O"), ProviderError, True, "reading or writing failed"),
        (apsw.NoMemError("memory"), ProviderError, True, "no memory left"),
        (apsw.InterruptError("stop"), ProviderError, True, "interrupted"),
        (apsw.ReadOnlyError("readonly"), ProviderError, False, "cannot be written"),
        (apsw.CantOpenError("open"), ProviderError, False, "cannot be opened"),
        (apsw.PermissionsError("no"), ProviderError, False, "access was refused"),
        (apsw.NotADBError("what"), ProviderCorrupt, False, "not an SQLite database"),
        (apsw.CorruptError("malformed"), ProviderCorrupt, False, "the database is damaged"),
        (apsw.SQLError("near x"), ProviderError, False, "refused a statement"),
    ],
)
def test_every_error_names_the_file_and_what_to_do(
    error: apsw.Error, kind: type[ProviderError], retryable: bool, message: str
) -> None:
    explanation = explained(error, Path("/data/bide.db"))
    assert type(explanation) is kind
    assert explanation.retryable is retryable
    assert str(explanation).startswith("/data/bide.db: ")
    assert message in str(explanation)
    assert str(error) in str(explanation)
