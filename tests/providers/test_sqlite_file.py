"""The file: made, and refused where it is not ours to use, each time with a message that says what to do."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bide import __version__
from bide.errors import ProviderCorrupt, ProviderError, ProviderNewer, SettingError
from bide.provider import Schedule
from bide.providers.sqlite import SqliteProvider
from bide.providers.sqlite.migrations import migrations
from bide.testing import VirtualClock
from tests.providers.files import ITEM, made, provider_of, sql

NEWEST = max(migrations())


def content(path: Path) -> bytes | None:
    """The bytes of a file, None where there is none."""
    return path.read_bytes() if path.is_file() else None


async def refusal(path: Path) -> ProviderError:
    """What opening ``path`` raises; the file is as it was."""
    before = content(path)
    provider = provider_of(path)
    with pytest.raises(ProviderError) as raised:
        await provider.open()
    assert content(path) == before
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
    assert os.listdir(tmp_path) == [path.name]


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


async def test_a_file_that_does_not_say_who_wrote_it_is_refused(tmp_path: Path) -> None:
    path = await made(tmp_path / "bide.db")
    sql(path, "DELETE FROM meta")
    error = await refusal(path)
    assert isinstance(error, ProviderCorrupt)
    assert "'meta' is empty" in str(error)


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
        os.chown(folder, 65534, 65534)
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
