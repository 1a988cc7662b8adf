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
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
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


def taskiq_broker(kind: str, address: str, mark: Mark) -> tuple[Any, Any]:
    import taskiq_redis

    brokers = {"taskiq-list": taskiq_redis.ListQueueBroker, "taskiq-stream": taskiq_redis.RedisStreamBroker}
    broker = brokers[kind](address)

    @broker.task(task_name="noop")
    async def noop(number: int) -> None:
        mark(number)

    return broker, noop


def taskiq(kind: str, address: str, mark: Mark, tasks: int) -> None:
    from taskiq.api import run_receiver_task

    async def run() -> None:
        broker, _ = taskiq_broker(kind, address, mark)
        broker.is_worker_process = True
        asyncio.get_running_loop().call_later(1.0, ready)
        await run_receiver_task(broker, max_async_tasks=tasks, run_startup=True)

    loop(run())


def saq(address: str, mark: Mark, concurrency: int) -> None:
    from saq import Queue, Worker

    async def noop(context: Any, *, number: int) -> None:
        mark(number)

    async def run() -> None:
        queue = Queue.from_url(address)
        await queue.connect()
        asyncio.get_running_loop().call_later(1.0, ready)
        await Worker(queue, functions=[("noop", noop)], concurrency=concurrency).start()

    loop(run())


def streaq_worker(address: str, mark: Mark, concurrency: int) -> tuple[Any, Any]:
    from streaq import Worker

    worker: Any = Worker(redis_url=address, concurrency=concurrency, anyio_kwargs={"use_uvloop": True})

    @worker.task(name="noop", ttl=0, silent=True)
    async def noop(number: int) -> None:
        mark(number)

    return worker, noop


def streaq(address: str, mark: Mark, concurrency: int) -> None:
    threading.Timer(2.0, ready).start()
    streaq_worker(address, mark, concurrency)[0].run_sync()


def dramatiq_actor(address: str, mark: Mark) -> tuple[Any, Any]:
    import dramatiq as library
    from dramatiq.brokers.redis import RedisBroker
    from dramatiq.middleware import AsyncIO

    broker = RedisBroker(url=address)
    broker.add_middleware(AsyncIO())
    library.set_broker(broker)

    @library.actor(broker=broker, actor_name="noop")
    async def noop(number: int) -> None:
        mark(number)

    return broker, noop


def dramatiq(address: str, mark: Mark, threads: int) -> None:
    import dramatiq as library

    broker, _ = dramatiq_actor(address, mark)
    library.Worker(broker, worker_threads=threads).start()
    ready()
    signal.sigwait([signal.SIGTERM])


KINDS: dict[str, Callable[[str, Mark, int], None]] = {
    "bide": bide,
    "pgqueuer": pgqueuer,
    "huey": huey,
    "taskiq-list": partial(taskiq, "taskiq-list"),
    "taskiq-stream": partial(taskiq, "taskiq-stream"),
    "saq": saq,
    "streaq": streaq,
    "dramatiq": dramatiq,
}

if __name__ == "__main__":
    kind, where, wanted, width = sys.argv[1:5]
    KINDS[kind](where, marker(int(wanted)), int(width))
