"""Group commit: many callers in one transaction, each with its own result, and nobody told too early."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from bide.clock import SystemClock
from bide.errors import ProviderError
from bide.provider import ZERO, Ack, Items, NewItem
from bide.providers.sqlite import SqliteProvider
from bide.providers.sqlite.writer import Transaction
from bide.testing import VirtualClock

ITEM = NewItem(id="", queue="q", name="n", payload="{}")


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[SqliteProvider]:
    provider = SqliteProvider(tmp_path / "bide.db", clock=VirtualClock(), synchronous="NORMAL")
    await provider.open()
    yield provider
    await provider.close()


class Gate:
    """A job that holds the database's thread until it is opened, so that others queue up behind it."""

    def __init__(self, provider: SqliteProvider) -> None:
        self.provider = provider
        self.began = threading.Event()
        self.open = threading.Event()
        self.commits = 0

    async def __aenter__(self) -> Gate:
        def counted() -> bool:
            self.commits += 1
            return False

        def hold(transaction: Transaction, _: None) -> None:
            self.began.set()
            self.open.wait(30)
            transaction.connection.set_commit_hook(counted)

        self.holding = self.provider._database.write(hold, None)
        await asyncio.to_thread(self.began.wait)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.open.set()
        await self.holding


async def test_what_waits_is_committed_together(provider: SqliteProvider) -> None:
    async with Gate(provider) as gate:
        tasks = [
            asyncio.create_task(provider.enqueue([replace(ITEM, id=f"i{number}")])) for number in range(300)
        ]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert gate.commits == 2  # the gate's own, and one for all that waited behind it
    assert len(await provider.items("q", limit=1000)) == 300


async def test_results_are_told_after_the_commit(provider: SqliteProvider, tmp_path: Path) -> None:
    await provider.enqueue([replace(ITEM, id="a")])
    other = apsw.Connection(str(tmp_path / "bide.db"))
    assert other.execute("SELECT count(*) FROM work_items").fetchone() == (1,)
    other.close()


async def test_one_that_fails_rolls_back_alone(provider: SqliteProvider) -> None:
    def write_and_fail(transaction: Transaction, id: str) -> None:
        transaction.row("UPDATE work_items SET name = 'changed' WHERE id = ?", (id,))
        raise LookupError(id)

    await provider.enqueue([replace(ITEM, id="a")])
    write = provider._database.write
    async with Gate(provider) as gate:
        tasks = [
            asyncio.create_task(provider.enqueue([replace(ITEM, id="b")])),
            asyncio.ensure_future(write(write_and_fail, "a")),
            asyncio.create_task(provider.enqueue([replace(ITEM, id="c", payload="\ud800")])),
            asyncio.create_task(provider.enqueue([replace(ITEM, id="d")])),
            asyncio.ensure_future(write(lambda transaction, _: transaction.rows("SELECT nonsense"), None)),
        ]
        await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [
        list,
        LookupError,
        ProviderError,
        list,
        ProviderError,
    ]
    assert {row.id: row.name for row in await provider.items("q")} == {"a": "n", "b": "n", "d": "n"}
    assert gate.commits == 2


async def test_a_lost_transaction_is_run_again_one_by_one(provider: SqliteProvider) -> None:
    def lose(transaction: Transaction, _: None) -> None:
        transaction.connection.execute("ROLLBACK")  # as SQLite does by itself where a disk is full
        raise apsw.FullError("database or disk is full")

    async with Gate(provider):
        enqueued = asyncio.create_task(provider.enqueue([replace(ITEM, id="a")]))
        await asyncio.sleep(0)
        lost = provider._database.write(lose, None)
        later = asyncio.create_task(provider.enqueue([replace(ITEM, id="b")]))
        await asyncio.sleep(0)
    await asyncio.gather(enqueued, later)
    with pytest.raises(ProviderError, match="the disk is full"):
        await lost
    assert sorted(row.id for row in await provider.items("q")) == ["a", "b"]


async def test_a_call_cancelled_before_it_began_is_not_made(provider: SqliteProvider) -> None:
    async with Gate(provider):
        task = asyncio.create_task(provider.enqueue([replace(ITEM, id="a")]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await provider.items("q") == []


async def test_a_fetch_cancelled_while_it_locks_gives_back_what_it_locked(provider: SqliteProvider) -> None:
    await provider.enqueue([replace(ITEM, id="a")])
    began, goes_on = threading.Event(), threading.Event()

    def hold(_: Transaction, __: None) -> None:
        began.set()
        goes_on.wait(30)

    fetching = asyncio.create_task(fetch(provider))
    await asyncio.sleep(0)
    held = provider._database.write(hold, None)  # in one transaction with the fetch, or right after it
    await asyncio.to_thread(began.wait)
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)
    goes_on.set()
    await held
    fetched = await fetch(provider)
    assert isinstance(fetched, Items)
    assert [(item.id, item.attempt) for item in fetched.items] == [("a", 1)]


async def fetch(provider: SqliteProvider, wait: timedelta = ZERO) -> object:
    return await provider.fetch_work_items(
        ["q"], ["n"], limit=9, lock_timeout=timedelta(seconds=30), poll_timeout=wait, fetch_token="f"
    )


async def test_close_finishes_what_was_handed_in(tmp_path: Path) -> None:
    provider = SqliteProvider(tmp_path / "bide.db", clock=VirtualClock(), synchronous="NORMAL")
    await provider.open()
    tasks = [asyncio.create_task(provider.enqueue([replace(ITEM, id=f"i{number}")])) for number in range(50)]
    await asyncio.sleep(0)
    await provider.close()
    await asyncio.gather(*tasks)
    with pytest.raises(ProviderError, match="not open"):
        await provider.enqueue([ITEM])
    await provider.open()
    assert len(await provider.items("q")) == 50
    await provider.close()


async def test_it_serves_several_event_loops(tmp_path: Path) -> None:
    provider = SqliteProvider(tmp_path / "bide.db", clock=SystemClock(), synchronous="NORMAL")
    await provider.open()

    async def consume() -> int:
        fetched = await fetch(provider, timedelta(seconds=30))
        assert isinstance(fetched, Items)
        await provider.settle([Ack(item.token) for item in fetched.items])
        return len(fetched.items)

    consuming = asyncio.create_task(asyncio.to_thread(asyncio.run, consume()))
    await asyncio.sleep(0.05)  # whether it waits by then or not, it is served
    await provider.enqueue([replace(ITEM, id="a")])
    assert await consuming == 1
    assert await provider.items("q") == []
    await provider.close()


async def test_a_loop_that_was_closed_harms_nobody(tmp_path: Path) -> None:
    provider = SqliteProvider(tmp_path / "bide.db", clock=SystemClock(), synchronous="NORMAL")
    await provider.open()
    began, goes_on = threading.Event(), threading.Event()

    def hold(_: Transaction, __: None) -> None:
        began.set()
        goes_on.wait(30)

    def leave() -> None:
        loop = asyncio.new_event_loop()

        async def ask() -> None:
            provider._database.write(hold, None)

        loop.run_until_complete(ask())
        loop.close()

    await asyncio.to_thread(leave)
    await asyncio.to_thread(began.wait)
    goes_on.set()
    await provider.enqueue([replace(ITEM, id="a")])
    assert len(await provider.items("q")) == 1
    await provider.close()
