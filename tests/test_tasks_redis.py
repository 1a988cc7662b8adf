"""Tasks of a fleet on Valkey: real workers, a kill -9, a server that restarts, limits, periodic tasks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bide import App, KeyConflict, Task
from tests.providers.redis_server import Server
from tests.servers import eventually

TASKS = """
import asyncio
from bide import App

app = App("{address}", environment={{}})


@app.task(lock_timeout="1s", keep_result="1h")
async def add(one: int, other: int, pause: float = 0) -> int:
    print("began", one, flush=True)
    await asyncio.sleep(pause)
    return one + other
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server(durable=True)
    try:
        started.start()
        yield started
    finally:
        started.remove()


@asynccontextmanager
async def working(*apps: App) -> AsyncIterator[None]:
    """Workers of open apps, running meanwhile."""
    stopping = asyncio.Event()
    running = [asyncio.create_task(app.worker().run(stopping=stopping)) for app in apps]
    try:
        yield
    finally:
        stopping.set()
        for worker in running:
            await worker


def worker(folder: Path) -> subprocess.Popen[str]:
    """``bide worker`` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "bide", "worker", "tasks_on_redis:app"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    """As a crash does."""
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    assert process.stdout is not None
    process.stdout.close()


async def line_of(process: subprocess.Popen[str], begin: str) -> str:
    assert process.stdout is not None
    while line := await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 60):
        if line.startswith(begin):
            return line
    raise AssertionError("the worker ended")


async def test_a_worker_that_is_killed_loses_nothing_and_a_restart_of_the_server_stops_nobody(
    server: Server, tmp_path: Path
) -> None:
    address = server.address("?prefix=killed")
    (tmp_path / "tasks_on_redis.py").write_text(TASKS.format(address=address))
    app = App(address, environment={})

    @app.task(name="add", keep_result="1h")
    async def add(one: int, other: int, pause: float = 0) -> int:
        raise NotImplementedError

    async with app.open():
        handle = await add.submit(1, 2, 60.0)
        first = worker(tmp_path)
        try:
            await line_of(first, "began 1")
        finally:
            end(first)
        second = worker(tmp_path)
        try:
            await line_of(second, "began 1")  # once the lock of the dead is over
            status = await handle.status()
            assert status is not None
            assert status.attempts == 2
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            other = await add.submit(20, 22)
            assert await other.result(timeout="60s") == 42
        finally:
            end(second)


async def test_a_fleet_handles_each_item_once_within_its_limits_and_keeps_results(server: Server) -> None:
    running: Counter[str] = Counter()
    most: list[int] = []

    def member() -> tuple[App, Task[..., Any]]:
        app = App(server.address("?prefix=fleet"), environment={})
        app.queue("limited", limit=3, per_key=1)

        @app.task(queue="limited", keep_result="1h")
        async def work(whose: str, item: int) -> int:
            running[whose] += 1
            most.append(running.total())
            assert running[whose] == 1
            await asyncio.sleep(0.01)
            running[whose] -= 1
            return item

        return app, work

    members = [member() for _ in range(3)]
    async with AsyncExitStack() as stack:
        for app, _ in members:
            await stack.enter_async_context(app.open())
        _, work = members[0]
        handles = [
            handle
            for whose in "abcdef"
            for handle in await work.submit_many([(whose, item) for item in range(8)], limit_key=whose)
        ]
        async with working(*(app for app, _ in members)):
            results = [await handle.result(timeout="60s") for handle in handles]
        assert results == list(range(8)) * 6
        assert max(most) <= 3
        with pytest.raises(KeyConflict):
            await work.submit_many([("a", 1), ("a", 2)], keys=["same", "same"])


async def test_a_fleet_runs_a_periodic_task_once(server: Server) -> None:
    heard: list[float] = []

    def member() -> App:
        app = App(server.address("?prefix=periodic"), environment={})

        @app.task(queue="clockwork", cron="* * * * * *", timezone="America/New_York")
        async def beat() -> None:
            heard.append(asyncio.get_running_loop().time())

        return app

    apps = [member() for _ in range(3)]
    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app.open())
        async with working(*apps):
            await eventually(lambda: len(heard) >= 3)
    assert heard[2] - heard[0] > 1.5


async def test_what_is_submitted_in_a_transaction_is_there_at_its_end(server: Server) -> None:
    app = App(server.address("?prefix=joined"), environment={})

    @app.task(keep_result="1h")
    async def echo(text: str) -> str:
        return text

    async with app.open(), working(app):
        async with app.transaction() as transaction:
            handle = await echo.submit("\0é🙂", transaction=transaction)
            assert await handle.status() is None
        assert await handle.result(timeout="60s") == "\0é🙂"
