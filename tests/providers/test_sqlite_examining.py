"""What ``doctor`` finds out about a file of SQLite, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

import apsw
import pytest

from bide.clock import SystemClock
from bide.core.findings import Finding, is_usable
from bide.provider import NewItem
from bide.providers.sqlite import SqliteProvider, examining
from bide.providers.sqlite.examining import examine
from bide.providers.sqlite.mounts import file_system_of
from tests.servers import eventually


async def examined(folder: Path, address: str = "sqlite:///work.db") -> dict[str, Finding]:
    found = [finding async for finding in examine(address, folder, SystemClock())]
    assert max(Counter(finding.subject for finding in found).values()) == 1
    return {finding.subject: finding for finding in found}


def entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


async def made(path: Path) -> None:
    provider = SqliteProvider(path, clock=SystemClock())
    await provider.open()
    await provider.enqueue([NewItem(str(at), "q", "n", "x" * 500) for at in range(200)])
    await provider.close()


def judgements(findings: dict[str, Finding]) -> dict[str, str]:
    return {subject: finding.judgement for subject, finding in findings.items()}


async def test_a_place_for_a_file_is_examined_without_making_it(tmp_path: Path) -> None:
    found = await examined(tmp_path)
    assert is_usable(list(found.values()))
    assert found["commit"].unit == "ms"
    assert found["commit"].value is not None
    assert found["commit"].value > 0
    assert entries(tmp_path) == []


async def test_a_file_that_is_there_is_looked_at_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    await made(path)
    before = path.read_bytes()
    found = await examined(tmp_path)
    assert {"schema", "size", "integrity", "round trip"} <= found.keys()
    assert set(judgements(found).values()) <= {"good", "doubtful"}  # the tests' folder may be kept in memory
    assert entries(tmp_path) == ["work.db"]
    assert path.read_bytes() == before


async def test_a_file_that_is_in_use_stays_in_use(tmp_path: Path) -> None:
    provider = SqliteProvider(tmp_path / "work.db", clock=SystemClock())
    await provider.open()
    found = await examined(tmp_path)
    assert found["integrity"].judgement == "good"
    await provider.enqueue([NewItem("a", "q", "n", "{}")])
    assert len(await provider.items("q")) == 1
    await provider.close()


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    await made(path)
    pages = bytearray(path.read_bytes())
    pages[3 * 4096 : 9 * 4096] = os.urandom(6 * 4096)
    path.write_bytes(pages)
    found = await examined(tmp_path)
    refused = [finding for finding in found.values() if finding.judgement == "refused"]
    assert refused
    assert "damaged" in refused[0].found
    assert "backup" in refused[0].step


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work.db").write_bytes(b"a letter to my aunt " * 500)
    assert (await examined(tmp_path))["file"].judgement == "refused"


async def test_a_newer_schema_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    await made(path)
    with apsw.Connection(str(path)) as connection:
        connection.execute("UPDATE meta SET schema_version = 99, written_by = '9.9'")
    connection.close()
    schema = (await examined(tmp_path))["schema"]
    assert schema.judgement == "refused"
    assert "written by bide 9.9" in schema.found


async def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    with apsw.Connection(str(tmp_path / "work.db")) as connection:
        connection.execute("CREATE TABLE work_items (x)")
    connection.close()
    assert (await examined(tmp_path))["schema"].judgement == "refused"


async def test_a_locked_file_is_doubtful_and_waited_for_in_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examining, "LOCKED_MS", 50)
    path = tmp_path / "work.db"
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE t (x); BEGIN EXCLUSIVE"
    )  # without a write-ahead log it keeps readers out
    found = await examined(tmp_path)
    connection.close()
    assert found["file"].judgement == "doubtful"
    assert "locked" in found["file"].found


@pytest.mark.parametrize(
    ("address", "said"),
    [("sqlite:///none/work.db", "does not exist"), ("sqlite:///folder", "is a folder")],
)
async def test_a_place_that_is_none_ends_the_examination(tmp_path: Path, address: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    found = await examined(tmp_path, address)
    assert found["place"].judgement == "refused"
    assert said in found["place"].found
    assert list(found)[-1] == "place"


async def test_an_old_library_is_doubtful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    assert (await examined(tmp_path))["library"].judgement == "doubtful"
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.3")
    assert (await examined(tmp_path))["library"].judgement == "good"


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"


async def test_a_file_too_large_to_look_through_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(tmp_path / "work.db")
    monkeypatch.setattr(examining, "QUICK_CHECK", ENDLESS)
    monkeypatch.setattr(examining, "CHECK_S", 0.05)
    found = await examined(tmp_path)
    assert found["integrity"].judgement == "unknown"
    assert found["round trip"].judgement == "good"  # the connection is of use all the same


async def test_a_look_through_a_file_ends_when_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(tmp_path / "work.db")
    monkeypatch.setattr(examining, "QUICK_CHECK", ENDLESS)
    at_size = asyncio.Event()

    async def look() -> None:
        async for finding in examine("sqlite:///work.db", tmp_path, SystemClock()):
            assert finding.subject != "integrity"
            if finding.subject == "size":
                at_size.set()

    looking = asyncio.create_task(look())
    await at_size.wait()
    await asyncio.sleep(0.05)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    assert entries(tmp_path) == ["work.db"]


async def test_an_examination_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    found = examine("sqlite:///work.db", tmp_path, SystemClock())

    async def look() -> None:
        async for finding in found:
            if finding.subject == "write-ahead log":
                assert entries(tmp_path)
                await asyncio.sleep(3600)

    looking = asyncio.create_task(look())
    await eventually(lambda: bool(entries(tmp_path)))
    looking.cancel()
    await asyncio.wait([looking])
    await found.aclose()
    assert entries(tmp_path) == []


# --- file systems -----------------------------------------------------------------------------------------------

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /dev/shm rw,nosuid - tmpfs tmpfs rw
40 22 0:50 / /srv/shared rw,relatime shared:9 - nfs4 files:/srv rw
41 22 0:51 / /srv/with\\040space rw - cifs //files/srv rw
42 40 0:52 / /srv/shared/local rw - xfs /dev/sdb1 rw
odd line
43 22 0:53 / /srv/sub rw - fuse.sshfs me@host: rw
"""


@pytest.mark.parametrize(
    ("folder", "kind", "remote", "volatile"),
    [
        ("/srv", "ext4", False, False),
        ("/srv/shared", "nfs4", True, False),
        ("/srv/shared/a/b", "nfs4", True, False),
        ("/srv/shared-not", "ext4", False, False),
        ("/srv/shared/local", "xfs", False, False),
        ("/srv/with space", "cifs", True, False),
        ("/srv/sub", "fuse.sshfs", True, False),
        ("/dev/shm", "tmpfs", False, True),
    ],
)
def test_the_file_system_of_a_folder_is_that_of_its_nearest_mount(
    tmp_path: Path, folder: str, kind: str, remote: bool, volatile: bool
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    found = file_system_of(Path(folder), mounts)
    assert found is not None
    assert (found.kind, found.is_remote, found.is_volatile) == (kind, remote, volatile)


def test_a_system_that_does_not_say_its_mounts_is_not_guessed_at(tmp_path: Path) -> None:
    assert file_system_of(tmp_path, tmp_path / "none") is None
