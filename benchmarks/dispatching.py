"""What the dispatcher costs for each item, and how fast it drains a queue.

python benchmarks/dispatching.py                  everything, on SQLite
python benchmarks/dispatching.py loop             the loop alone, over a provider that does nothing, with handlers
                                                  that do nothing and ones that wait a turn of the event loop
python benchmarks/dispatching.py drain [ADDRESS]  draining a queue of a store, beside the bare provider: fetches
                                                  and settlements of the same sizes in turn, nothing between them
python benchmarks/dispatching.py idle [ADDRESS]   pick-up: from enqueue until the handler begins

Each figure is the median of several repeats; CPU is that of the whole process, and of its main thread alone. A file
of SQLite is made in a temporary folder on the disk of the working directory, with synchronous=FULL.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from bide.clock import SystemClock
from bide.engine.dispatcher import Dispatcher, DispatcherSettings
from bide.engine.outcome import Outcome, Succeeded
from bide.provider import Ack, Empty, Fetched, Items, NewItem, Provider, Settled, Settlement, Work, WorkItem
from bide.stores import open_provider
from bide.telemetry import Telemetry

ITEMS = 20_000
PICKED_UP = 300
REPEATS = 5
LOCK = timedelta(seconds=30)

Run = tuple[float, float, float]
"""Seconds, and seconds of CPU of the process and of the main thread."""


class NullProvider:
    """Hands out items that exist already and forgets them: no work of its own."""

    def __init__(self, count: int) -> None:
        self._items = [
            WorkItem(f"i{n}", "q", "n", "{}", f"{n}:t", 1, 0, 0, None, 5, None) for n in range(count)
        ]
        self._at = 0

    async def fetch_work_items(
        self, queues: Collection[str], names: Collection[str], **how: object
    ) -> Fetched:
        await asyncio.sleep(0)
        limit = how["limit"]
        assert isinstance(limit, int)
        items = tuple(self._items[self._at : self._at + limit])
        self._at += len(items)
        return Items(items) if items else Empty()

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        await asyncio.sleep(0)
        return ["settled"] * len(settlements)

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        return [True] * len(tokens)

    async def release(self, fetch_token: str) -> int:
        return 0

    async def wake(self) -> None:
        return None

    async def enqueue(self, items: Sequence[NewItem]) -> list[object]:
        raise NotImplementedError


async def nothing(item: WorkItem) -> Outcome:
    return Succeeded()


async def a_turn(item: WorkItem) -> Outcome:
    await asyncio.sleep(0)
    return Succeeded()


class Drain:
    """One drain of ``count`` items."""

    def __init__(self, provider: Work, handle: object, concurrency: int, count: int) -> None:
        self._left = count
        self._stopping = asyncio.Event()
        self._dispatcher = Dispatcher(
            provider,
            handle,  # type: ignore[arg-type]
            queues=["q"],
            places={"n": concurrency},
            clock=SystemClock(),
            telemetry=Telemetry(),
            told=self._tell,
            settings=DispatcherSettings(concurrency=concurrency),
        )

    def _tell(self, item: WorkItem, outcome: Outcome, lost: bool, elapsed_s: float) -> None:
        self._left -= 1
        if not self._left:
            self._stopping.set()

    async def measure(self) -> Run:
        gc.collect()
        began, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
        await self._dispatcher.run(self._stopping)
        return time.perf_counter() - began, time.process_time() - cpu, time.thread_time() - thread


def report(what: str, count: int, runs: list[Run]) -> None:
    took, cpu, thread = (statistics.median(run[each] for run in runs) for each in range(3))
    print(
        f"{what:42} {count / took:9,.0f}/s   {took / count * 1e6:6.1f} µs an item; "
        f"CPU {cpu / count * 1e6:5.1f} µs, main thread {thread / count * 1e6:5.1f} µs"
    )


async def loop_alone() -> None:
    for name, handle in (("handlers that do nothing", nothing), ("handlers that wait a turn", a_turn)):
        for concurrency in (20, 100, 200):
            runs = []
            for _ in range(REPEATS):
                provider = NullProvider(ITEMS)
                runs.append(await Drain(provider, handle, concurrency, ITEMS).measure())  # type: ignore[arg-type]
            report(f"loop, {name}, {concurrency}", ITEMS, runs)


@asynccontextmanager
async def opened(address: str, count: int = 0) -> AsyncIterator[Provider]:
    """The store at ``address``, with ``count`` items waiting in it."""
    with TemporaryDirectory(dir=".") as folder:
        provider = open_provider(address, Path(folder), SystemClock())
        await provider.open()
        for _ in range(0, count, 1000):
            new = [NewItem(uuid4().hex, "q", "n", "{}", max_attempts=5) for _ in range(1000)]
            await provider.enqueue(new)
        yield provider
        await provider.close()


async def bare(provider: Work, batch: int) -> Run:
    """Fetch and settle in turn, nothing else."""
    began, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
    left = ITEMS
    while left > 0:
        fetched = await provider.fetch_work_items(
            ["q"], ["n"], limit=batch, lock_timeout=LOCK, poll_timeout=timedelta(), fetch_token=f"f{left}"
        )
        assert isinstance(fetched, Items)
        await provider.settle([Ack(item.token) for item in fetched.items])
        left -= len(fetched.items)
    return time.perf_counter() - began, time.process_time() - cpu, time.thread_time() - thread


async def drain(address: str) -> None:
    for concurrency in (20, 100, 200):
        runs: list[Run] = []
        bares: list[Run] = []
        for _ in range(REPEATS):
            async with opened(address, ITEMS) as provider:
                runs.append(await Drain(provider, nothing, concurrency, ITEMS).measure())
            async with opened(address, ITEMS) as provider:
                bares.append(await bare(provider, concurrency))
        kind = address.partition(":")[0]
        report(f"{kind}, dispatcher, {concurrency}", ITEMS, runs)
        report(f"{kind}, bare fetch and settle, {concurrency}", ITEMS, bares)


async def idle(address: str) -> None:
    began: dict[str, float] = {}
    sent: dict[str, float] = {}
    ended: dict[str, float] = {}

    async def handle(item: WorkItem) -> Outcome:
        began[item.id] = time.perf_counter()
        return Succeeded()

    async with opened(address) as provider:
        run = Drain(provider, handle, 20, PICKED_UP)
        running = asyncio.ensure_future(run.measure())
        await asyncio.sleep(0.2)
        for _ in range(PICKED_UP):
            id = uuid4().hex
            sent[id] = time.perf_counter()
            await provider.enqueue([NewItem(id, "q", "n", "{}")])
            ended[id] = time.perf_counter()
            await asyncio.sleep(0.01)
        await running
    for what, since in (("the call of enqueue", sent), ("its return", ended)):
        waits = sorted((began[id] - since[id]) * 1000 for id in since)
        p50, p99 = statistics.median(waits), waits[int(len(waits) * 0.99)]
        print(f"idle pick-up since {what:22} p50 {p50:6.2f} ms, p99 {p99:6.2f} ms")


if __name__ == "__main__":
    part, address = (*sys.argv[1:], *("all", "sqlite:///bench.db")[len(sys.argv) - 1 :])[:2]
    if part in ("all", "loop"):
        asyncio.run(loop_alone())
    if part in ("all", "drain"):
        asyncio.run(drain(address))
    if part in ("all", "idle"):
        asyncio.run(idle(address))
