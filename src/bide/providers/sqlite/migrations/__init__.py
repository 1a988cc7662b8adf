"""Opening a file and bringing its tables up to this version.

Migrations are the numbered ``.sql`` files of this folder. Several programs may start at once: the one that has the
write lock looks again and applies what is missing in one transaction, so that a file is either as it was or wholly
migrated. Nothing is written to a file that is not ours, that is damaged or that a newer version wrote.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TypeVar

import apsw

from bide import __version__
from bide.errors import ProviderCorrupt, ProviderError, ProviderNewer

WAL_RETRIES = 100
WAL_PAUSE_S = 0.05
"""Switching to the write-ahead log needs the file for itself for a moment, and SQLite does not wait for that."""

CACHE_KIB = 16 * 1024
"""Pages of the file that are kept in memory: all that is in use, for tens of thousands of polls."""

CHECKPOINT_PAGES = 4000
"""Pages in the write-ahead log before it is folded into the file: pages that change often are then folded once
for many changes."""

LOG_BYTES = 64 * 1024 * 1024
"""What is left of a write-ahead log that a long reader made grow."""

_Answer = TypeVar("_Answer")

_KNOWN_TABLES = frozenset({"polls", "subscriptions", "events", "work_items", "schedules", "meta"})


@cache
def migrations() -> dict[int, str]:
    """SQL by schema version, in order."""
    files = [entry for entry in resources.files(__name__).iterdir() if entry.name.endswith(".sql")]
    numbered = {int(entry.name.partition("_")[0]): entry.read_text(encoding="utf-8") for entry in files}
    return dict(sorted(numbered.items()))


def migrate(path: Path, *, synchronous: str, busy_timeout_ms: int) -> apsw.Connection:
    """A connection to ``path`` with its tables as this version needs them; the file is made where there is none."""
    _check_place(path)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        connection.set_busy_timeout(busy_timeout_ms)
        version = version_of(connection, path)
        if connection.readonly("main"):
            raise ProviderError(
                f"{path}: it cannot be written; check the permissions of the file and of its folder, "
                "and that neither is mounted read-only"
            )
        _use_write_ahead_log(connection, path)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA temp_store = MEMORY")  # else large statements write files beside
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        if version < max(migrations()):
            _apply_missing(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise ProviderError(f"{path}: it is a folder; name a file in it, such as {path / 'bide.db'}")
    if not path.parent.is_dir():
        raise ProviderError(f"{path}: the folder {path.parent} does not exist; create it first")


def version_of(connection: apsw.Connection, path: Path) -> int:
    """The last migration of the file, 0 for one without tables of ours. Refuses what is not for us.

    Raises :class:`~bide.errors.ProviderError` for what is another program's, damaged, or written by a newer version.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info('meta')")]
    if "schema_version" not in columns:
        taken = sorted(tables & _KNOWN_TABLES)
        if taken:
            raise ProviderError(
                f"{path}: it is the database of another program (it has a table {taken[0]!r} that is not bide's); "
                "nothing was changed; give bide a file of its own"
            )
        return 0
    found = connection.execute("SELECT schema_version, written_by FROM meta").fetchone()
    if found is None:
        raise ProviderCorrupt(
            f"{path}: its table 'meta' is empty, so nobody knows which version wrote it; "
            "it was left as it is; restore it from a backup, or move it away and start with a new one"
        )
    version, written_by = found
    newest = max(migrations())
    if version > newest:
        raise ProviderNewer(
            f"{path}: it was written by bide {written_by} (schema {version}), and this is bide {__version__}, "
            f"which knows schemas up to {newest}; nothing was changed; "
            f"upgrade to bide {written_by} or newer, or use another file"
        )
    return int(version)


def _use_write_ahead_log(connection: apsw.Connection, path: Path) -> None:
    mode = _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
    if mode != ("wal",):
        raise ProviderError(
            f"{path}: its file system cannot hold a write-ahead log; use a file on a local disk"
        )


def _apply_missing(connection: apsw.Connection, path: Path) -> None:
    _patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        version = version_of(connection, path)  # again: another program may have been first
        missing = {number: script for number, script in migrations().items() if number > version}
        for script in missing.values():
            connection.execute(script)
        if missing:
            connection.execute("DELETE FROM meta")
            connection.execute("INSERT INTO meta VALUES (?, ?)", (max(missing), __version__))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _patiently(attempt: Callable[[], _Answer]) -> _Answer:
    """What ``attempt`` answers, tried again while the file is busy."""
    for _ in range(WAL_RETRIES):
        try:
            return attempt()
        except apsw.BusyError:
            threading.Event().wait(WAL_PAUSE_S)
    return attempt()
