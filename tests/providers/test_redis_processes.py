"""Several processes on one server, processes that are killed, and a server that crashes: nothing is lost."""

from __future__ import annotations

import asyncio
import collections
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bide.clock import SystemClock
from bide.provider import DELIVERIES, ZERO, ItemRow, Items, NewItem
from bide.providers.redis import RedisProvider
from bide.testing.conformance.bench import subscription
from tests.providers.redis_server import Server
from tests.providers.test_redis_trouble import command

CHILDREN = Path(__file__).with_name("children.py")
ENOUGH_LINES = 300
SENT = ("fcall", "function", "ping", "xread")
"""What a worker sends and no function runs, as a server counts commands."""

SHORT_MINUTE_S = 2
IDLE_WORKER = """
from bide import App
from bide.providers.redis import listening

listening.BLOCK_S = {minute_s}
app = App("{address}", tick="{minute_s}s", environment={{}})


@app.task
async def add(one: int) -> None: ...
"""
ITEM = NewItem(id="a", queue="q", name="n", payload="{}")


@pytest.fixture
def durable() -> Iterator[Server]:
    """A server that keeps what it answered, for this test alone."""
    started = Server(durable=True)
    try:
        started.start()
        yield started
    finally:
        started.remove()


def start(what: str, address: str, name: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, str(CHILDREN), what, address, name]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


async def opened(address: str) -> RedisProvider:
    provider = RedisProvider(address, clock=SystemClock())
    await provider.open()
    return provider


async def prepare(address: str) -> None:
    provider = await opened(address)
    await provider.register_subscriptions([subscription("a"), subscription("b")])
    await provider.close()


def start_idle(folder: Path, address: str) -> subprocess.Popen[bytes]:
    """A worker for which a minute has :data:`SHORT_MINUTE_S` seconds."""
    text = IDLE_WORKER.format(address=address, minute_s=SHORT_MINUTE_S)
    (folder / "idle_worker.py").write_text(text)
    flags = ["--long-poll-timeout", f"{SHORT_MINUTE_S // 2}s"]
    arguments = [sys.executable, "-m", "bide", "worker", "idle_worker:app", *flags]
    return subprocess.Popen(
        arguments,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def sent(server: Server) -> int:
    """Commands of clients that the server has run so far."""
    stats = (await command(server, "INFO", "commandstats")).decode()
    rows = [line.removeprefix("cmdstat_").split(":") for line in stats.splitlines() if "calls=" in line]
    return sum(int(row.split(",")[0].split("=")[1]) for name, row in rows if name.split("|")[0] in SENT)


async def until_hungry(server: Server) -> None:
    """Until somebody has looked in vain, and waits."""
    if not await command(server, "EXISTS", "{bide}:hungry"):
        await asyncio.sleep(0.1)
        await until_hungry(server)


async def test_an_idle_worker_sends_four_commands_a_minute_at_most(valkey: Server, tmp_path: Path) -> None:
    await command(valkey, "FLUSHALL")
    worker = start_idle(tmp_path, valkey.address())
    try:
        async with asyncio.timeout(60):
            await until_hungry(valkey)
        await asyncio.sleep(0.5)
        began, before = time.monotonic(), await sent(valkey)
        await asyncio.sleep(3 * SHORT_MINUTE_S)
        asked, minutes = await sent(valkey) - before, (time.monotonic() - began) / SHORT_MINUTE_S
        assert worker.poll() is None
    finally:
        worker.terminate()
        await asyncio.to_thread(worker.wait, 30)
    assert (
        3 <= asked <= 4 * minutes + 3
    )  # a fetch, a read and an upkeep more where the minutes do not begin together


async def test_three_processes_share_one_server(valkey: Server) -> None:
    address = valkey.address("?prefix=shared&pool=3")
    await command(valkey, "FLUSHALL")
    await prepare(address)
    children = [start("share", address, str(number)) for number in range(3)]
    said = [(await asyncio.to_thread(child.communicate, timeout=120))[0].split("\n") for child in children]
    assert [child.returncode for child in children] == [0] * 3

    lines = [line.split() for output in said for line in output if line]
    claimed = collections.Counter(tuple(rest) for what, *rest in lines if what == "claimed")
    assert max(claimed.values()) == 1
    changed = [rest[0] for what, *rest in lines if what == "changed"]
    stale = [rest for what, *rest in lines if what == "stale"]
    assert len(claimed) == len(changed) + len(stale)
    assert len(set(changed)) == len(changed) > 100
    delivered = collections.Counter(rest[0] for what, *rest in lines if what == "delivered")
    assert delivered == {f"{event}.{name}": 1 for event in changed for name in "ab"}

    provider = await opened(address)
    events = await provider.events(limit=10_000)
    assert sorted(event.id for event in events) == sorted(changed)
    assert [event.seq for event in events] == list(range(1, len(changed) + 1))
    (counts,) = await provider.counts()
    assert (counts.done, counts.ready, counts.running) == (2 * len(changed), 0, 0)
    await provider.close()


@pytest.mark.parametrize("crash", [False, True], ids=["processes-killed", "server-crashed"])
async def test_what_was_told_is_done_outlives_a_crash(durable: Server, crash: bool) -> None:
    address = durable.address("?pool=4")
    await prepare(address)
    children = [start("churn", address, name) for name in ("one", "two")]
    said = []
    for child in children:
        assert child.stdout is not None
        said += [await asyncio.to_thread(child.stdout.readline) for _ in range(ENOUGH_LINES)]
    if crash:
        await asyncio.to_thread(durable.stop, signal.SIGKILL)
    for child in children:
        child.kill()
    for child in children:
        assert child.stdout is not None
        said += [line for line in child.stdout if line.endswith("\n")]
        child.stdout.close()
        child.wait(timeout=60)
    if crash:
        await asyncio.to_thread(durable.start)

    provider = await opened(address)
    items = {row.id: row for row in await everything(provider)}
    events = {event.id for event in await provider.events(limit=100_000)}
    told = collections.Counter(line.split()[0] for line in said)
    assert min(told["enqueued"], told["acked"], told["event"]) > 0
    for what, id, *_ in map(str.split, said):
        match what:
            case "enqueued":  # and perhaps done since then
                assert id in items or f"{id}.child" in items
            case "acked":
                assert id not in items
                assert (items[f"{id}.child"].state, items[f"{id}.child"].name) == ("ready", "kept")
            case "event":
                assert id in events
                assert {f"{id}.a", f"{id}.b"} <= items.keys()
    # Everything that happened together is there together.
    assert {f"{id}.{name}" for id in events for name in "ab"} == {id for id in items if id[:4] == "evt_"}
    enqueued = {id for id, row in items.items() if row.name == "kept"}
    assert {id.removesuffix(".child") for id in enqueued} & items.keys() == set()
    last = {event.poll: event.digest for event in await provider.events(limit=100_000)}
    assert {row.name: row.digest for row in await provider.poll_rows() if row.digest} == last

    # And it goes on.
    counts = {row.queue: row for row in await provider.counts()}
    assert counts["q"].done == 0
    assert counts["q"].ready >= len(enqueued)
    await provider.close()


async def everything(provider: RedisProvider) -> list[ItemRow]:
    return [row for queue in ("q", DELIVERIES) for row in await provider.items(queue, limit=1_000_000)]


async def test_what_kills_every_worker_is_buried_and_takes_nobody_along(valkey: Server) -> None:
    """Killed with what they held, one after the other: the rest is done, the killer is dead with its reason."""
    address = valkey.address("?prefix=killed")
    await command(valkey, "FLUSHALL")
    provider = await opened(address)
    await provider.enqueue([replace(ITEM, id="killer"), *(replace(ITEM, id=f"good{at}") for at in range(5))])
    for attempt in (1, 2, 3):
        child = start("die", address, "worker")
        said = (await asyncio.to_thread(child.communicate, timeout=60))[0].split()
        assert child.returncode == 1
        assert said == ["took", "killer", str(attempt), str(attempt - 1)]
        if attempt < 3:
            await asyncio.sleep(1.1)  # the lock of what the dead held, which is real time of the server
    await asyncio.sleep(1.1)
    # The others died with it twice, so that each is taken alone.
    assert [await take(provider) for _ in range(6)] == [*([f"good{at}"] for at in range(5)), []]
    row = await provider.item("killer")
    assert row is not None
    assert (row.state, row.error) == ("dead", "the worker died 3 times while handling it")
    await provider.close()


async def take(provider: RedisProvider) -> list[str]:
    fetched = await provider.fetch_work_items(
        ["q"], ["n"], limit=20, lock_timeout=timedelta(seconds=30), poll_timeout=ZERO, fetch_token="f"
    )
    return [item.id for item in fetched.items] if isinstance(fetched, Items) else []
