"""What a wait costs beside a bare loop of ``asyncio.sleep``: bytes, CPU per wake, and the time to its first attempt.

python benchmarks/waits.py [WAITS]          100000 waits at once, each case in a process of its own

Both ask the same async probe at the same interval with the same jitter; the bare loop has no limit, no rule for
exceptions and no result. ``waiting probe``: the probe has to wait (``asyncio.sleep(0)``), so that its limit is armed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import psutil

from bide import PollingStrategy, poll_until

INTERVAL_S = 8.0
WAKES = 2
ROUNDS = 2
FIRST_ATTEMPTS = 500
MOST_BYTES_MORE = 1536
MOST_TIMES_THE_CPU = 2.0
MOST_FIRST_MS = 1.0
UNWANTED = (
    "pyreqwest",
    "aiohttp",
    "httpx",
    "apsw",
    "sqlite3",
    "asyncpg",
    "pydantic",
    "jmespath",
    "typer",
    "rich",
)

Case = Callable[[Callable[[], Awaitable[int]]], Awaitable[object]]


def is_done(asked: int) -> bool:
    return asked > WAKES


async def bare(probe: Callable[[], Awaitable[int]]) -> None:
    while True:
        if is_done(await probe()):
            return
        await asyncio.sleep(INTERVAL_S * (0.9 + 0.2 * random.random()))


STRATEGY = PollingStrategy.fixed(INTERVAL_S)


async def ours(probe: Callable[[], Awaitable[int]]) -> None:
    await poll_until(
        probe, is_done, strategy=STRATEGY, timeout="10m", retry_on=(ConnectionError, TimeoutError)
    )


class Probe:
    """Counts how often it was asked."""

    __slots__ = ("asked",)
    total = 0

    def __init__(self) -> None:
        self.asked = 0

    async def at_once(self) -> int:
        self.asked += 1
        Probe.total += 1
        return self.asked

    async def waiting(self) -> int:
        await asyncio.sleep(0)
        self.asked += 1
        Probe.total += 1
        return self.asked


async def run(
    case: Case, ask: Callable[[Probe], Callable[[], Awaitable[int]]], waits: int
) -> dict[str, float]:
    """Bytes of resident memory for each wait while all of them sleep, and CPU per wake from then on."""
    probes = [Probe() for _ in range(waits)]
    asks = [ask(probe) for probe in probes]
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    running = [asyncio.ensure_future(case(each)) for each in asks]
    for _ in range(10):  # turns of the loop: every first attempt is made, and all of them sleep
        await asyncio.sleep(0)
    assert Probe.total >= waits
    gc.collect()
    gc.freeze()
    size = (process.memory_info().rss - before) / waits
    began, woken = time.process_time(), Probe.total
    await asyncio.gather(*running)
    return {"bytes": size, "cpu_us": (time.process_time() - began) / (Probe.total - woken) * 1e6}


async def first_attempts() -> dict[str, float]:
    """Milliseconds from the call to the beginning of the first attempt, with settings written as text."""
    took = []
    began = 0.0

    async def probe() -> bool:
        took.append((time.perf_counter() - began) * 1000)
        return True

    for turn in range(FIRST_ATTEMPTS):
        began = time.perf_counter()
        await poll_until(probe, timeout=f"{600 + turn}s", retry_on=OSError, attempt_timeout="10s")
    return {"median": statistics.median(took), "worst": max(took)}


CASES: dict[str, tuple[Case, Callable[[Probe], Callable[[], Awaitable[int]]]]] = {
    "bare": (bare, lambda probe: probe.at_once),
    "ours": (ours, lambda probe: probe.at_once),
    "bare, waiting probe": (bare, lambda probe: probe.waiting),
    "ours, waiting probe": (ours, lambda probe: probe.waiting),
}


def measured(*words: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, *words], check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main(waits: int) -> int:
    missed = []
    figures = least_disturbed(waits)
    print(f"{waits} waits at once, {WAKES} wakes each, every {INTERVAL_S:g} s")
    for name, figure in figures.items():
        print(f"{name:22} {figure['bytes']:7.0f} bytes each   {figure['cpu_us']:6.2f} µs of CPU per wake")
    for suffix in ("", ", waiting probe"):
        theirs, own = figures[f"bare{suffix}"], figures[f"ours{suffix}"]
        more, times = own["bytes"] - theirs["bytes"], own["cpu_us"] / theirs["cpu_us"]
        print(f"beside bare{suffix:15} {more:+7.0f} bytes each   ×{times:.2f}")
        if more > MOST_BYTES_MORE or times > MOST_TIMES_THE_CPU:
            missed.append(f"ours{suffix}")
    first = measured("first")
    print(f"first attempt          {first['median']:.3f} ms after the call, at worst {first['worst']:.3f} ms")
    if first["median"] > MOST_FIRST_MS:
        missed.append("first attempt")
    loaded = loaded_by_import()
    print(
        f"from bide import poll_until   loads none of {', '.join(UNWANTED)}"
        if not loaded
        else f"loads {loaded}"
    )
    for each in (*missed, *loaded):
        print("missed:", each)
    return 1 if missed or loaded else 0


def least_disturbed(waits: int) -> dict[str, dict[str, float]]:
    """The least of each figure over some rounds: whatever else the machine does only adds to them."""
    figures: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for name in CASES:
            figure = measured("case", name, str(waits))
            kept = figures.setdefault(name, figure)
            kept.update({key: min(kept[key], figure[key]) for key in kept})
    return figures


def loaded_by_import() -> list[str]:
    code = f"import sys\nfrom bide import poll_until\nprint(*[n for n in {UNWANTED!r} if n in sys.modules])"
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["case", name, waits]:
            print(json.dumps(asyncio.run(run(*CASES[name], int(waits)))))
        case ["first"]:
            print(json.dumps(asyncio.run(first_attempts())))
        case [waits]:
            sys.exit(main(int(waits)))
        case _:
            sys.exit(main(100_000))
