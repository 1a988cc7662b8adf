"""Migrations: numbered, whole or not at all, one program after the other, and no data is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from bide.errors import ProviderError
from bide.providers.sqlite.migrations import migrations
from tests.providers.files import made, provider_of, sql

NEWEST = max(migrations())


def test_migrations_are_numbered_without_gaps() -> None:
    assert list(migrations()) == list(range(1, NEWEST + 1))


async def test_a_file_that_others_keep_locked_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.providers.sqlite.writer.BUSY_TIMEOUT_MS", 1)
    monkeypatch.setattr("bide.providers.sqlite.migrations.WAL_RETRIES", 3)
    monkeypatch.setattr("bide.providers.sqlite.migrations.WAL_PAUSE_S", 0.001)
    path = tmp_path / "bide.db"
    other = apsw.Connection(str(path))
    other.execute("PRAGMA journal_mode = WAL")
    other.execute("BEGIN IMMEDIATE")
    provider = provider_of(path)
    with pytest.raises(ProviderError, match="another process keeps it locked") as raised:
        await provider.open()
    assert raised.value.retryable
    other.execute("ROLLBACK")
    other.close()
    await provider.open()
    await provider.close()


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
