"""One worker process of benchmarks/queues.py: it handles COUNT items and says when each began.

python benchmarks/queue_worker.py KIND ADDRESS COUNT

Answers ``ready`` when it waits for work, and once COUNT items were handled (or at SIGTERM) one line of JSON: the
monotonic nanosecond at which each number was handled, in that order. Nothing is written in between.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

Mark = Callable[[int], None]


def marker(count: int) -> Mark:
    """Keeps when each number was handled; prints all once there are ``count``."""
    seen: list[tuple[int, int]] = []

    def report(*_: object) -> None:
        os.write(1, f"{json.dumps(seen)}\n".encode())

    def mark(number: int) -> None:
        seen.append((number, time.monotonic_ns()))
        if len(seen) == count:
            report()

    signal.signal(signal.SIGUSR1, report)
    return mark


def ready() -> None:
    os.write(1, b"ready\n")


def bide(address: str, mark: Mark, concurrency: int) -> None:
    from bide import App, WorkerRunOptions

    app = App(address)

    @app.task
    async def noop(number: int) -> None:
        mark(number)

    async def run() -> None:
        async with app.open():
            asyncio.get_running_loop().call_later(0.5, ready)
            await app.worker(concurrency=concurrency).run(WorkerRunOptions())

    loop(run())


def loop(main: Coroutine[Any, Any, None]) -> None:
    import uvloop

    uvloop.run(main)


def pgqueuer(address: str, mark: Mark, batch: int) -> None:
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgPoolDriver

    async def run() -> None:
        pool = await asyncpg.create_pool(address, min_size=10, max_size=10)
        queue = PgQueuer(AsyncpgPoolDriver(pool))

        async def noop(job: Any) -> None:
            mark(json.loads(job.payload)["number"])

        queue.entrypoint("noop")(noop)
        asyncio.get_running_loop().call_later(0.5, ready)
        await queue.run(batch_size=batch, dequeue_timeout=timedelta(seconds=30))

    loop(run())


def huey(path: str, mark: Mark, _: int) -> None:
    from huey import SqliteHuey

    logging.getLogger("huey").setLevel(logging.WARNING)
    queue = SqliteHuey("bench", filename=path, results=False)

    def noop(number: int) -> None:
        mark(number)

    queue.task(name="noop")(noop)
    ready()
    queue.create_consumer().run()


KINDS = {"bide": bide, "pgqueuer": pgqueuer, "huey": huey}

if __name__ == "__main__":
    kind, where, wanted, width = sys.argv[1:5]
    KINDS[kind](where, marker(int(wanted)), int(width))
