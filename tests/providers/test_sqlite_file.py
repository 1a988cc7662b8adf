"""The file: made, migrated, refused and damaged, each with a message that says what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from bide import __version__
from bide.errors import ProviderCorrupt, ProviderError, ProviderNewer, SettingError
from bide.provider import NewItem, Schedule
from bide.providers.sqlite import SqliteProvider
from bide.providers.sqlite.migrations import migrations
from bide.testing import VirtualClock
from bide.testing.conformance.bench import answered

ITEM = NewItem(id="a", queue="q", name="n", payload="{}")
NEWEST = max(migrations())


def provider_of(path: Path) -> SqliteProvider:
    return SqliteProvider(path, clock=VirtualClock())


async def made(path: Path) -> Path:
    """A file with one item in it, closed."""
    provider = provider_of(path)
    await provider.open()
    await provider.enqueue([ITEM])
    await provider.close()
    return path


def sql(path: Path, statement: str, bindings: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute(statement, bindings))
    finally:
        connection.close()


async def refusal(path: Path) -> ProviderError:
    """What opening ``path`` raises; the file is as it was."""
    before = path.read_bytes() if path.is_file() else None
    provider = provider_of(path)
    with pytest.raises(ProviderError) as raised:
        await provider.open()
    assert (path.read_bytes() if path.is_file() else None) == before
    with pytest.raises(ProviderError, match="not open"):
        await provider.counts()
    await provider.close()
    assert str(path) in str(raised.value)
    return raised.value


# --- tables ----------------------------------------------------------------------------------------------


async def test_tables_can_be_read_with_plain_sql(tmp_path: Path) -> None:
    path = await made(tmp_path / "bide.db")
    assert sql(path, "SELECT schema_version, written_by FROM meta") == [(NEWEST, __version__)]
    assert sql(path, "SELECT id, queue, name, state, payload FROM work_items") == [
        ("a", "q", "n", "ready", "{}")
    ]
    names = {
        "polls": "name due not_before every_ms digest changed_at generation validators declaration failures",
        "subscriptions": "name event kind target within_ms ordered max_attempts ended_at",
        "events": "seq id name poll payload digest created_at occurred_at previous_id",
    }
    for table, columns in names.items():
        assert sql(path, f"SELECT {', '.join(columns.split())} FROM {table}") == []


async def test_the_file_is_in_wal_mode_and_synchronous(tmp_path: Path) -> None:
    path = await made(tmp_path / "bide.db")
    assert sql(path, "PRAGMA journal_mode") == [("wal",)]
    for given, expected in (("FULL", 2), ("normal", 1)):
        provider = SqliteProvider(path, clock=VirtualClock(), synchronous=given)
        await provider.open()
        found = await provider._database.write(lambda tx, _: tx.row("PRAGMA synchronous"), None)
        assert found == (expected,)
        await provider.close()


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="neither 'FULL' nor 'NORMAL'"):
        SqliteProvider("bide.db", clock=VirtualClock(), synchronous="of")
    with pytest.raises(SettingError, match="MemoryProvider"):
        SqliteProvider(":memory:", clock=VirtualClock())


async def test_an_empty_file_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    path.touch()
    await made(path)
    assert len(sql(path, "SELECT * FROM work_items")) == 1


async def test_closing_leaves_one_file(tmp_path: Path) -> None:
    path = await made(tmp_path / "bide.db")
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


async def test_opening_twice_and_closing_twice_do_no_harm(tmp_path: Path) -> None:
    provider = provider_of(tmp_path / "bide.db")
    await provider.close()
    await provider.open()
    await provider.open()
    await provider.enqueue([ITEM])
    await provider.close()
    await provider.close()
    await provider.open()
    assert len(await provider.items("q")) == 1
    await provider.close()


# --- what is refused -------------------------------------------------------------------------------------


async def test_a_folder_is_refused(tmp_path: Path) -> None:
    error = await refusal(tmp_path)
    assert "it is a folder; name a file in it" in str(error)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    error = await refusal(tmp_path / "none" / "bide.db")
    assert f"the folder {tmp_path / 'none'} does not exist" in str(error)
    assert not (tmp_path / "none").exists()


async def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    path.write_text("symbol,price\n" * 500)
    error = await refusal(path)
    assert isinstance(error, ProviderCorrupt)
    assert "not an SQLite database" in str(error)
    assert "move it away" in str(error)
    assert not error.retryable


async def test_a_damaged_schema_is_refused(tmp_path: Path) -> None:
    path = await made(tmp_path / "bide.db")
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * 3000)
    error = await refusal(path)
    assert isinstance(error, ProviderCorrupt)
    assert "restore it from a backup" in str(error)


async def test_a_page_that_was_damaged_is_reported_when_it_is_met(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    provider = provider_of(path)
    await provider.open()
    await provider.enqueue([replace(ITEM, id=f"i{number}", payload="x" * 500) for number in range(200)])
    await provider.close()
    (page,) = sql(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'work_items'")[0]
    assert isinstance(page, int)
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xa5" * 4096)
    await provider.open()
    with pytest.raises(ProviderCorrupt, match="damaged"):
        await provider.items("q")
    with pytest.raises(ProviderCorrupt):
        await provider.enqueue([ITEM])
    claims = await provider.claim_polls([Schedule("eu.price", timedelta(minutes=1))], 1)
    assert len(claims) == 1  # what is whole goes on
    await provider.close()


async def test_a_newer_schema_is_refused_by_name(tmp_path: Path) -> None:
    path = await made(tmp_path / "bide.db")
    sql(path, "UPDATE meta SET schema_version = ?, written_by = '9.9.9'", (NEWEST + 1,))
    error = await refusal(path)
    assert isinstance(error, ProviderNewer)
    for part in (f"bide 9.9.9 (schema {NEWEST + 1})", f"this is bide {__version__}", "upgrade"):
        assert part in str(error)


async def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    sql(path, "CREATE TABLE events (what TEXT)")
    error = await refusal(path)
    assert "another program" in str(error)
    assert "'events'" in str(error)


async def test_tables_of_others_beside_ours_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    sql(path, "CREATE TABLE orders (what TEXT)")
    sql(path, "INSERT INTO orders VALUES ('tea')")
    await made(path)
    assert sql(path, "SELECT what FROM orders") == [("tea",)]


@contextmanager
def as_somebody() -> Iterator[Path]:
    """A folder that everybody may enter, used as a user that permissions hold for."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if was_root:
            os.seteuid(0)
        folder.chmod(0o777)
        shutil.rmtree(folder)


async def test_a_file_that_may_not_be_written_is_refused() -> None:
    with as_somebody() as folder:
        path = await made(folder / "bide.db")
        path.chmod(0o444)
        error = await refusal(path)
        assert "cannot be written" in str(error)
        assert "permissions" in str(error)


async def test_a_folder_that_may_not_be_written_is_refused() -> None:
    with as_somebody() as folder:
        path = await made(folder / "bide.db")
        folder.chmod(0o555)
        error = await refusal(path)
        assert "permissions" in str(error) or "may write there" in str(error)
        error = await refusal(folder / "new.db")
        assert "may write there" in str(error)


# --- what goes wrong later -------------------------------------------------------------------------------


async def test_a_full_disk_loses_nothing_and_may_be_tried_again(tmp_path: Path) -> None:
    provider = provider_of(tmp_path / "bide.db")
    await provider.open()
    schedules = [Schedule("eu.price", timedelta(minutes=1))]
    (claim,) = await provider.claim_polls(schedules, 1)
    await provider.enqueue([ITEM])
    write = provider._database.write
    (pages,) = await write(lambda tx, _: tx.row("PRAGMA page_count"), None)
    await write(lambda tx, count: tx.row(f"PRAGMA max_page_count = {count}"), pages)
    big = replace(answered(1, claim), payload=f'"{"x" * 100_000}"')
    asked = [
        provider.enqueue([replace(ITEM, id=f"i{number}", payload="x" * 50_000)]) for number in range(3)
    ]
    results = await asyncio.gather(
        provider.record_answer(claim, big), *asked, provider.poll_now(["eu.price"]), return_exceptions=True
    )
    for result in results[:4]:
        assert isinstance(result, ProviderError)
        assert result.retryable
        assert "the disk is full" in str(result)
    assert results[4] == ["eu.price"]  # what needs no room is done
    assert [row.id for row in await provider.items("q")] == ["a"]
    assert await provider.events() == []
    await write(lambda tx, _: tx.row("PRAGMA max_page_count = 100000"), None)
    await provider.enqueue([replace(ITEM, id="b", payload="x" * 50_000)])
    await provider.record_answer(claim, answered(1, claim))
    assert [row.id for row in await provider.items("q")] == ["b", "a"]
    assert len(await provider.events()) == 1
    await provider.close()


async def test_a_file_that_was_moved_away_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    provider = provider_of(path)
    await provider.open()
    path.rename(tmp_path / "elsewhere.db")
    with pytest.raises(ProviderError, match="moved or deleted"):
        await provider.enqueue([ITEM])
    await provider.close()


async def test_a_lock_held_for_long_is_told_and_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.providers.sqlite.writer.BUSY_TIMEOUT_MS", 10)
    monkeypatch.setattr("bide.providers.sqlite.writer.BUSY_PAUSE_S", 0.001)
    path = tmp_path / "bide.db"
    provider = provider_of(path)
    await provider.open()
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ProviderError, match="another process keeps it locked") as raised:
        await provider.enqueue([ITEM])
    assert raised.value.retryable
    assert await provider.items("q") == []  # reading goes on
    other.execute("ROLLBACK")
    other.close()
    await provider.enqueue([ITEM])
    assert len(await provider.items("q")) == 1
    await provider.close()


async def test_a_lock_held_for_a_while_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.providers.sqlite.writer.BUSY_TIMEOUT_MS", 1)
    monkeypatch.setattr("bide.providers.sqlite.writer.BUSY_PAUSE_S", 0.01)
    path = tmp_path / "bide.db"
    provider = provider_of(path)
    await provider.open()
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    enqueueing = asyncio.create_task(provider.enqueue([ITEM]))
    await asyncio.sleep(0.02)
    assert not enqueueing.done()
    other.execute("COMMIT")
    other.close()
    await enqueueing
    await provider.close()


# --- migrations ------------------------------------------------------------------------------------------


def test_migrations_are_numbered_without_gaps() -> None:
    assert list(migrations()) == list(range(1, NEWEST + 1))


async def test_a_migration_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await made(tmp_path / "bide.db")
    broken = {**migrations(), NEWEST + 1: "CREATE TABLE fresh (x) STRICT;"}
    half = {**migrations(), NEWEST + 1: "CREATE TABLE fresh (x TEXT) STRICT; DROP TABLE nowhere;"}
    for scripts in (broken, half):
        monkeypatch.setattr("bide.providers.sqlite.migrations.migrations", lambda scripts=scripts: scripts)
        provider = provider_of(path)
        with pytest.raises(ProviderError):
            await provider.open()
    monkeypatch.undo()
    assert sql(path, "SELECT name FROM sqlite_schema WHERE name = 'fresh'") == []
    assert sql(path, "SELECT schema_version FROM meta") == [(NEWEST,)]
    assert len(sql(path, "SELECT id FROM work_items")) == 1


async def test_what_is_missing_is_applied_and_data_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await made(tmp_path / "bide.db")
    scripts = {
        **migrations(),
        NEWEST + 1: "ALTER TABLE work_items ADD COLUMN note TEXT;",
        NEWEST + 2: "UPDATE work_items SET note = 'migrated';",
    }
    monkeypatch.setattr("bide.providers.sqlite.migrations.migrations", lambda: scripts)
    provider = provider_of(path)
    await provider.open()
    await provider.close()
    assert sql(path, "SELECT id, note FROM work_items") == [("a", "migrated")]
    assert sql(path, "SELECT schema_version FROM meta") == [(NEWEST + 2,)]


def test_programs_that_start_at_once_migrate_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    children = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("children.py")), "open", str(path), str(number)]
        )
        for number in range(6)
    ]
    assert [child.wait(timeout=60) for child in children] == [0] * 6
    assert sql(path, "SELECT schema_version FROM meta") == [(NEWEST,)]
    assert len(sql(path, "SELECT id FROM work_items")) == 6
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]
