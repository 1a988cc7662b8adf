"""Work in a bucket, beside buquet on the same server: items a second, requests for each item, requests while idle.

python benchmarks/s3_queue.py [PEER_PYTHON]     PEER_PYTHON has benchmarks/s3_peers.txt; without it there is no peer

One submitter that submits one item at a time, then one worker process whose handler does nothing, then ten seconds of
nothing to do. Rates are medians of three rounds, taken in turn. The server is a SeaweedFS of its own, whose own count
of requests is used for both.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bide.clock import SystemClock
from bide.core.pacing import PollingStrategy
from bide.provider import ZERO, Ack, Items, NewItem
from bide.providers.s3 import S3Provider
from tests.providers.s3_server import BUCKET, CREDENTIALS, S3Server

COUNT = 400
ROUNDS = 3
PLACES = 20
IDLE_S = 10.0
LOCK = timedelta(seconds=30)

Marks = dict[str, tuple[float, Counter[str]]]
"""By phase: how long it took, and the requests that the server had in it."""


class Server(S3Server):
    """One that counts its requests."""

    def count(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("SeaweedFS_s3_request_total{"):
                    labels, _, value = line.rpartition(" ")
                    counts[labels.partition('type="')[2].partition('"')[0]] += round(float(value))
        return counts


async def bide_round(server: Server, prefix: str) -> Marks:
    marks: Marks = {}
    submitter = S3Provider(server.address(prefix), clock=SystemClock())
    worker = S3Provider(server.address(prefix), clock=SystemClock())
    await submitter.open()
    await worker.open()
    measure = Measure(server, marks)
    for number in range(COUNT):
        await submitter.enqueue([NewItem(id=f"{prefix}-{number}", queue="q", name="note", payload="{}")])
    await submitter.close()
    measure("submitted")
    strategy, done, interval = PollingStrategy.adaptive(), 0, PollingStrategy.adaptive().initial_interval()
    while done < COUNT:
        done += await _work(worker)
    measure("worked")
    began = time.perf_counter()
    while (left := began + IDLE_S - time.perf_counter()) > 0:
        found = await _work(worker)
        interval = strategy.next_interval(interval, found=bool(found))
        await asyncio.sleep(min(left, interval.total_seconds()))
    measure("idle")
    await worker.close()
    return marks


async def _work(worker: S3Provider) -> int:
    fetched = await worker.fetch_work_items(
        ["q"], ["note"], limit=PLACES, lock_timeout=LOCK, poll_timeout=ZERO, fetch_token="f"
    )
    if not isinstance(fetched, Items):
        return 0
    await worker.settle([Ack(item.token) for item in fetched.items])
    return len(fetched.items)


class Measure:
    """Marks phases, each from the last mark on."""

    def __init__(self, server: Server, marks: Marks) -> None:
        self._server, self._marks = server, marks
        self._began, self._before = time.perf_counter(), server.count()

    def __call__(self, phase: str, seconds: float | None = None) -> None:
        took = time.perf_counter() - self._began if seconds is None else seconds
        counts = self._server.count()
        self._marks[phase] = took, counts - self._before
        self._began, self._before = time.perf_counter(), counts


def peer_round(server: Server, python: str) -> Marks:
    marks: Marks = {}
    command = [python, str(Path(__file__).with_name("s3_peer.py")), server.endpoint, BUCKET, str(COUNT)]
    environment = {**os.environ, "BUQUET_ALLOW_NO_VERSIONING": "1"}
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert child.stdin is not None
    assert child.stdout is not None
    measure = Measure(server, marks)
    for line in child.stdout:
        phase, seconds = line.split()
        measure(phase, float(seconds))
        print("", file=child.stdin, flush=True)
    child.kill()
    child.wait()
    return marks


def report(name: str, rounds: list[Marks]) -> None:
    def median(phase: str, value: Callable[[float, Counter[str]], float]) -> float:
        return statistics.median(value(*marks[phase]) for marks in rounds)

    submitted = median("submitted", lambda took, _: COUNT / took)
    worked = median("worked", lambda took, _: COUNT / took)
    asked = median("submitted", lambda _, counts: counts.total() / COUNT)
    asked += median("worked", lambda _, counts: counts.total() / COUNT)
    idle = median("idle", lambda took, counts: counts.total() * 60 / took)
    lists = median("idle", lambda took, counts: counts["LIST"] * 60 / took)
    print(
        f"{name:8} submit {submitted:6.0f}/s   work {worked:6.0f}/s   requests an item {asked:5.2f}", end=""
    )
    print(f"   idle {idle:5.0f} a minute, of these LIST {lists:4.0f}   {dict(rounds[-1]['worked'][1])}")


def main(peer: str | None) -> None:
    os.environ.update(CREDENTIALS)
    server = Server("seaweedfs")
    try:
        server.start()
        ours: list[Marks] = []
        theirs: list[Marks] = []
        for number in range(ROUNDS):
            ours.append(asyncio.run(bide_round(server, f"round{number}")))
            if peer is not None:
                theirs.append(peer_round(server, peer))
        report("bide", ours)
        if theirs:
            report("buquet", theirs)
    finally:
        server.remove()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
