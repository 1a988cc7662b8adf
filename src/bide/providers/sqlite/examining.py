"""Is a file, or the place for one, as SQLite and bide need it? Tried out in a folder of its own beside the file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import apsw

from bide.clock import Clock
from bide.core.findings import Finding
from bide.errors import ProviderError
from bide.providers.examining import in_ms, median_ms, of_error
from bide.providers.sqlite.faults import explained
from bide.providers.sqlite.migrations import LOG_BYTES, migrations, version_of
from bide.providers.sqlite.mounts import file_system_of
from bide.providers.sqlite.watching import Inotify

WAL_SOUND_SINCE = (3, 51, 3)
"""Before it, several writing connections could damage a file when the write-ahead log began anew
(https://www.sqlite.org/wal.html, "the WAL-reset bug")."""

LEAST_FREE = 256 * 1024 * 1024
"""Bytes of free space below which a disk will soon be full."""

SLOW_COMMIT_MS = 20.0

CHECK_S = 20.0
"""Seconds for looking through a file; a larger one is not looked through to its end."""

QUICK_CHECK = "PRAGMA quick_check(3)"

LOCKED_MS = 2000
"""For how long another process may keep a file locked before it is said."""

_MIB = 1024 * 1024
_R = TypeVar("_R")


async def examine(address: str, folder: Path, clock: Clock) -> AsyncGenerator[Finding, None]:
    """What there is to say of the file that ``address`` names; it is not made where there is none."""
    path = folder / unquote(urlsplit(address).path.removeprefix("/"))
    yield _library()
    place = _place(path)
    yield place
    if place.judgement == "refused":
        return
    yield _file_system(path.parent)
    yield _free_space(path.parent)
    with _trial_folder(path.parent) as trial:
        async for finding in _tried(trial, clock):
            yield finding
    if not path.exists():
        yield Finding("file", "good", "it is not there yet; the first start makes it")
        return
    async for finding in _looked_at(path, clock):
        yield finding


def _library() -> Finding:
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) >= WAL_SOUND_SINCE:
        return Finding("library", "good", f"SQLite {version}")
    return Finding(
        "library",
        "doubtful",
        f"SQLite {version} may damage a file that several processes write",
        "run pip install --upgrade apsw",
    )


def _place(path: Path) -> Finding:
    folder = path.parent
    if path.is_dir():
        step = f"name a file in it, such as {path / 'bide.db'}"
        return Finding("place", "refused", f"{path} is a folder", step)
    if not folder.is_dir():
        return Finding("place", "refused", f"the folder {folder} does not exist", "create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(
            "place",
            "refused",
            f"the folder {folder} cannot be written, and SQLite keeps two files beside the database",
            "let this user write there, or name a file elsewhere",
        )
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return Finding("place", "refused", f"{path} cannot be read and written", "check its permissions")
    return Finding("place", "good", str(path))


def _file_system(folder: Path) -> Finding:
    found = file_system_of(folder)
    if found is None:
        return Finding("file system", "unknown", "this system does not say what kind it is")
    if found.is_remote:
        return Finding(
            "file system",
            "doubtful",
            f"{found.kind} is on another machine, where SQLite's locks and its log cannot be relied on",
            "use a file on a local disk, or PostgreSQL for several machines",
        )
    if found.is_volatile:
        return Finding(
            "file system",
            "doubtful",
            f"{found.kind} is kept in memory: it is gone when the machine stops",
            "use a file on a disk",
        )
    return Finding("file system", "good", found.kind)


def _free_space(folder: Path) -> Finding:
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    found = f"{free // _MIB:,} MiB free"
    if free < LEAST_FREE:
        return Finding("space", "doubtful", found, "make room; a full disk stops every write", free, "bytes")
    return Finding("space", "good", found, "", free, "bytes")


# --- tried out -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _trial_folder(folder: Path) -> Iterator[Path]:
    """A folder to try things in, which is gone at the end, however that comes."""
    trial = Path(tempfile.mkdtemp(prefix=".bide-doctor-", dir=folder))
    try:
        yield trial
    finally:
        shutil.rmtree(trial, ignore_errors=True)


async def _tried(trial: Path, clock: Clock) -> AsyncIterator[Finding]:
    """What a new file in this place is like."""
    file = trial / "trial.db"
    try:
        connection = apsw.Connection(str(file))
    except apsw.Error as error:
        yield of_error("writing", explained(error, file))
        return
    with contextlib.closing(connection):
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != ("wal",):
            yield Finding(
                "write-ahead log", "refused", "the file system cannot hold one", "use a file on a local disk"
            )
            return
        yield Finding("write-ahead log", "good", "it can be had")
        connection.execute("PRAGMA synchronous = FULL; CREATE TABLE trial (at INTEGER)")
        commit = _on_thread(lambda: connection.execute("INSERT INTO trial VALUES (1)").fetchall())
        yield _commits(await median_ms(clock, commit))
        yield _wake_ups(trial / "trial.db-wal")


def _commits(ms: float) -> Finding:
    found = f"{in_ms(ms)} until a commit is on disk (median of 21)"
    if ms > SLOW_COMMIT_MS:
        step = (
            "use a faster disk, or ?synchronous=normal where the last moments before a power cut may be lost"
        )
        return Finding("commit", "doubtful", found, step, ms, "ms")
    return Finding("commit", "good", found, "", ms, "ms")


def _wake_ups(log: Path) -> Finding:
    try:
        Inotify().watch(log)
    except OSError as error:
        return Finding(
            "wake-ups",
            "doubtful",
            f"other processes cannot wake this one, which looks every 5 seconds at most ({error.strerror})",
            "on Linux raise fs.inotify.max_user_instances and max_user_watches",
        )
    return Finding("wake-ups", "good", "processes wake each other by inotify")


# --- what is there ---------------------------------------------------------------------------------------------


async def _looked_at(path: Path, clock: Clock) -> AsyncIterator[Finding]:
    """What the file that is there is like. Nothing is written to it."""
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as error:
        yield of_error("file", explained(error, path))
        return
    with contextlib.closing(connection):
        connection.set_busy_timeout(LOCKED_MS)
        try:
            connection.execute("PRAGMA query_only = ON")
            yield _schema(connection, path)
            yield _size(connection, path)
            yield await _integrity(connection, clock)
            read = _on_thread(lambda: connection.execute("SELECT count(*) FROM sqlite_schema").fetchall())
            ms = await median_ms(clock, read)
            yield Finding("round trip", "good", f"{in_ms(ms)} (median of 21)", "", ms, "ms")
        except apsw.BusyError as error:
            yield of_error("file", explained(error, path), "doubtful")
        except apsw.Error as error:
            yield of_error("file", explained(error, path))
        except ProviderError as error:
            yield of_error("schema", error)


def _schema(connection: apsw.Connection, path: Path) -> Finding:
    version, newest = version_of(connection, path), max(migrations())
    if not version:
        return Finding("schema", "good", "there are no tables of bide's yet; the first start makes them")
    if version < newest:
        return Finding("schema", "good", f"version {version}; the next start brings it to {newest}")
    return Finding("schema", "good", f"version {version}")


def _size(connection: apsw.Connection, path: Path) -> Finding:
    bytes_ = path.stat().st_size
    log = path.with_name(f"{path.name}-wal")
    log_bytes = log.stat().st_size if log.exists() else 0
    ((page,),) = connection.execute("PRAGMA page_size").fetchall()
    found = f"{bytes_ / _MIB:,.1f} MiB in pages of {page} bytes, log {log_bytes / _MIB:,.1f} MiB"
    if log_bytes > 2 * LOG_BYTES:
        step = "end the program that keeps a transaction open: until then the log only grows"
        return Finding("size", "doubtful", found, step, bytes_, "bytes")
    return Finding("size", "good", found, "", bytes_, "bytes")


async def _integrity(connection: apsw.Connection, clock: Clock) -> Finding:
    """Whether the pages of the file fit together. It ends after :data:`CHECK_S`, and when it is cancelled."""
    ends_at = clock.monotonic() + CHECK_S
    stopped = threading.Event()
    connection.set_progress_handler(lambda: stopped.is_set() or clock.monotonic() > ends_at, 10_000)
    try:
        rows = await _on_thread(lambda: connection.execute(QUICK_CHECK).fetchall(), stopped.set)()
    except apsw.InterruptError:
        return Finding(
            "integrity",
            "unknown",
            f"it is too large to be looked through in {CHECK_S:.0f} s",
            "run PRAGMA quick_check on a copy of it",
        )
    finally:
        connection.set_progress_handler(None)
    if rows == [("ok",)]:
        return Finding("integrity", "good", "its pages fit together")
    return Finding(
        "integrity",
        "refused",
        f"it is damaged: {str(rows[0][0]).partition(chr(10))[0]}",
        "restore it from a backup, or move it away and start with a new one",
    )


def _on_thread(
    call: Callable[[], _R], stop: Callable[[], None] = lambda: None
) -> Callable[[], Coroutine[Any, Any, _R]]:
    """``call`` as something to wait for, so that a slow disk holds up nothing else.

    Where that is cancelled it is told to ``stop`` and waited for, since a connection is one thread's at a time.
    """

    async def wait() -> _R:
        running = asyncio.ensure_future(asyncio.to_thread(call))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            stop()
            await asyncio.wait({running})
            raise

    return wait
