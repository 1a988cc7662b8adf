"""Work through bide beside its peers, on the same machine and the same server, in one run.

python benchmarks/queues.py sqlite [drain] [enqueue] [pickup] [idle]      beside huey
python benchmarks/queues.py postgres [drain] [enqueue] [pickup] [idle]    beside pgqueuer at its best settings

It needs an environment with the peers in it:

    python -m venv .venv-peers
    .venv-peers/bin/pip install -r requirements-dev.txt -r benchmarks/peers.txt && .venv-peers/bin/pip install -e .
    .venv-peers/bin/python benchmarks/queues.py sqlite

Handlers do nothing and are async (huey has only plain ones). One worker process; commits are synced to disk
(SQLite's synchronous=FULL, PostgreSQL's fsync and synchronous_commit). The worker notes when each item was handled
and writes that down at the end. Repeats are taken in turn; figures are medians, with the least and the most.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

DRAIN = 20_000
ONE_BY_ONE = 500
MANY = 20_000
BATCH = 500
PICKUPS = 200
IDLE_S = float(os.environ.get("BENCH_IDLE_S", "30"))
REPEATS = int(os.environ.get("BENCH_REPEATS", "5"))


class Peer(ABC):
    """One library. ``width``: how many items its worker handles or takes at a time."""

    name: str
    kind: str
    width: int
    jobs = DRAIN

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    async def empty(self) -> None:
        """Make the store anew."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def one(self, number: int) -> None: ...

    @abstractmethod
    async def many(self, numbers: list[int]) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def fill(self, count: int) -> None:
        for start in range(0, count, BATCH):
            await self.many(list(range(start, min(start + BATCH, count))))


class Bide(Peer):
    name, kind, width = "bide", "bide", 500

    async def open(self) -> None:
        from bide import App

        self.app = App(self.address)

        @self.app.task
        async def noop(number: int) -> None:
            return None

        self.noop = noop
        self.opened = self.app.open()
        await self.opened.__aenter__()

    async def one(self, number: int) -> None:
        await self.noop.submit(number)

    async def many(self, numbers: list[int]) -> None:
        await self.noop.submit_many([{"number": number} for number in numbers])

    async def close(self) -> None:
        await self.opened.__aexit__(None, None, None)


def remove_file(path: str) -> None:
    for ending in ("", "-wal", "-shm"):
        Path(path + ending).unlink(missing_ok=True)


class BideSqlite(Bide):
    async def empty(self) -> None:
        remove_file("/" + self.address.split("///", 1)[1].lstrip("/"))


class BidePostgres(Bide):
    async def empty(self) -> None:
        await run_sql(self.address, "DROP SCHEMA IF EXISTS bide CASCADE")


class Huey(Peer):
    name, kind, width, jobs = "huey", "huey", 1, 4_000

    async def empty(self) -> None:
        remove_file(self.address)

    async def open(self) -> None:
        from huey import SqliteHuey

        self.queue = SqliteHuey("bench", filename=self.address, results=False)

        def noop(number: int) -> None:
            return None

        self.noop = self.queue.task(name="noop")(noop)

    async def one(self, number: int) -> None:
        self.noop(number)

    async def many(self, numbers: list[int]) -> None:  # it has no call for many
        for number in numbers:
            self.noop(number)

    async def close(self) -> None:
        self.queue.storage.close()


class PgQueuerPeer(Peer):
    name, kind, width = "pgqueuer", "pgqueuer", 100

    async def empty(self) -> None:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        connection = await asyncpg.connect(self.address)
        queries = Queries(AsyncpgDriver(connection))
        try:
            await queries.uninstall()
        except Exception as error:  # it was not there
            print(f"({type(error).__name__} at uninstalling)", file=sys.stderr)
        await queries.install()
        await connection.close()

    async def open(self) -> None:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        self.connection = await asyncpg.connect(self.address)
        self.queries = Queries(AsyncpgDriver(self.connection))

    async def one(self, number: int) -> None:
        await self.queries.enqueue("noop", json.dumps({"number": number}).encode())

    async def many(self, numbers: list[int]) -> None:
        payloads: list[bytes | None] = [json.dumps({"number": number}).encode() for number in numbers]
        await self.queries.enqueue(["noop"] * len(numbers), payloads, [0] * len(numbers))

    async def close(self) -> None:
        await self.connection.close()


async def run_sql(address: str, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(address)
    await connection.execute(statement)
    await connection.close()


# --- measuring -------------------------------------------------------------------------------------------------


@contextmanager
def worker(peer: Peer, count: int) -> Iterator[subprocess.Popen[str]]:
    arguments = [peer.kind, peer.address, str(count), str(peer.width)]
    process = subprocess.Popen(
        [sys.executable, str(HERE / "queue_worker.py"), *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the worker ended"
    return line.strip()


def handled(process: subprocess.Popen[str]) -> list[tuple[int, int]]:
    line = answer(process)
    while line == "ready":
        line = answer(process)
    return [(number, at) for number, at in json.loads(line)]


async def drain(peer: Peer) -> float:
    """Items a second from the first handler to the last."""
    await peer.empty()
    await peer.open()
    await peer.fill(peer.jobs)
    await peer.close()
    with worker(peer, peer.jobs) as process:
        seen = handled(process)
    assert len({number for number, _ in seen}) == peer.jobs, "an item was lost or came twice"
    times = [at for _, at in seen]
    return (len(times) - 1) / ((max(times) - min(times)) / 1e9)


async def enqueue(peer: Peer) -> tuple[float, float]:
    """Items a second: one by one, each awaited, and in batches."""
    await peer.empty()
    await peer.open()
    await peer.one(0)
    began = time.perf_counter()
    for number in range(ONE_BY_ONE):
        await peer.one(number)
    one = ONE_BY_ONE / (time.perf_counter() - began)
    many = min(peer.jobs, MANY)
    began = time.perf_counter()
    await peer.fill(many)
    took = time.perf_counter() - began
    await peer.close()
    return one, many / took


async def pickup(peer: Peer) -> list[float]:
    """Milliseconds from the call of enqueue until the handler began, in another process, one at a time."""
    await peer.empty()
    await peer.open()
    sent: dict[int, int] = {}
    chance = random.Random(7)
    with worker(peer, PICKUPS + 3) as process:
        assert answer(process) == "ready"
        for number in range(-3, PICKUPS):
            await asyncio.sleep(chance.uniform(0.05, 0.1))
            sent[number] = time.monotonic_ns()
            await peer.one(number)
        seen = handled(process)
    await peer.close()
    return [(at - sent[number]) / 1e6 for number, at in seen if number >= 0]


async def idle(peer: Peer) -> tuple[float, float | None]:
    """Per cent of a core of a worker that waits, and statements a minute that it sends to a server."""
    await peer.empty()
    await peer.open()
    with worker(peer, 10**9) as process:
        assert answer(process) == "ready"
        await peer.one(1)
        await asyncio.sleep(5)
        watched = psutil.Process(process.pid)
        statements, cpu, began = await count_statements(peer), cpu_s(watched), time.monotonic()
        await asyncio.sleep(IDLE_S)
        took = time.monotonic() - began
        share = (cpu_s(watched) - cpu) / took * 100
        after = await count_statements(peer)
    await peer.close()
    if statements is None or after is None:
        return share, None
    return share, (after - statements) * 60 / took


async def count_statements(peer: Peer) -> int | None:
    """Statements that the server has run by now, transaction control included; None where there is no server."""
    if not peer.address.startswith("postgresql"):
        return None
    import asyncpg

    connection = await asyncpg.connect(peer.address)
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        count = await connection.fetchval(
            "SELECT sum(calls) FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'"
        )
    finally:
        await connection.close()
    return int(count)


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def compare_drains(peers: list[Peer]) -> None:
    rates: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for _ in range(REPEATS):
        for peer in peers:
            rates[peer.name].append(await drain(peer))
    show("draining, one worker process, items a second", rates)


async def compare_enqueues(peers: list[Peer]) -> None:
    one: dict[str, list[float]] = {peer.name: [] for peer in peers}
    many: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for _ in range(REPEATS):
        for peer in peers:
            single, batched = await enqueue(peer)
            one[peer.name].append(single)
            many[peer.name].append(batched)
    show(f"enqueue one by one ({ONE_BY_ONE}), items a second", one)
    show(f"enqueue in batches of {BATCH}, items a second", many)


async def compare_pickups(peers: list[Peer]) -> None:
    print("pick-up in another process while idle, milliseconds from the call of enqueue to the handler")
    for peer in peers:
        waits = [wait for _ in range(2) for wait in await pickup(peer)]
        p50, p99 = percentile(waits, 0.5), percentile(waits, 0.99)
        print(f"  {peer.name:12}p50 {p50:7.2f}   p99 {p99:7.2f}   p99/p50 {p99 / p50:5.2f}")


async def compare_idle(peers: list[Peer]) -> None:
    print(f"a worker that waits, over {IDLE_S:.0f} s")
    for peer in peers:
        share, statements = await idle(peer)
        sent = "" if statements is None else f"   {statements:6.1f} statements a minute"
        print(f"  {peer.name:12}{share:6.2f} % of a core{sent}")


def show(title: str, rates: dict[str, list[float]]) -> None:
    """Each peer's rates beside those of the last one."""
    print(title)
    *_, (other, others) = rates.items()
    for name, values in rates.items():
        ratio = statistics.median(values) / statistics.median(others)
        spread = f"{statistics.median(values):9,.0f}  ({min(values):,.0f}-{max(values):,.0f})"
        print(f"  {name:12}{spread}   {ratio:5.2f} × {other}", flush=True)


PARTS = {
    "drain": compare_drains,
    "enqueue": compare_enqueues,
    "pickup": compare_pickups,
    "idle": compare_idle,
}


async def compare(peers: list[Peer], parts: list[str]) -> None:
    for part in parts:
        await PARTS[part](peers)


def main() -> None:
    store, *chosen = sys.argv[1:] or ["sqlite"]
    parts = chosen or list(PARTS)
    if store == "sqlite":
        with TemporaryDirectory(dir=".", prefix="bench-") as folder:
            path = Path(folder).resolve()
            peers: list[Peer] = [BideSqlite(f"sqlite:///{path}/bide.db"), Huey(str(path / "huey.db"))]
            asyncio.run(compare(peers, parts))
        return
    from tests.providers.postgres_server import Server

    server = Server(18, durable=True, options=["shared_preload_libraries=pg_stat_statements"])
    server.start()
    try:
        import uvloop

        uvloop.run(compare([BidePostgres(server.address()), PgQueuerPeer(server.address())], parts))
    finally:
        server.remove()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("PYTHONHASHSEED", "0")
    main()
