"""Transactions of the caller on SQLite: whole or not at all, alone, and not for long."""

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
from bide.errors import KeyConflict, ProviderError
from bide.provider import Enqueued, Items
from bide.providers.sqlite import SqliteProvider, holding
from bide.providers.sqlite.joining import SqliteTransaction
from bide.testing import VirtualClock
from tests.providers.files import ITEM, sql


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[SqliteProvider]:
    clock = VirtualClock()
    provider = SqliteProvider(tmp_path / "bide.db", clock=clock, synchronous="NORMAL")
    clock.busy_while(lambda: provider.pending)
    await provider.open()
    async with provider.transaction() as transaction:
        await transaction.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT NOT NULL)")
    yield provider
    await provider.close()


async def order(transaction: SqliteTransaction, what: str | None = "tea") -> int:
    """A statement of the caller's."""
    ((id,),) = await transaction.execute("INSERT INTO orders (what) VALUES (?) RETURNING id", [what])
    return int(id)


async def orders(provider: SqliteProvider) -> int:
    ((count,),) = sql(provider.path, "SELECT count(*) FROM orders")
    return int(str(count))


async def test_statements_of_the_caller_and_items_are_kept_together(provider: SqliteProvider) -> None:
    async with provider.transaction() as transaction:
        assert await order(transaction) == 1
        assert await provider.enqueue_within(transaction, [ITEM]) == [Enqueued("a", new=True)]
        assert await transaction.execute("SELECT what FROM orders") == [("tea",)]
        assert await provider.items("q") == []  # nobody else sees it yet
        assert await orders(provider) == 0
    assert await orders(provider) == 1
    assert [row.id for row in await provider.items("q")] == ["a"]


async def test_an_exception_keeps_neither(provider: SqliteProvider) -> None:
    async def attempt() -> None:
        async with provider.transaction() as transaction:
            await order(transaction)
            await provider.enqueue_within(transaction, [ITEM])
            raise LookupError

    with pytest.raises(LookupError):
        await attempt()
    assert await orders(provider) == 0
    assert await provider.items("q") == []


async def test_a_cancellation_keeps_neither(provider: SqliteProvider) -> None:
    began = asyncio.Event()

    async def hang() -> None:
        async with provider.transaction() as transaction:
            await order(transaction)
            began.set()
            await asyncio.Event().wait()

    hanging = asyncio.create_task(hang())
    await began.wait()
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    assert hanging.cancelled()
    await provider.enqueue([ITEM])  # nothing is held any more
    assert await orders(provider) == 0


@pytest.mark.parametrize("turns", range(12))
async def test_cancelling_at_any_moment_holds_nobody_up(provider: SqliteProvider, turns: int) -> None:
    async def once() -> None:
        async with provider.transaction() as transaction:
            await provider.enqueue_within(transaction, [ITEM])

    running = asyncio.create_task(once())
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    async with asyncio.timeout(20):
        await provider.enqueue([replace(ITEM, id="b")])


async def test_what_sqlite_refuses_can_be_made_good(provider: SqliteProvider) -> None:
    async with provider.transaction() as transaction:
        await order(transaction)
        with pytest.raises(ProviderError, match="NOT NULL"):
            await order(transaction, None)
        with pytest.raises(ProviderError, match="no such table"):
            await transaction.execute("SELECT * FROM nowhere")
        await order(transaction)
    assert await orders(provider) == 2


async def test_a_conflict_of_keys_keeps_nothing_of_its_batch_and_the_rest(provider: SqliteProvider) -> None:
    keyed = replace(ITEM, key="k")
    await provider.enqueue([keyed])
    async with provider.transaction() as transaction:
        await order(transaction)
        with pytest.raises(KeyConflict):
            await provider.enqueue_within(
                transaction, [replace(ITEM, id="b"), replace(keyed, id="c", payload="other")]
            )
        again = await provider.enqueue_within(transaction, [replace(keyed, id="d")])
        assert again == [Enqueued("a", new=False)]
    assert await orders(provider) == 1
    assert [row.id for row in await provider.items("q")] == ["a"]


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN IMMEDIATE"])
async def test_a_statement_that_ends_it_keeps_nothing_and_says_so(
    provider: SqliteProvider, statement: str
) -> None:
    async def attempt() -> None:
        async with provider.transaction() as transaction:
            await order(transaction)
            with pytest.raises(ProviderError, match="leave COMMIT and ROLLBACK to the end of its block"):
                await transaction.execute(statement)
            await provider.enqueue_within(transaction, [ITEM])

    with pytest.raises(ProviderError):
        await attempt()
    assert await orders(provider) == 0
    assert await provider.items("q") == []
    await provider.enqueue([ITEM])
    assert len(await provider.items("q")) == 1


async def test_it_is_rolled_back_after_thirty_seconds(provider: SqliteProvider) -> None:
    clock = provider._database.clock
    assert isinstance(clock, VirtualClock)

    async def attempt() -> None:
        async with provider.transaction() as transaction:
            await order(transaction)
            await clock.advance(31)
            await asyncio.create_task(provider.enqueue([ITEM]))  # others go on
            with pytest.raises(ProviderError, match="cannot be used: it was open for longer than 30s"):
                await order(transaction)

    with pytest.raises(ProviderError, match="open for longer than 30s and was rolled back"):
        await attempt()
    assert await orders(provider) == 0
    assert len(await provider.items("q")) == 1


async def test_a_loop_that_is_blocked_holds_others_up_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "LONGEST", timedelta(seconds=0.05))
    provider = SqliteProvider(tmp_path / "bide.db", clock=SystemClock())
    await provider.open()
    other = apsw.Connection(str(tmp_path / "bide.db"))
    other.set_busy_timeout(20_000)

    async def attempt() -> None:
        async with provider.transaction() as transaction:
            await provider.enqueue_within(transaction, [ITEM])
            other.execute("BEGIN IMMEDIATE")  # blocks this loop until the transaction is rolled back
            other.execute("ROLLBACK")

    with pytest.raises(ProviderError, match="was rolled back"):
        await attempt()
    other.close()
    assert await provider.items("q") == []
    await provider.close()


async def test_writing_beside_it_is_refused_where_it_would_wait_for_itself(provider: SqliteProvider) -> None:
    async with provider.transaction() as transaction:
        with pytest.raises(ProviderError, match="enqueue within it"):
            await provider.enqueue([ITEM])
        with pytest.raises(ProviderError, match="enqueue within it"):
            async with provider.transaction():
                pass
        await provider.enqueue_within(transaction, [ITEM])
    assert await provider.enqueue([ITEM]) == [Enqueued("a", new=False)]


async def test_others_wait_for_it_and_go_on_in_their_order(provider: SqliteProvider) -> None:
    done: list[str] = []

    async def write(name: str) -> None:
        await provider.enqueue([replace(ITEM, id=name)])
        done.append(name)

    async def write_in_one(name: str) -> None:
        async with provider.transaction() as transaction:
            await provider.enqueue_within(transaction, [replace(ITEM, id=name)])
        done.append(name)

    async with provider.transaction() as transaction:
        others = [asyncio.create_task(call(name)) for call, name in ((write, "b"), (write_in_one, "c"))]
        await asyncio.sleep(0)
        await provider.enqueue_within(transaction, [ITEM])
        assert await provider.items("q") == []  # reading waits for nobody
        assert done == []
        done.append("a")
    await asyncio.gather(*others)
    assert done == ["a", "b", "c"]
    assert [row.id for row in await provider.items("q")] == ["c", "b", "a"]


async def test_a_fetch_that_waits_is_woken_by_the_commit(provider: SqliteProvider) -> None:
    minute = timedelta(minutes=1)
    fetching = asyncio.create_task(
        provider.fetch_work_items(
            ["q"], ["n"], limit=1, lock_timeout=minute, poll_timeout=minute, fetch_token="f"
        )
    )
    await asyncio.sleep(0.02)
    async with provider.transaction() as transaction:
        await provider.enqueue_within(transaction, [ITEM])
    async with asyncio.timeout(20):
        fetched = await fetching
    assert isinstance(fetched, Items)
    assert [item.id for item in fetched.items] == ["a"]


async def test_one_that_has_ended_or_is_another_stores_is_refused(
    provider: SqliteProvider, tmp_path: Path
) -> None:
    async with provider.transaction() as transaction:
        pass
    with pytest.raises(ProviderError, match="cannot be used: it has ended"):
        await provider.enqueue_within(transaction, [ITEM])
    other = SqliteProvider(tmp_path / "other.db", clock=VirtualClock())
    await other.open()
    async with other.transaction() as foreign:
        with pytest.raises(TypeError, match=r"its own transaction\(\)"):
            await provider.enqueue_within(foreign, [ITEM])
    await other.close()
    with pytest.raises(TypeError, match="object is no transaction of this store"):
        await provider.enqueue_within(object(), [ITEM])


async def test_closing_rolls_back_what_is_open(provider: SqliteProvider) -> None:
    async def attempt() -> None:
        async with provider.transaction() as transaction:
            await order(transaction)
            async with asyncio.timeout(20):
                await provider.close()

    with pytest.raises(ProviderError, match="the provider was closed"):
        await attempt()
    await provider.open()
    assert await orders(provider) == 0


async def test_a_file_that_others_keep_locked_is_told_of(
    provider: SqliteProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.providers.sqlite.writer.BUSY_RETRIES", 0)
    other = apsw.Connection(str(provider.path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ProviderError, match="another process keeps it locked") as raised:
        async with provider.transaction():
            pass
    assert raised.value.retryable
    other.close()
    async with provider.transaction() as transaction:
        await order(transaction)
    assert await orders(provider) == 1


async def test_a_full_disk_loses_all_of_it(provider: SqliteProvider) -> None:
    ((pages,),) = sql(provider.path, "PRAGMA page_count")
    await provider._database.write(lambda tx, _: tx.row(f"PRAGMA max_page_count = {pages}"), None)

    async def attempt() -> None:
        async with provider.transaction() as transaction:
            await order(transaction)
            await provider.enqueue_within(transaction, [replace(ITEM, payload="x" * 100_000)])

    with pytest.raises(ProviderError, match="the disk is full"):
        await attempt()
    await provider._database.write(lambda tx, _: tx.row("PRAGMA max_page_count = 100000"), None)
    assert await orders(provider) == 0
    await provider.enqueue([ITEM])


async def test_a_transaction_of_another_thread_is_served_too(provider: SqliteProvider) -> None:
    began, goes_on = threading.Event(), threading.Event()

    async def elsewhere() -> None:
        async with provider.transaction() as transaction:
            began.set()
            await asyncio.to_thread(goes_on.wait)
            await provider.enqueue_within(transaction, [replace(ITEM, id="there")])

    running = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
    await asyncio.to_thread(began.wait)
    here = asyncio.create_task(provider.enqueue([replace(ITEM, id="here")]))
    await asyncio.sleep(0)
    goes_on.set()
    await asyncio.gather(running, here)
    assert [row.id for row in await provider.items("q")] == ["here", "there"]
