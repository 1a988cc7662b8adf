"""Processes on one bucket, killed at any moment: what was told is enqueued is done, and nothing is left of it."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

from bide.clock import SystemClock
from bide.providers.s3 import S3Provider
from tests.providers.s3_server import S3Server

CHILDREN = Path(__file__).with_name("children.py")
FED = 300
WORKERS = 3
KILLS = 8
PATIENCE_S = 60


def start(what: str, address: str, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(CHILDREN), what, address, name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def said_by(child: subprocess.Popen[str]) -> list[list[str]]:
    """What a child that has ended said, in whole lines."""
    assert child.stdout is not None
    lines = [line.split() for line in child.stdout if line.endswith("\n")]
    child.stdout.close()
    child.wait(timeout=PATIENCE_S)
    return lines


async def test_workers_killed_at_any_moment_lose_nothing(durable_s3_server: S3Server) -> None:
    chance = random.Random(37)
    address = durable_s3_server.address(f"killed-{time.time_ns()}")
    watching = S3Provider(address, clock=SystemClock())
    await watching.open()
    feeder = start("feed", address, "f")
    workers = [start("toil", address, f"w{number}") for number in range(WORKERS)]
    said: list[list[str]] = []
    for kill in range(KILLS):
        await asyncio.sleep(0.2 + chance.random())
        victim = workers.pop(0)
        victim.kill()
        said += await asyncio.to_thread(said_by, victim)
        workers.append(start("toil", address, f"k{kill}"))
    said += await asyncio.to_thread(said_by, feeder)
    deadline = time.monotonic() + PATIENCE_S
    while any(row.ready + row.running for row in await watching.counts()):
        assert time.monotonic() < deadline, await watching.counts()
        await asyncio.sleep(0.5)
    for worker in workers:
        worker.kill()
        said += await asyncio.to_thread(said_by, worker)

    told = Counter(what for what, *_ in said)
    assert told["enqueued"] == FED
    fed = {id for what, id, *_ in said if what == "enqueued"}
    done = Counter(id for what, id, *_ in said if what == "done")
    assert set(done) <= fed | {f"{id}.child" for id in fed}
    # A worker may die between its settlement and its word: so few words are missing, and no item.
    missing = (fed | {f"{id}.child" for id in fed}) - set(done)
    assert len(missing) <= 5 * KILLS
    assert [row for row in await watching.items("q", limit=10_000) if row.state != "dead"] == []
    assert await watching.counts() == []
    await watching.prune(timedelta())
    await watching.close()
