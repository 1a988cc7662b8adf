"""Work on SQLite at the level of the provider, beside a bare loop of the same library and batch size.

python benchmarks/sqlite_queue.py             everything
python benchmarks/sqlite_queue.py drain       enqueueing and draining in batches, items a second
python benchmarks/sqlite_queue.py pickup      from enqueueing one item to having it fetched, in one process and
                                              between two, beside two commits of the same disk
python benchmarks/sqlite_queue.py idle [S]    CPU of a process that waits for S seconds
python benchmarks/sqlite_queue.py million     what a fetch costs beside a million items of other names

Each rate is the median of several repeats taken in turn. Files are made in a temporary folder on the disk of the
working directory, with synchronous=FULL, on a write-ahead log that has its full length already.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw

from bide.clock import SystemClock
from bide.provider import ZERO, Ack, Items, NewItem, Settled
from bide.providers.sqlite import SqliteProvider

ITEMS = 10_000
REPEATS = 5
LOCK = timedelta(seconds=30)
PICKUPS = 200
PAYLOAD = '{"args":[],"kwargs":{"to":"someone@example.org","subject":"hello"}}'


def median_of(repeats: int, *runs: Callable[[], float]) -> list[float]:
    """The median of what each of ``runs`` answers, taken in turn."""
    answers: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for answer, run in zip(answers, runs, strict=True):
            gc.collect()
            answer.append(run())
    return [statistics.median(answer) for answer in answers]


def in_folder(run: Callable[[Path], float]) -> Callable[[], float]:
    def once() -> float:
        with TemporaryDirectory(dir=".") as folder:
            return run(Path(folder) / "queue.db")

    return once


def on_provider(run: Callable[[SqliteProvider], Awaitable[float]]) -> Callable[[], float]:
    async def main(path: Path) -> float:
        provider = SqliteProvider(path, clock=SystemClock())
        await provider.open()
        try:
            await lengthen_log(provider)
            return await run(provider)
        finally:
            await provider.close()

    return in_folder(lambda path: asyncio.run(main(path)))


async def lengthen_log(provider: SqliteProvider) -> None:
    """Write until the log has been folded into the file once, so that what follows overwrites it."""
    for number in range(24):
        await provider.enqueue([new(f"warm{number}.{part}", "warm", "x" * 4000) for part in range(200)])
    while await provider.purge("warm", states=["ready"]):
        pass


def new(id: str, name: str = "n", payload: str = PAYLOAD) -> NewItem:
    queue = "warm" if name == "warm" else "q"
    return NewItem(id=id, queue=queue, name=name, payload=payload, max_attempts=5)


def batches(count: int, size: int) -> Iterator[list[NewItem]]:
    clock = SystemClock()
    for _ in range(0, count, size):
        yield [new(clock.new_id()) for _ in range(size)]


# --- enqueueing and draining -------------------------------------------------------------------------------


def enqueueing(size: int) -> Callable[[], float]:
    async def run(provider: SqliteProvider) -> float:
        given = list(batches(ITEMS, size))
        began = time.perf_counter()
        for batch in given:
            await provider.enqueue(batch)
        return ITEMS / (time.perf_counter() - began)

    return on_provider(run)


def draining(size: int, *, overlapping: bool) -> Callable[[], float]:
    """``overlapping``: what was fetched is settled while the next is fetched, as a dispatcher does."""

    async def run(provider: SqliteProvider) -> float:
        for batch in batches(ITEMS, 500):
            await provider.enqueue(batch)
        began, drained = time.perf_counter(), 0
        settling: asyncio.Future[list[Settled]] | None = None
        while drained < ITEMS:
            fetched = await provider.fetch_work_items(
                ["q"], ["n"], limit=size, lock_timeout=LOCK, poll_timeout=ZERO, fetch_token="f"
            )
            assert isinstance(fetched, Items), fetched
            drained += len(fetched.items)
            if settling is not None:
                await settling
            settling = asyncio.ensure_future(provider.settle([Ack(item.token) for item in fetched.items]))
            if not overlapping:
                await settling
            await asyncio.sleep(0)
        assert settling is not None
        await settling
        return ITEMS / (time.perf_counter() - began)

    return on_provider(run)


def bare(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    connection.execute(
        "CREATE TABLE q (id INTEGER PRIMARY KEY, payload TEXT, state INT DEFAULT 0, run_at INT)"
    )
    connection.execute("CREATE INDEX ready ON q (run_at, id) WHERE state = 0")
    for _ in range(5):
        bare_enqueue(connection, 4000, 400, "x" * 4000)
    connection.execute("DELETE FROM q")
    return connection


def bare_enqueue(connection: apsw.Connection, count: int, size: int, payload: str = PAYLOAD) -> None:
    for _ in range(0, count, size):
        connection.execute("BEGIN IMMEDIATE")
        rows = [(payload, 1) for _ in range(size)]
        connection.executemany("INSERT INTO q (payload, run_at) VALUES (?, ?)", rows)
        connection.execute("COMMIT")


def bare_enqueueing(size: int) -> Callable[[], float]:
    def run(path: Path) -> float:
        connection = bare(path)
        began = time.perf_counter()
        bare_enqueue(connection, ITEMS, size)
        return ITEMS / (time.perf_counter() - began)

    return in_folder(run)


def bare_draining(size: int) -> Callable[[], float]:
    """Take so many, then delete them: two commits."""
    take = (
        "UPDATE q SET state = 1 WHERE id IN (SELECT id FROM q WHERE state = 0 AND run_at <= 2 "
        "ORDER BY run_at, id LIMIT 0 + ?) RETURNING id, payload"
    )

    def run(path: Path) -> float:
        connection = bare(path)
        bare_enqueue(connection, ITEMS, 500)
        began = time.perf_counter()
        while rows := list(connection.execute(take, (size,))):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM q WHERE id = ?", [(id,) for id, _ in rows])
            connection.execute("COMMIT")
        return ITEMS / (time.perf_counter() - began)

    return in_folder(run)


def drain() -> None:
    print(f"{'batch':>5} {'enqueue/s':>10} {'bare':>8} {'drain/s':>9} {'overlapping':>12} {'bare':>8}")
    for size in (50, 200):
        rates = median_of(
            REPEATS,
            enqueueing(size),
            bare_enqueueing(size),
            draining(size, overlapping=False),
            draining(size, overlapping=True),
            bare_draining(size),
        )
        print(
            f"{size:>5} {rates[0]:>10,.0f} {rates[1]:>8,.0f} {rates[2]:>9,.0f} {rates[3]:>12,.0f} {rates[4]:>8,.0f}"
        )


# --- from enqueueing to fetching ----------------------------------------------------------------------------


async def picked_up(
    waiting: SqliteProvider, enqueue: Callable[[int], Awaitable[None]], between: Callable[[], None]
) -> list[float]:
    """Milliseconds from when ``enqueue`` was called to having the item, each time with a fetch that waits."""
    took = []
    for number in range(PICKUPS):
        between()
        fetching = asyncio.ensure_future(
            waiting.fetch_work_items(
                ["q"], ["n"], limit=1, lock_timeout=LOCK, poll_timeout=LOCK, fetch_token="f"
            )
        )
        await asyncio.sleep(0.02 + 0.02 * (number % 7) / 7)
        await enqueue(number)
        fetched = await fetching
        took.append((time.monotonic() - float(fetched.items[0].payload)) * 1000)  # type: ignore[union-attr]
        await waiting.settle([Ack(item.token) for item in fetched.items])  # type: ignore[union-attr]
    return took


def shown(name: str, took: list[float]) -> None:
    took = sorted(took)
    p99 = took[int(len(took) * 0.99) - 1]
    print(f"{name:<34} p50 {statistics.median(took):6.2f} ms   p99 {p99:6.2f} ms")


async def pickup() -> None:
    with TemporaryDirectory(dir=".") as folder:
        provider = SqliteProvider(Path(folder) / "queue.db", clock=SystemClock())
        await provider.open()
        await lengthen_log(provider)
        connection, commits = bare(Path(folder) / "bare.db"), list[float]()

        def commit_twice() -> None:
            began = time.monotonic()
            bare_enqueue(connection, 1, 1)
            bare_enqueue(connection, 1, 1)
            commits.append((time.monotonic() - began) * 1000)

        async def enqueue_here(number: int) -> None:
            await provider.enqueue([new(f"here{number}", payload=str(time.monotonic()))])

        shown("one process", await picked_up(provider, enqueue_here, commit_twice))
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, "enqueue", str(provider.path)), stdin=PIPE, stdout=PIPE
        )
        tell, hear = child.stdin, child.stdout
        assert tell is not None
        assert hear is not None
        await hear.readline()

        async def enqueue_there(_: int) -> None:
            tell.write(b"\n")

        shown("two processes", await picked_up(provider, enqueue_there, commit_twice))
        shown("two bare commits", commits)
        tell.close()
        await child.wait()
        await provider.close()


async def enqueue_when_told(path: str) -> None:
    """The other process: an item for each line of its input, whose payload is the instant that it began."""
    provider = SqliteProvider(path, clock=SystemClock())
    await provider.open()
    print("open", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        clock = SystemClock()
        await provider.enqueue([new(clock.new_id(), payload=str(time.monotonic()))])
    await provider.close()


# --- waiting, and a million others --------------------------------------------------------------------------


async def idle(seconds: float) -> None:
    with TemporaryDirectory(dir=".") as folder:
        provider = SqliteProvider(Path(folder) / "queue.db", clock=SystemClock())
        await provider.open()
        waiting = [
            asyncio.ensure_future(
                provider.fetch_work_items(
                    [queue], ["n"], limit=1, lock_timeout=LOCK, poll_timeout=LOCK * 100, fetch_token=queue
                )
            )
            for queue in ("q", "deliveries")
        ]
        await asyncio.sleep(1)
        began, before = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        used = (time.process_time() - before) / (time.monotonic() - began)
        print(f"idle, two fetches waiting: {used:.3%} of a core")
        for fetching in waiting:
            fetching.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await provider.close()


async def million() -> None:
    """Two files measured in turn, so that a disk that is busy with either slows both."""
    with TemporaryDirectory(dir=".") as folder:
        files = [(count, await beside(Path(folder), count)) for count in (1_000, 1_000_000)]
        took: dict[int, list[float]] = {count: [] for count, _ in files}
        for _ in range(REPEATS * 40):
            for count, provider in files:
                took[count].append(await one_fetch(provider))
        for count, provider in files:
            shown(f"fetch of 20 beside {count:,}", took[count])
            await provider.close()


async def beside(folder: Path, count: int) -> SqliteProvider:
    """A file with so many items of other names."""
    provider, clock = SqliteProvider(folder / f"{count}.db", clock=SystemClock()), SystemClock()
    await provider.open()
    for begin in range(0, count, 5000):
        some = range(begin, min(begin + 5000, count))
        await provider.enqueue([new(clock.new_id(), f"other{number % 20}") for number in some])
    return provider


async def one_fetch(provider: SqliteProvider) -> float:
    """Milliseconds that a fetch of twenty new items takes."""
    clock = SystemClock()
    await provider.enqueue([new(clock.new_id()) for _ in range(20)])
    began = time.perf_counter()
    fetched = await provider.fetch_work_items(
        ["q"], ["n", "m"], limit=20, lock_timeout=LOCK, poll_timeout=ZERO, fetch_token="f"
    )
    took = (time.perf_counter() - began) * 1000
    assert isinstance(fetched, Items)
    await provider.settle([Ack(item.token) for item in fetched.items])
    return took


def main(what: str = "all", *arguments: str) -> None:
    if what == "enqueue":
        asyncio.run(enqueue_when_told(*arguments))
    if what in {"all", "drain"}:
        drain()
    if what in {"all", "pickup"}:
        asyncio.run(pickup())
    if what in {"all", "idle"}:
        asyncio.run(idle(float(arguments[0]) if arguments else 20))
    if what in {"all", "million"}:
        asyncio.run(million())


if __name__ == "__main__":
    main(*sys.argv[1:])
