"""Work on PostgreSQL at the level of the provider, beside a bare loop of asyncpg on the same server.

python benchmarks/postgres_queue.py             everything
python benchmarks/postgres_queue.py drain       taking and acknowledging in batches, items a second
python benchmarks/postgres_queue.py enqueue     enqueueing in batches of 500, items a second
python benchmarks/postgres_queue.py pickup      from enqueueing one item here to having it fetched in another process
python benchmarks/postgres_queue.py idle [S]    statements a minute and CPU of a process that waits for S seconds
python benchmarks/postgres_queue.py million     what a fetch costs beside a million items of other names
python benchmarks/postgres_queue.py size        the table after 100,000 items have passed through it

Each rate is the median of several repeats, taken in turn with the bare loop's. The server is one of its own, on the
disk of the working directory, with fsync and synchronous_commit on. uvloop is used where it is installed.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import asyncpg
import psutil

from bide.clock import SystemClock
from bide.provider import ZERO, Ack, Items, NewItem
from bide.providers.postgres import PostgresProvider
from tests.providers.postgres_server import Server, run_sql

ITEMS = 20_000
REPEATS = 3
BATCH = 100
LOOPS = 8
LOCK = timedelta(seconds=30)
PICKUPS = 300
PAYLOAD = '{"args":[],"kwargs":{"to":"someone@example.org","subject":"hello"}}'

BARE = """
DROP TABLE IF EXISTS bare;
CREATE TABLE bare (id bigserial PRIMARY KEY, payload jsonb NOT NULL, status smallint NOT NULL DEFAULT 0,
    run_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX bare_ready ON bare (run_at, id) WHERE status = 0
"""
BARE_TAKE = """
UPDATE bare SET status = 1 WHERE id IN (
    SELECT id FROM bare WHERE status = 0 AND run_at <= now() ORDER BY run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING id, payload
"""
BARE_ACK = "DELETE FROM bare WHERE id = ANY ($1::bigint[])"
BARE_PUT = "INSERT INTO bare (payload) SELECT unnest($1::jsonb[])"


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """On uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def new(id: str, name: str = "n") -> NewItem:
    return NewItem(id, "default", name, PAYLOAD, max_attempts=5)


async def fetch(provider: PostgresProvider, limit: int = BATCH, wait: timedelta = ZERO) -> tuple[Any, ...]:
    fetched = await provider.fetch_work_items(
        ["default"], ["n"], limit=limit, lock_timeout=LOCK, poll_timeout=wait, fetch_token="f"
    )
    return fetched.items if isinstance(fetched, Items) else ()


class Stage:
    """A provider and bare connections on one server."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def __aenter__(self) -> Stage:
        self.provider = PostgresProvider(self.server.address(options=f"?pool={LOOPS}"), clock=SystemClock())
        await self.provider.open()
        self.bare = [await asyncpg.connect(self.server.address()) for _ in range(LOOPS)]
        await self.bare[0].execute(BARE)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.provider.close()
        for connection in self.bare:
            await connection.close()

    async def sql(self, *statements: str) -> None:
        for statement in statements:
            await run_sql(self.server.address(), statement)

    async def fill(self) -> float:
        """Items a second of enqueueing in batches of 500, one after the other."""
        await self.sql("TRUNCATE bide.work_items", "CHECKPOINT")
        began = time.perf_counter()
        for first in range(0, ITEMS, 500):
            await self.provider.enqueue(
                [new(self.provider._database.clock.new_id()) for _ in range(first, first + 500)]
            )
        rate = ITEMS / (time.perf_counter() - began)
        await self.sql("VACUUM ANALYZE bide.work_items")
        return rate

    async def fill_bare(self) -> float:
        await self.bare[0].execute(BARE)
        await self.sql("CHECKPOINT")
        began = time.perf_counter()
        for _ in range(0, ITEMS, 500):
            await self.bare[0].execute(BARE_PUT, [PAYLOAD] * 500)
        rate = ITEMS / (time.perf_counter() - began)
        await self.sql("VACUUM ANALYZE bare")
        return rate

    async def drain(self, loops: int) -> float:
        async def one() -> None:
            while items := await fetch(self.provider):
                await self.provider.settle([Ack(item.token) for item in items])

        return await _timed([one() for _ in range(loops)])

    async def drain_bare(self, loops: int) -> float:
        async def one(connection: Any) -> None:
            while rows := await connection.fetch(BARE_TAKE, BATCH):
                await connection.execute(BARE_ACK, [row["id"] for row in rows])

        return await _timed([one(connection) for connection in self.bare[:loops]])


async def _timed(loops: list[Coroutine[Any, Any, None]]) -> float:
    """Items a second, and CPU of this process on the side."""
    gc.collect()
    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*loops)
    _CPU.append((time.process_time() - cpu) / ITEMS * 1e6)
    return ITEMS / (time.perf_counter() - began)


_CPU: list[float] = []


async def rates(stage: Stage, *, enqueue: bool, drain: bool) -> None:
    found: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}

    async def note(name: str, measure: Awaitable[float]) -> None:
        _CPU.clear()
        found.setdefault(name, []).append(await measure)
        if _CPU:
            cpu.setdefault(name, []).append(_CPU[-1])

    for _ in range(REPEATS):
        for loops in (1, 2, LOOPS) if drain else (1,):
            await note("enqueue 500, bare", stage.fill_bare())
            if drain:
                await note(f"take {BATCH} then delete, bare, {loops} at a time", stage.drain_bare(loops))
            await note("enqueue 500", stage.fill())
            if drain:
                await note(f"fetch {BATCH} then ack, {loops} at a time", stage.drain(loops))
    for name, values in sorted(found.items()):
        if enqueue or not name.startswith("enqueue"):
            spent = f"  {statistics.median(cpu[name]):5.1f} us of this process each" if name in cpu else ""
            print(
                f"{name:45} {statistics.median(values):8,.0f}/s  ({min(values):,.0f} to {max(values):,.0f}){spent}"
            )


async def waiter(stage: Stage) -> tuple[subprocess.Popen[str], IO[str]]:
    """Another process that waits for work, and what it says."""
    command = [sys.executable, __file__, "wait", stage.server.address()]
    child = await asyncio.to_thread(lambda: subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    assert child.stdout is not None
    await asyncio.to_thread(child.stdout.readline)
    return child, child.stdout


async def pickup(stage: Stage) -> None:
    """Another process waits; it says when it had what was enqueued here."""
    child, said = await waiter(stage)
    took, told, inserted = [], [], []
    for number in range(PICKUPS):
        await asyncio.sleep(0.05 + number % 7 * 0.007)
        began = time.monotonic()
        await stage.bare[0].execute(BARE_PUT, [PAYLOAD])
        inserted.append(time.monotonic() - began)
        began = time.monotonic()
        await stage.provider.enqueue([new(f"pick{time.monotonic_ns()}")])
        told.append(time.monotonic() - began)
        had = await asyncio.to_thread(said.readline)
        took.append(float(had) - began)
    child.kill()
    child.wait()
    took = sorted(took[20:])
    p50, p95, p99 = (took[len(took) * part // 100] * 1e3 for part in (50, 95, 99))
    itself, bare = (statistics.median(part) * 1e3 for part in (told, inserted))
    print(f"pick-up in another process: p50 {p50:.2f} ms, p95 {p95:.2f}, p99 {p99:.2f}", end="; ")
    print(f"enqueueing itself p50 {itself:.2f}, a bare insert of one row {bare:.2f}")


async def wait(address: str) -> None:
    """The other process: fetch, say when, settle."""
    provider = PostgresProvider(address, clock=SystemClock())
    await provider.open()
    print("ready", flush=True)
    while True:
        items = await fetch(provider, 20, timedelta(seconds=30))
        had = time.monotonic()
        for _ in items:
            print(had, flush=True)
        await provider.settle([Ack(item.token) for item in items])


async def idle(stage: Stage, seconds: float) -> None:
    await stage.sql("TRUNCATE bide.work_items", "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    child, _ = await waiter(stage)
    await asyncio.sleep(3)
    count = "SELECT sum(calls) FROM pg_stat_statements WHERE query !~ 'pg_stat_statements'"
    process = psutil.Process(child.pid)
    before, cpu = (await run_sql(stage.server.address(), count))[0][0], sum(process.cpu_times()[:2])
    await asyncio.sleep(seconds)
    calls = int((await run_sql(stage.server.address(), count))[0][0] - before)
    used = sum(process.cpu_times()[:2]) - cpu
    child.kill()
    child.wait()
    print(f"idle: {calls * 60 / seconds:.1f} statements a minute, {used / seconds * 100:.2f} % of a core")


async def million(stage: Stage) -> None:
    """Fetches of 20 while others wait that this worker does not handle."""
    crowd = """
        INSERT INTO bide.work_items (id, queue, name, state, payload, rank, visible_at, enqueued_at)
        SELECT 'other' || at, 'default', 'other' || at % 50, 'ready', '{}', at, at, at
        FROM generate_series($1, $2) AS at
    """
    for first, last in ((1, 1000), (1001, 1_000_000)):
        connection: Any = await asyncpg.connect(stage.server.address())
        await connection.execute(crowd.replace("$1", str(first)).replace("$2", str(last)))
        await connection.execute("VACUUM ANALYZE bide.work_items")
        await connection.close()
        took = []
        for turn in range(200):
            await stage.provider.enqueue([new(f"mine{last}.{turn}.{at}") for at in range(20)])
            began = time.perf_counter()
            items = await fetch(stage.provider, 20)
            took.append(time.perf_counter() - began)
            assert len(items) == 20
            await stage.provider.settle([Ack(item.token) for item in items])
        print(f"fetch of 20 beside {last:9,} others: p50 {statistics.median(took) * 1e3:.2f} ms")


async def size(stage: Stage) -> None:
    await stage.sql("TRUNCATE bide.work_items")
    for _ in range(0, 100_000, 500):
        await stage.provider.enqueue([new(stage.provider._database.clock.new_id()) for _ in range(500)])
        while items := await fetch(stage.provider):
            await stage.provider.settle([Ack(item.token) for item in items])
    query = "SELECT pg_table_size('bide.work_items'), pg_indexes_size('bide.work_items')"
    ((table, indexes),) = await run_sql(stage.server.address(), query)
    await asyncio.sleep(70)  # the server's autovacuum looks once a minute
    ((later, later_indexes),) = await run_sql(stage.server.address(), query)
    sizes = [f"{bytes / 2**20:.1f} MB" for bytes in (table, indexes, later, later_indexes)]
    print(
        "after 100,000 items went through it, 500 at a time: table {}, indexes {}; later {} and {}".format(
            *sizes
        )
    )


def main(what: str = "all", *rest: str) -> None:
    if what == "wait":
        run(wait(*rest))
        return
    options = ("shared_buffers=256MB", "shared_preload_libraries=pg_stat_statements", "max_wal_size=4GB")
    server = Server(18, durable=True, options=options)
    try:
        server.start()
        run(measured(server, what, *rest))
    finally:
        server.remove()


async def measured(server: Server, what: str, seconds: str = "120") -> None:
    parts: dict[str, Callable[[Stage], Awaitable[None]]] = {
        "drain": lambda stage: rates(stage, enqueue=True, drain=True),
        "enqueue": lambda stage: rates(stage, enqueue=True, drain=False),
        "pickup": pickup,
        "idle": lambda stage: idle(stage, float(seconds)),
        "size": size,
        "million": million,
    }
    async with Stage(server) as stage:
        for name, part in parts.items():
            if what == name or (what == "all" and name != "enqueue"):
                await part(stage)


if __name__ == "__main__":
    main(*sys.argv[1:])
