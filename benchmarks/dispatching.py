"""What the dispatcher costs for each item, and how fast it drains a queue.

python benchmarks/dispatching.py                 everything
python benchmarks/dispatching.py loop            the loop alone, over a provider that does nothing: µs an item,
                                                 with handlers that do nothing and ones that wait a turn
python benchmarks/dispatching.py sqlite          draining a queue in a file, beside the bare provider: fetches and
                                                 settlements of the same sizes, in turn, with nothing between them
python benchmarks/dispatching.py idle            pick-up: from the end of enqueue until the handler begins, on SQLite

Each figure is the median of several repeats. CPU is that of the whole process and, where it says so, of the main
thread alone. Files are made in a temporary folder on the disk of the working directory, with synchronous=FULL.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from bide.clock import SystemClock
from bide.engine.dispatcher import Dispatcher, DispatcherSettings
from bide.engine.outcome import Outcome, Succeeded
from bide.provider import Ack, Empty, Fetched, Items, NewItem, Settled, Settlement, Work, WorkItem
from bide.providers.sqlite import SqliteProvider
from bide.telemetry import Telemetry

ITEMS = 20_000
REPEATS = 5
LOCK = timedelta(seconds=30)


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
    """One drain of ``count`` items: seconds, and CPU of the process and of the main thread."""

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

    async def measure(self) -> tuple[float, float, float]:
        gc.collect()
        began, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
        await self._dispatcher.run(self._stopping)
        return time.perf_counter() - began, time.process_time() - cpu, time.thread_time() - thread


def report(what: str, count: int, runs: list[tuple[float, float, float]]) -> None:
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


async def filled(folder: str, name: str) -> SqliteProvider:
    provider = SqliteProvider(Path(folder) / f"{name}.db", clock=SystemClock())
    await provider.open()
    for at in range(0, ITEMS, 1000):
        await provider.enqueue([NewItem(f"i{at + n}", "q", "n", "{}", max_attempts=5) for n in range(1000)])
    return provider


async def bare(provider: Work, batch: int) -> tuple[float, float, float]:
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


async def sqlite() -> None:
    with TemporaryDirectory(dir=".") as folder:
        for concurrency in (20, 100, 200):
            runs: list[tuple[float, float, float]] = []
            bares: list[tuple[float, float, float]] = []
            for repeat in range(REPEATS):
                provider = await filled(folder, f"drain-{concurrency}-{repeat}")
                runs.append(await Drain(provider, nothing, concurrency, ITEMS).measure())
                await provider.close()
                provider = await filled(folder, f"bare-{concurrency}-{repeat}")
                bares.append(await bare(provider, concurrency))
                await provider.close()
            report(f"sqlite, dispatcher, {concurrency}", ITEMS, runs)
            report(f"sqlite, bare fetch and settle, {concurrency}", ITEMS, bares)


async def idle() -> None:
    with TemporaryDirectory(dir=".") as folder:
        provider = SqliteProvider(Path(folder) / "idle.db", clock=SystemClock())
        await provider.open()
        began: dict[str, float] = {}

        async def handle(item: WorkItem) -> Outcome:
            began[item.id] = time.perf_counter()
            return Succeeded()

        drain = Drain(provider, handle, 20, 300)
        running = asyncio.ensure_future(drain.measure())
        await asyncio.sleep(0.2)
        sent: dict[str, float] = {}
        for n in range(300):
            sent[f"i{n}"] = time.perf_counter()
            await provider.enqueue([NewItem(f"i{n}", "q", "n", "{}")])
            await asyncio.sleep(0.01)
        await running
        waits = sorted((began[each] - sent[each]) * 1000 for each in sent)
        p50, p99 = statistics.median(waits), waits[int(len(waits) * 0.99)]
        print(f"idle pick-up on sqlite, from the call of enqueue: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
        await provider.close()


PARTS = {"loop": loop_alone, "sqlite": sqlite, "idle": idle}

if __name__ == "__main__":
    for part in sys.argv[1:] or list(PARTS):
        asyncio.run(PARTS[part]())
