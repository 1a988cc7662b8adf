"""Tasks of a fleet on PostgreSQL: transactions of every driver, limits, and periodic tasks that run once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from bide import App, Handle, KeyConflict, Task
from tests.providers.postgres_server import Server
from tests.servers import eventually

Fill = Callable[[str, Task[..., Any], bool], Awaitable[Handle]]
"""Inserts a row of its own and submits a task in one transaction; commits it or not."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server(18)
    try:
        started.start()
        yield started
    finally:
        started.remove()


class Undone(Exception):
    """Rolls a transaction back."""


async def with_asyncpg(address: str, task: Task[..., Any], commit: bool) -> Handle:
    connection = await asyncpg.connect(address)
    try:
        async with connection.transaction():
            await connection.execute("INSERT INTO orders VALUES ('asyncpg')")
            handle = await task.submit("asyncpg", transaction=connection)
            if not commit:
                raise Undone
    except Undone:
        pass
    finally:
        await connection.close()
    return handle


async def with_psycopg(address: str, task: Task[..., Any], commit: bool) -> Handle:
    async with await psycopg.AsyncConnection.connect(address) as connection:
        await connection.execute("INSERT INTO orders VALUES ('psycopg')")
        handle = await task.submit("psycopg", transaction=connection)
        if not commit:
            await connection.rollback()
    return handle


async def with_sqlalchemy(address: str, task: Task[..., Any], commit: bool) -> Handle:
    engine = create_engine(address.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        session.execute(text("INSERT INTO orders VALUES ('sqlalchemy')"))
        handle = await task.submit("sqlalchemy", transaction=session)
        if commit:
            session.commit()
    engine.dispose()
    return handle


@pytest.mark.parametrize("fill", [with_asyncpg, with_psycopg, with_sqlalchemy])
async def test_a_task_is_submitted_with_the_callers_own_transaction(server: Server, fill: Fill) -> None:
    address = server.address()
    app = App(address, environment={})
    heard: list[str] = []

    @app.task
    async def note(driver: str) -> None:
        heard.append(driver)

    connection = await asyncpg.connect(address)
    await connection.execute("CREATE TABLE IF NOT EXISTS orders (driver text)")
    before = await connection.fetchval("SELECT count(*) FROM orders")
    async with app.open():
        assert await (await fill(address, note, False)).status() is None
        assert await connection.fetchval("SELECT count(*) FROM orders") == before
        async with working(app):
            await fill(address, note, True)
            await eventually(lambda: len(heard) == 1)
        assert await connection.fetchval("SELECT count(*) FROM orders") == before + 1
        with pytest.raises(TypeError, match="no transaction that PostgreSQL can enqueue within"):
            await note.submit("x", transaction="BEGIN")
    await connection.close()


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


async def test_a_fleet_handles_each_item_once_within_its_limits_and_keeps_results(server: Server) -> None:
    running: Counter[str] = Counter()
    most: list[int] = []
    by: Counter[int] = Counter()

    def member(number: int) -> tuple[App, Task[..., Any]]:
        app = App(server.address(), environment={})
        app.queue("limited", limit=3, per_key=1)

        @app.task(queue="limited", keep_result="1h")
        async def work(whose: str, item: int) -> int:
            running[whose] += 1
            most.append(running.total())
            assert running[whose] == 1
            by[number] += 1
            await asyncio.sleep(0.01)
            running[whose] -= 1
            return item

        return app, work

    members = [member(number) for number in range(3)]
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
        assert by.total() == 48
        with pytest.raises(KeyConflict):
            await work.submit_many([("a", 1), ("a", 2)], keys=["same", "same"])


async def test_odd_texts_come_through_as_they_are(server: Server) -> None:
    odd = ["", "\0", "\ufdd0", "\ufdd00", "\\u0000", "\u2028", "𝄞", "'\"\\", "a\tb\nc", "%s $1 {}"]
    app = App(server.address(), environment={})

    @app.task(keep_result="1h")
    async def echo(text: str, number: int) -> tuple[str, int]:
        return text, number

    async with app.open(), working(app):
        handles = await echo.submit_many([(each, 10**30) for each in odd])
        connection = await asyncpg.connect(server.address())
        async with connection.transaction():
            handles += await echo.submit_many([(each, -(10**30)) for each in odd], transaction=connection)
        await connection.close()
        results = [await handle.result(timeout="60s") for handle in handles]
    assert results == [(each, 10**30) for each in odd] + [(each, -(10**30)) for each in odd]


async def test_a_fleet_runs_a_periodic_task_once(server: Server) -> None:
    heard: list[float] = []

    def member() -> App:
        app = App(server.address(), environment={})

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
