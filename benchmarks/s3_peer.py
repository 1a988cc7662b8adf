"""Buquet's side of benchmarks/s3_queue.py, for a Python that has it (benchmarks/s3_peers.txt).

python s3_peer.py ENDPOINT BUCKET COUNT: submits so many tasks one after another, works them off, and says how long
each took. Settings are its defaults, with adaptive polling, which its documents recommend.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from typing import Any

buquet: Any = importlib.import_module("buquet")  # not there where the rest of the project is checked

SHARDS = list("0123456789abcdef")
IDLE_S = 10.0


async def main(endpoint: str, bucket: str, count: int) -> None:
    queue = await buquet.connect(endpoint=endpoint, bucket=bucket, region="us-east-1")
    began = time.perf_counter()
    for number in range(count):
        await queue.submit("note", {"n": number})
    say("submitted", time.perf_counter() - began)
    worker = buquet.Worker(queue, "worker", SHARDS)
    left = count
    done = asyncio.Event()

    async def note(given: dict[str, int]) -> dict[str, int]:
        nonlocal left
        left -= 1
        if left == 0:
            done.set()
        return {}

    worker.task("note")(note)
    began = time.perf_counter()
    polling = buquet.PollingStrategy.adaptive(
        min_interval_ms=100, max_interval_ms=5000, backoff_multiplier=2.0
    )
    options = buquet.WorkerRunOptions(polling=polling, with_monitor=False)
    running = asyncio.ensure_future(worker.run(options))
    await done.wait()
    say("worked", time.perf_counter() - began)
    await asyncio.sleep(IDLE_S)
    say("idle", IDLE_S)
    running.cancel()


def say(what: str, seconds: float) -> None:
    print(what, seconds, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
