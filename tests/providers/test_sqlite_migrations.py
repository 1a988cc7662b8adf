"""Migrations: numbered, whole or not at all, one program after the other, and no data is lost."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from bide.errors import ProviderError
from bide.provider import Ack, Items
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


OLD_ROWS = """
INSERT INTO work_items (seq, id, queue, name, state, payload, priority, rank, visible_at, hold_ms, attempts, deaths,
    max_attempts, within_ms, expires_at, order_key, token, fetch_token, locked_until, lock_ms, enqueued_at, ended_at,
    error)
VALUES
    (1, 'ready', 'q', 'n', 'ready', 'p1', 2, 880000, 1000000, 0, 1, 1, 5, 9000, NULL, NULL, NULL, NULL, NULL, NULL,
        1000000, NULL, 'refused'),
    (2, 'waiting', 'q', 'n', 'waiting', 'p2', 0, 9000000000000, 9000000000000, 8999999000000, 0, 0, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL, NULL, 1000000, NULL, NULL),
    (3, 'running', 'q', 'n', 'running', 'p3', 0, 1000000, 1000000, 0, 1, 0, NULL, NULL, NULL, 'k', '3:x', 'f',
        1750000030000, 60000, 1000000, NULL, NULL),
    (4, 'blocked', 'q', 'n', 'blocked', 'p4', 0, 1000000, 1000000, 0, 0, 0, NULL, NULL, NULL, 'k', NULL, NULL, NULL,
        NULL, 1000000, NULL, NULL),
    (5, 'done', 'q', 'n', 'done', 'p5', 0, 1000000, 1000000, 0, 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        1000000, 1749999990000, NULL),
    (6, 'dead', 'deliveries', 's', 'dead', 'p6', 0, 1000000, 1000000, 0, 1, 0, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, 1000000, 1749999990000, 'gone')
"""


async def test_a_file_of_the_first_version_keeps_every_item(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    connection = apsw.Connection(str(path))
    connection.execute(migrations()[1])
    connection.execute("INSERT INTO meta VALUES (1, '0.1.0')")
    connection.execute(OLD_ROWS)
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info('work_items')")]
    before = connection.execute(f"SELECT {', '.join(columns)} FROM work_items ORDER BY seq").fetchall()
    connection.close()
    provider = provider_of(path)
    await provider.open()
    assert sql(path, f"SELECT {', '.join(columns)} FROM work_items ORDER BY seq") == before
    counts = {row.queue: (row.ready, row.running, row.done, row.dead) for row in await provider.counts()}
    assert counts == {"q": (3, 1, 1, 0), "deliveries": (0, 0, 0, 1)}
    fetched = await provider.fetch_work_items(
        ["q"], ["n"], limit=9, lock_timeout=timedelta(minutes=1), poll_timeout=timedelta(), fetch_token="g"
    )
    assert isinstance(fetched, Items)
    assert [(item.id, item.payload, item.attempt, item.deaths) for item in fetched.items] == [
        ("ready", "p1", 2, 1)
    ]
    assert await provider.settle([Ack("3:x")]) == ["settled"]  # by a worker that was begun before
    fetched = await provider.fetch_work_items(
        ["q"], ["n"], limit=9, lock_timeout=timedelta(minutes=1), poll_timeout=timedelta(), fetch_token="g"
    )
    assert isinstance(fetched, Items)
    assert [item.id for item in fetched.items] == ["blocked"]
    assert not (await provider.prune(timedelta(days=30))).any  # what was done stays for the retention
    assert await provider.requeue(["done", "dead"]) == ["dead", "done"]
    await provider.close()
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]
