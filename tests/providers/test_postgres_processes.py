"""Several processes on one database, processes that are killed, and a server that crashes: nothing is lost."""

from __future__ import annotations

import asyncio
import collections
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.clock import SystemClock
from bide.providers.postgres import PostgresProvider
from bide.testing.conformance.bench import subscription
from tests.providers.postgres_server import VERSIONS, Server, run_sql

CHILDREN = Path(__file__).with_name("children.py")
ENOUGH_LINES = 400


@pytest.fixture(params=VERSIONS, ids=[f"postgres{version}" for version in VERSIONS])
def durable(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server whose commits are on disk, for this test alone."""
    started = Server(request.param, durable=True)
    try:
        started.start()
        yield started
    finally:
        started.remove()


def start(what: str, address: str, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(CHILDREN), what, address, name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


async def prepare(address: str) -> None:
    provider = PostgresProvider(address, clock=SystemClock())
    await provider.open()
    await provider.register_subscriptions([subscription("a"), subscription("b")])
    await provider.close()


async def test_four_processes_share_one_database(server: Server) -> None:
    address = server.address(options="?schema=shared&pool=3")
    await run_sql(server.address(), "DROP SCHEMA IF EXISTS shared CASCADE")
    await prepare(address)
    children = [start("share", address, str(number)) for number in range(4)]
    said = [(await asyncio.to_thread(child.communicate, timeout=120))[0].split("\n") for child in children]
    assert [child.returncode for child in children] == [0] * 4

    lines = [line.split() for output in said for line in output if line]
    claimed = collections.Counter(tuple(rest) for what, *rest in lines if what == "claimed")
    assert max(claimed.values()) == 1
    changed = [rest[0] for what, *rest in lines if what == "changed"]
    stale = [rest for what, *rest in lines if what == "stale"]
    assert len(claimed) == len(changed) + len(stale)
    assert len(set(changed)) == len(changed) > 100
    delivered = collections.Counter(rest[0] for what, *rest in lines if what == "delivered")
    assert delivered == {f"{event}.{name}": 1 for event in changed for name in "ab"}

    events = await run_sql(server.address(), "SELECT id FROM shared.events")
    assert sorted(id for (id,) in events) == sorted(changed)
    states = await run_sql(server.address(), "SELECT state, count(*) FROM shared.work_items GROUP BY state")
    assert [tuple(row) for row in states] == [("done", 2 * len(changed))]


@pytest.mark.parametrize("crash", [False, True], ids=["processes-killed", "server-crashed"])
async def test_what_was_told_is_done_outlives_a_crash(durable: Server, crash: bool) -> None:
    address = durable.address(options="?pool=4")
    await prepare(address)
    children = [start("churn", address, name) for name in ("one", "two")]
    said = []
    for child in children:
        assert child.stdout is not None
        said += [await asyncio.to_thread(child.stdout.readline) for _ in range(ENOUGH_LINES)]
    if crash:
        await asyncio.to_thread(durable.stop, signal.SIGQUIT)
    for child in children:
        child.kill()
    for child in children:
        assert child.stdout is not None
        said += [line for line in child.stdout if line.endswith("\n")]
        child.stdout.close()
        child.wait(timeout=60)
    if crash:
        await asyncio.to_thread(durable.start)
    await quiet(durable)

    rows = await run_sql(durable.address(), "SELECT id, state, name FROM bide.work_items")
    items = {id: (state, name) for id, state, name in rows}
    events = {id for (id,) in await run_sql(durable.address(), "SELECT id FROM bide.events")}
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
    assert {f"{id}.{name}" for id in events for name in "ab"} == {id for id in items if id[:4] == "evt_"}
    enqueued = {id for id, (_, name) in items.items() if name == "kept"}
    assert {id.removesuffix(".child") for id in enqueued} & items.keys() == set()
    apart = await run_sql(
        durable.address(),
        "SELECT p.name FROM bide.polls AS p JOIN bide.events AS e ON e.id = p.event_id WHERE e.digest <> p.digest",
    )
    assert apart == []

    # And it goes on.
    provider = PostgresProvider(address, clock=SystemClock())
    await provider.open()
    counts = {row.queue: row for row in await provider.counts()}
    assert counts["q"].done == 0
    assert counts["q"].ready >= len(enqueued)
    await provider.close()


async def quiet(server: Server) -> None:
    """Until the server has noticed that its clients are gone."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    for _ in range(500):
        if not (await run_sql(server.address(), others))[0][0]:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("connections of killed processes are still there")
