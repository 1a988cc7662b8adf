"""Several processes on one file, and processes that are killed: nothing is lost, nothing is done twice."""

from __future__ import annotations

import collections
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from bide.clock import SystemClock
from bide.provider import ZERO, Empty, NewItem
from bide.providers.sqlite import SqliteProvider
from bide.testing.conformance.bench import subscription

CHILDREN = Path(__file__).with_name("children.py")
ENOUGH_LINES = 400


def start(what: str, path: Path, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(CHILDREN), what, str(path), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def sql(path: Path, statement: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute(statement))
    finally:
        connection.close()


async def prepare(path: Path) -> None:
    provider = SqliteProvider(path, clock=SystemClock())
    await provider.open()

    await provider.register_subscriptions([subscription("a"), subscription("b")])
    await provider.close()


async def test_four_processes_share_one_file(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    await prepare(path)
    reading = apsw.Connection(str(path))  # somebody who holds a read open all the while
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM events").fetchall()
    children = [start("share", path, str(number)) for number in range(4)]
    said = [child.communicate(timeout=120)[0].split("\n") for child in children]
    assert [child.returncode for child in children] == [0] * 4
    reading.close()

    lines = [line.split() for output in said for line in output if line]
    claimed = collections.Counter(tuple(rest) for what, *rest in lines if what == "claimed")
    assert max(claimed.values()) == 1
    changed = [rest[0] for what, *rest in lines if what == "changed"]
    stale = [rest for what, *rest in lines if what == "stale"]
    assert len(claimed) == len(changed) + len(stale)
    assert len(set(changed)) == len(changed) > 100
    delivered = collections.Counter(rest[0] for what, *rest in lines if what == "delivered")
    assert delivered == {f"{event}.{name}": 1 for event in changed for name in "ab"}
    assert all(any(line.startswith("claimed") for line in output) for output in said)

    assert sorted(str(id) for (id,) in sql(path, "SELECT id FROM events")) == sorted(changed)
    assert sql(path, "SELECT state, count(*) FROM work_items GROUP BY state") == [("done", 2 * len(changed))]
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]


async def test_what_another_process_enqueued_ends_a_wait(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    waiting = SqliteProvider(path, clock=SystemClock())
    other = SqliteProvider(path, clock=SystemClock())  # as another process: they share nothing but the file
    await waiting.open()
    await other.open()
    assert await fetch(waiting, ZERO) == Empty()
    await other.enqueue([NewItem(id="a", queue="q", name="n", payload="{}", delay=timedelta(seconds=0.05))])
    fetched = await fetch(waiting, timedelta(seconds=30))
    assert [item.id for item in getattr(fetched, "items", ())] == ["a"]
    await waiting.close()
    await other.close()


async def fetch(provider: SqliteProvider, poll_timeout: timedelta) -> object:
    return await provider.fetch_work_items(
        ["q"], ["n"], limit=1, lock_timeout=timedelta(seconds=30), poll_timeout=poll_timeout, fetch_token="f"
    )


@pytest.mark.parametrize("lines", [ENOUGH_LINES, 2 * ENOUGH_LINES, 2 * ENOUGH_LINES + 37])
async def test_a_killed_process_leaves_what_it_was_told_is_done(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "bide.db"
    await prepare(path)
    processes = [start("churn", path, name) for name in ("one", "two")]
    said = []
    for child in processes:
        assert child.stdout is not None
        said += [child.stdout.readline() for _ in range(lines)]
    for child in processes:
        child.kill()
    for child in processes:
        assert child.stdout is not None
        said += [line for line in child.stdout if line.endswith("\n")]
        child.stdout.close()
        child.wait(timeout=60)

    assert sql(path, "PRAGMA integrity_check") == [("ok",)]
    items = {id: (state, name) for id, state, name in sql(path, "SELECT id, state, name FROM work_items")}
    events = {id for (id,) in sql(path, "SELECT id FROM events")}
    told = collections.Counter(line.split()[0] for line in said)
    assert min(told["enqueued"], told["acked"], told["event"]) > 0
    for what, id, *_ in map(str.split, said):
        match what:
            case "enqueued":  # and perhaps done since then
                assert id in items or f"{id}.child" in items
            case "acked":
                assert id not in items
                assert items[f"{id}.child"] == ("ready", "kept")
            case "event":
                assert id in events
                assert {f"{id}.a", f"{id}.b"} <= items.keys()
    # Everything that happened together is there together.
    assert {f"{id}.{name}" for id in events for name in "ab"} == {id for id in items if str(id)[:4] == "evt_"}
    children = {str(id) for id, (_, name) in items.items() if name == "kept"}
    assert {id.removesuffix(".child") for id in children} & items.keys() == set()
    apart = (
        "SELECT count(*) FROM polls JOIN events ON events.id = event_id WHERE events.digest <> polls.digest"
    )
    assert sql(path, apart) == [(0,)]

    # And it goes on.
    provider = SqliteProvider(path, clock=SystemClock())
    await provider.open()
    counts = {row.queue: row for row in await provider.counts()}
    assert counts["q"].ready + counts["q"].running == len(items) - 2 * len(events)
    await provider.close()
