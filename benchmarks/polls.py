"""Polls of things that do not change, end to end, beside the bare client; and ten thousand of them a minute.

python benchmarks/polls.py              everything
python benchmarks/polls.py rate         unchanged polls (304) through claim, call and record on SQLite, as
                                        GETs a second beside bare loops of pyreqwest and aiohttp
python benchmarks/polls.py steady [S]   10,000 active polls every minute in one process for S seconds:
                                        CPU beyond the bare calls, memory, start lag, spread of the calls

Server, client and database share the machine; the server is a process of its own. Each rate is the median of
several repeats taken in turn. Files are made in a temporary folder on the disk of the working directory, with
SQLite's default here of synchronous=FULL.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import psutil
from pyreqwest.client import ClientBuilder

from bide import App, Event, Package
from bide.telemetry import PollAnswered, Record

CONCURRENCY = 32
POLLS = 6_000
REPEATS = 5
STEADY_POLLS = 10_000


@contextmanager
def origin() -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("origin.py"))], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.terminate()
        server.wait()


def app_of(url: str, folder: str, polls: int, every: str, max_calls: int) -> App:
    """One connection, ``polls`` polls of one operation each."""
    shop = Package("shop")
    changed = Event("PriceChanged", public=True, fields={"symbol": "str", "price": "number"})
    for index in range(polls):
        operation = shop.operation(
            f"price{index}", get=f"/price?i={index}", answer={"symbol": "str", "price": "number"}
        )
        shop.poll(f"p{index}", call=operation, every=every, emits=changed)
    app = App("sqlite:///bench.db", folder=folder, max_calls=max_calls)
    app.connect("eu", shop, base_url=url, max_concurrent=max_calls)

    @app.subscribe("shop.PriceChanged")
    async def hear(delivery: object) -> None:
        return None

    return app


# --- rate ----------------------------------------------------------------------------------------------------


async def bare_loop(get: Callable[[], Awaitable[int]], count: int) -> float:
    """GETs a second of ``CONCURRENCY`` loops."""
    statuses: Counter[int] = Counter()

    async def loop(times: int) -> None:
        for _ in range(times):
            statuses[await get()] += 1

    began = time.perf_counter()
    await asyncio.gather(*(loop(count // CONCURRENCY) for _ in range(CONCURRENCY)))
    took = time.perf_counter() - began
    assert set(statuses) == {304}, statuses
    return statuses.total() / took


@asynccontextmanager
async def bare_pyreqwest(url: str) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    async with ClientBuilder().build() as client:

        async def get() -> int:
            response = await client.get(f"{url}/price").header("If-None-Match", '"v1"').build().send()
            await response.bytes()
            return response.status

        yield get


@asynccontextmanager
async def bare_aiohttp(url: str) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def get() -> int:
            async with session.get(f"{url}/price", headers={"If-None-Match": '"v1"'}) as response:
                await response.read()
                return response.status

        yield get


async def rate() -> None:
    rates: dict[str, list[float]] = {"bare pyreqwest": [], "bare aiohttp": [], "bide tick": []}
    with origin() as url, TemporaryDirectory(dir=".", prefix="bench-") as folder:
        app = app_of(url, folder, POLLS, "1m", max_calls=CONCURRENCY)
        async with app.open(), bare_pyreqwest(url) as reqwest, bare_aiohttp(url) as aio:
            report = await app.tick()
            assert len(report.changed) == POLLS, report.failed[:3]
            for _ in range(REPEATS):
                rates["bare pyreqwest"].append(await bare_loop(reqwest, POLLS))
                rates["bare aiohttp"].append(await bare_loop(aio, POLLS))
                await app.provider.poll_now([f"eu.p{index}" for index in range(POLLS)])
                gc.collect()
                began = time.perf_counter()
                report = await app.tick()
                rates["bide tick"].append(POLLS / (time.perf_counter() - began))
                assert len(report.unchanged) == POLLS, report.failed[:3]
    print(f"unchanged polls (304), {CONCURRENCY} at a time, {POLLS} a repeat, GETs a second")
    bare = statistics.median(rates["bare pyreqwest"])
    for name, values in rates.items():
        middle = statistics.median(values)
        print(
            f"{name:16} {middle:8,.0f}  ({min(values):,.0f}-{max(values):,.0f})   {middle / bare:6.1%} of bare"
        )


# --- steady --------------------------------------------------------------------------------------------------


async def steady(seconds: float) -> None:
    process = psutil.Process()
    lags: list[int] = []
    starts: Counter[int] = Counter()

    def hear(record: Record) -> None:
        if isinstance(record, PollAnswered):
            lags.append(record.lag_ms)
            starts[int(time.monotonic() - record.elapsed_ms / 1000)] += 1

    with origin() as url, TemporaryDirectory(dir=".", prefix="bench-") as folder:
        app = app_of(url, folder, STEADY_POLLS, "1m", max_calls=200)
        async with app.open():
            app.telemetry.listen(hear)
            stopping = asyncio.Event()
            running = asyncio.ensure_future(app.run(stopping))
            await asyncio.sleep(100)  # the first calls, spread, and one whole interval
            ramp = dict(starts)
            lags.clear()
            starts.clear()
            cpu, began = cpu_s(process), time.monotonic()
            await asyncio.sleep(seconds)
            took = time.monotonic() - began
            cpu = cpu_s(process) - cpu
            memory = process.memory_info().rss / 1e6
            calls, measured = len(lags), sorted(lags)
            stopping.set()
            await running
        bare_cpu = await bare_calls_cpu(url, calls, took)
    even = STEADY_POLLS / 60
    busiest = max(starts.values())
    print(f"{STEADY_POLLS:,} polls every minute in one process, {took:.0f} s, {calls / took:.0f} calls/s")
    beyond = (cpu - bare_cpu) / took
    print(f"CPU {cpu / took:6.2%} of a core; the bare calls {bare_cpu / took:6.2%}; beyond {beyond:6.2%}")
    print(f"memory         {memory:6.0f} MB resident")
    print(
        f"start lag      p50 {measured[len(measured) // 2]} ms, p99 {measured[len(measured) * 99 // 100]} ms"
    )
    print(
        f"calls a second at most {busiest} = {busiest / even:.2f} × the even {even:.0f}; "
        f"in the first interval at most {max(ramp.values()) / even:.2f} ×"
    )


async def bare_calls_cpu(url: str, calls: int, seconds: float) -> float:
    """CPU seconds of the same calls made by the bare client at the same even rate in this process."""
    process = psutil.Process()
    gap = seconds / calls
    async with bare_pyreqwest(url) as get:
        await get()
        cpu, began = cpu_s(process), time.monotonic()
        async with asyncio.TaskGroup() as calling:
            for index in range(calls):
                calling.create_task(called(get))
                await asyncio.sleep(max(0.0, began + index * gap - time.monotonic()))
        return cpu_s(process) - cpu


async def called(get: Callable[[], Awaitable[int]]) -> None:
    await get()


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    which = sys.argv[1] if len(sys.argv) > 1 else "all"
    if which in ("rate", "all"):
        asyncio.run(rate())
    if which in ("steady", "all"):
        asyncio.run(steady(float(sys.argv[2]) if len(sys.argv) > 2 else 60))
