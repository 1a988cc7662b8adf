"""Work through bide on Valkey beside streaQ, SAQ, taskiq and dramatiq, on the same server, in one run.

python benchmarks/redis_queues.py [drain] [enqueue] [pickup] [idle]

It needs the environment of benchmarks/queues.py. The server is one of its own, without persistence for all, since
the peers' own benchmarks have none. Handlers do nothing and are async; one worker process each, at the settings that
drain best (uvloop, results off). Peers without a call for many are given 100 at a time at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import queues
from queues import Bide, Peer, compare

AT_ONCE = 100


async def flush(address: str) -> None:
    import redis.asyncio as driver

    client = driver.Redis.from_url(address)
    await client.execute_command("FLUSHALL")
    await client.execute_command("FUNCTION", "FLUSH")
    await client.aclose()


class OnRedis(Peer):
    """What its peers have in common."""

    jobs = 4_000

    async def empty(self) -> None:
        await flush(self.address)

    async def many(self, numbers: list[int]) -> None:
        for first in range(0, len(numbers), AT_ONCE):
            await asyncio.gather(*map(self.one, numbers[first : first + AT_ONCE]))


class BideRedis(Bide):
    async def empty(self) -> None:
        await flush(self.address)


class Taskiq(OnRedis):
    width = 100

    async def empty(self) -> None:
        from queue_worker import taskiq_broker

        await flush(self.address)
        broker, _ = taskiq_broker(self.kind, self.address, print)
        broker.is_worker_process = True  # which makes the group of consumers
        await broker.startup()
        await broker.shutdown()

    async def open(self) -> None:
        from queue_worker import taskiq_broker

        self.broker, self.task = taskiq_broker(self.kind, self.address, print)
        await self.broker.startup()

    async def one(self, number: int) -> None:
        await self.task.kiq(number)

    async def close(self) -> None:
        await self.broker.shutdown()


class TaskiqList(Taskiq):
    name = kind = "taskiq-list"


class TaskiqStream(Taskiq):
    name = kind = "taskiq-stream"


class Saq(OnRedis):
    name, kind, width = "saq", "saq", 32

    async def open(self) -> None:
        from saq import Queue

        self.queue = Queue.from_url(self.address)
        await self.queue.connect()

    async def one(self, number: int) -> None:
        await self.queue.enqueue("noop", number=number, ttl=-1)

    async def close(self) -> None:
        await self.queue.disconnect()


class Streaq(OnRedis):
    name, kind, width = "streaq", "streaq", 16

    async def open(self) -> None:
        from queue_worker import streaq_worker

        self.worker, self.task = streaq_worker(self.address, print, self.width)
        await self.worker.__aenter__()

    async def one(self, number: int) -> None:
        await self.task.enqueue(number)

    async def many(self, numbers: list[int]) -> None:
        await self.worker.enqueue_many([self.task.enqueue(number) for number in numbers])

    async def close(self) -> None:
        await self.worker.__aexit__(None, None, None)


class Dramatiq(OnRedis):
    name, kind, width = "dramatiq", "dramatiq", 8

    async def open(self) -> None:
        from queue_worker import dramatiq_actor

        self.broker, self.actor = dramatiq_actor(self.address, print)

    async def one(self, number: int) -> None:
        self.actor.send(number)

    async def close(self) -> None:
        self.broker.close()


async def count_commands(peer: Peer) -> int | None:
    """Commands of clients so far; those that scripts run are not among them."""
    import redis.asyncio as driver

    client: Any = driver.Redis.from_url(peer.address)
    try:
        stats = await client.info("commandstats")
        scripts = {"cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall"}
        if peer.kind == "bide":
            counted = [stats[name] for name in stats if name in {*scripts, "cmdstat_xread"}]
        else:
            counted = list(stats.values())
        return sum(one["calls"] for one in counted)
    finally:
        await client.aclose()


def main() -> None:
    import uvloop

    from tests.providers.redis_server import Server

    queues.count_statements = count_commands
    server = Server()
    server.start()
    try:
        peers: list[Peer] = [
            kind(server.address()) for kind in (BideRedis, TaskiqStream, TaskiqList, Saq, Streaq, Dramatiq)
        ]
        uvloop.run(compare(peers, sys.argv[1:] or list(queues.PARTS)))
    finally:
        server.remove()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    main()
