"""Work on SQS at the level of the provider, beside a bare loop of aiobotocore on the same emulator.

python benchmarks/sqs_queue.py             everything but idle
python benchmarks/sqs_queue.py enqueue     sending in batches, items a second
python benchmarks/sqs_queue.py drain       receiving and acknowledging, items a second and requests an item
python benchmarks/sqs_queue.py idle [S]    receives a minute of one that waits on a queue for S seconds (61)

The server is MiniStack on loopback, one process of Python, which takes more time for a request than the client does:
rates compare the two ways of asking, and say nothing of AWS. Each is the median of several repeats, in turn.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from bide.clock import SystemClock
from bide.provider import ZERO, Ack, Items, NewItem
from bide.providers.sqs import SqsProvider
from tests.providers.sqs_server import CREDENTIALS, Emulator

ITEMS = 1000
REPEATS = 3
LOOPS = 4
BATCH = 10
LOCK = timedelta(seconds=30)
PAYLOAD = '{"args":[],"kwargs":{"to":"someone@example.org","subject":"hello"}}'

Act = Callable[[], Awaitable[None]]


async def in_turn(ours: Act, bare: Act, prepare: tuple[Act, Act]) -> tuple[float, float]:
    """Items a second of both, the medians."""
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
        for which, act in enumerate((ours, bare)):
            await prepare[which]()
            began = time.perf_counter()
            await act()
            rates[which].append(ITEMS / (time.perf_counter() - began))
    return statistics.median(rates[0]), statistics.median(rates[1])


async def put(provider: SqsProvider) -> None:
    """Send all items, as one call."""
    clock = SystemClock()
    await provider.enqueue([NewItem(clock.new_id(), "default", "n", PAYLOAD) for _ in range(ITEMS)])


async def drain(provider: SqsProvider) -> None:
    """Take and acknowledge until nothing is left, in several loops."""

    async def loop(number: int) -> None:
        while isinstance(fetched := await fetch(provider, f"f{number}", ZERO), Items):
            await provider.settle([Ack(item.token) for item in fetched.items])

    await asyncio.gather(*(loop(number) for number in range(LOOPS)))


async def fetch(provider: SqsProvider, by: str, wait: timedelta) -> object:
    return await provider.fetch_work_items(
        ["default"], ["n"], limit=BATCH, lock_timeout=LOCK, poll_timeout=wait, fetch_token=by
    )


async def bare_put(client: Any, url: str) -> None:
    async def send(_: int) -> None:
        entries = [{"Id": str(index), "MessageBody": PAYLOAD} for index in range(10)]
        await client.send_message_batch(QueueUrl=url, Entries=entries)

    room = asyncio.Semaphore(8)

    async def bounded(number: int) -> None:
        async with room:
            await send(number)

    await asyncio.gather(*(bounded(number) for number in range(ITEMS // 10)))


async def bare_drain(client: Any, url: str) -> None:
    async def loop() -> None:
        while messages := (await client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)).get(
            "Messages"
        ):
            entries = [
                {"Id": str(index), "ReceiptHandle": one["ReceiptHandle"]}
                for index, one in enumerate(messages)
            ]
            await client.delete_message_batch(QueueUrl=url, Entries=entries)

    await asyncio.gather(*(loop() for _ in range(LOOPS)))


async def nothing() -> None:
    """Nothing to prepare."""


async def rates(server: Emulator, what: str) -> None:
    provider = SqsProvider(server.address("bench"), clock=SystemClock())
    await provider.open()
    config = AioConfig(max_pool_connections=64, parameter_validation=False)
    making = get_session().create_client("sqs", "eu-west-1", endpoint_url=server.endpoint, config=config)
    async with making as client:
        url = (await client.create_queue(QueueName="bare"))["QueueUrl"]
        if what in {"enqueue", "all"}:

            async def empty() -> None:
                await drain(provider)

            async def bare_empty() -> None:
                await bare_drain(client, url)

            ours, bare = await in_turn(
                lambda: put(provider), lambda: bare_put(client, url), (empty, bare_empty)
            )
            print(f"enqueue: bide {ours:,.0f} items/s, bare {bare:,.0f} items/s ({ours / bare:.0%})")
            await asyncio.gather(drain(provider), bare_drain(client, url))
        if what in {"drain", "all"}:
            ours, bare = await in_turn(
                lambda: drain(provider),
                lambda: bare_drain(client, url),
                (lambda: put(provider), lambda: bare_put(client, url)),
            )
            print(f"drain: bide {ours:,.0f} items/s, bare {bare:,.0f} items/s ({ours / bare:.0%})")
            before = sum(provider.requests().values())
            await put(provider)
            await drain(provider)
            asked = sum(provider.requests().values()) - before
            print(f"requests an item, from its submission to its end: {asked / ITEMS:.3f}")
    await provider.close()


async def idle(server: Emulator, seconds: float) -> None:
    provider = SqsProvider(server.address("idle"), clock=SystemClock())
    await provider.open()
    await fetch(provider, "first", ZERO)
    before, began, cpu = dict(provider.requests()), time.monotonic(), time.process_time()
    while time.monotonic() < began + seconds:
        await fetch(provider, "idle", timedelta(seconds=30))
    elapsed, cpu = time.monotonic() - began, time.process_time() - cpu
    asked = {key: count - before.get(key, 0) for key, count in provider.requests().items()}
    minute = {key: round(count * 60 / elapsed, 2) for key, count in asked.items() if count}
    print(f"idle for {elapsed:.1f} s: {minute} a minute; {cpu / elapsed:.2%} of a core")
    await provider.close()


def main() -> None:
    os.environ |= CREDENTIALS
    what = sys.argv[1] if len(sys.argv) > 1 else "all"
    server = Emulator(clocked=False)
    try:
        if what == "idle":
            asyncio.run(idle(server, float(sys.argv[2]) if len(sys.argv) > 2 else 61))
        else:
            asyncio.run(rates(server, what))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
