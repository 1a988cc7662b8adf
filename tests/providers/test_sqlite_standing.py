"""Fetches that wait are served in the transaction that brings what they wait for, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from bide.errors import ProviderError
from bide.provider import ZERO, Abandon, Ack, Empty, Fetched, Items, NewItem, WorkItem
from bide.providers.sqlite import SqliteProvider
from bide.providers.sqlite.standing import MOST_SERVED, Offer, Standing
from bide.providers.sqlite.writer import Transaction
from bide.testing import VirtualClock

ITEM = NewItem(id="", queue="q", name="n", payload="{}")
FOUND = Items((WorkItem("a", "q", "n", "{}", "1:f", 1, 0, 0, None, None),))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def provider(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[SqliteProvider]:
    provider = SqliteProvider(tmp_path / "bide.db", clock=clock, synchronous="NORMAL")
    await provider.open()
    yield provider
    await provider.close()


async def waiting(provider: SqliteProvider, queue: str = "q", *, limit: int = 10) -> asyncio.Task[Fetched]:
    """A fetch that has looked in vain."""
    fetching = asyncio.ensure_future(
        provider.fetch_work_items(
            *([queue], ["n"]),
            limit=limit,
            lock_timeout=timedelta(seconds=30),
            poll_timeout=timedelta(seconds=20),
            fetch_token=queue,
        )
    )
    await asyncio.sleep(0)
    await written(provider)
    return fetching


async def written(provider: SqliteProvider) -> None:
    """What was handed to the thread until now has been done."""
    await provider._database.write(lambda _, __: None, None)


def taken(fetched: Fetched) -> list[str]:
    assert isinstance(fetched, Items), fetched
    return [item.id for item in fetched.items]


class Commit:
    """The next commits of the provider that change anything: they wait until ``allowed``, and one may be refused."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.allowed = threading.Event()
        self.is_refused = False
        self.count = 0

    async def of(self, provider: SqliteProvider) -> Commit:
        await provider._database.write(lambda transaction, _: self._hook(transaction), None)
        return self

    def _hook(self, transaction: Transaction) -> None:
        connection = transaction.connection
        before = connection.total_changes()
        connection.set_commit_hook(lambda: connection.total_changes() > before and self._hold())

    def _hold(self) -> bool:
        self.count += 1
        self.began.set()
        self.allowed.wait(30)
        refused, self.is_refused = self.is_refused, False
        return refused


async def test_it_is_served_in_the_same_transaction(provider: SqliteProvider, tmp_path: Path) -> None:
    fetching = await waiting(provider)
    commit = await Commit().of(provider)
    commit.allowed.set()
    await provider.enqueue([replace(ITEM, id="a"), replace(ITEM, id="b")])
    other = apsw.Connection(str(tmp_path / "bide.db"))
    assert set(other.execute("SELECT state, attempts FROM work_items")) == {("running", 1)}
    other.close()
    fetched = await fetching
    assert isinstance(fetched, Items)
    assert fetched.blocked
    assert commit.count == 1
    assert [item.attempt for item in fetched.items] == [1, 1]
    assert await provider.settle([Ack(item.token) for item in fetched.items]) == ["settled", "settled"]


async def test_it_takes_what_goes_first_and_no_more_than_it_may(provider: SqliteProvider) -> None:
    fetching = await waiting(provider, limit=2)
    await provider.enqueue(
        [replace(ITEM, id=id, priority=priority) for id, priority in zip("abc", (0, 5, 9), strict=True)]
    )
    assert taken(await fetching) == ["c", "b"]
    assert [row.id for row in await provider.items("q", states=["ready"])] == ["a"]


async def test_its_lock_lasts_from_when_it_was_served(provider: SqliteProvider, clock: VirtualClock) -> None:
    fetching = await waiting(provider)
    await clock.advance(19)
    await provider.enqueue([replace(ITEM, id="a")])
    (item,) = (await fetching).items  # type: ignore[union-attr]
    await clock.advance(29)
    assert await provider.renew([item.token], timedelta(seconds=30)) == [True]


async def test_of_two_that_wait_for_one_item_one_has_it(provider: SqliteProvider) -> None:
    both = [await waiting(provider), await waiting(provider)]
    await provider.enqueue([replace(ITEM, id="a")])
    await provider.enqueue([replace(ITEM, id="b")])
    assert sorted(taken(each) for each in await asyncio.gather(*both)) == [["a"], ["b"]]


async def test_those_of_other_queues_wait_on(provider: SqliteProvider) -> None:
    fetches = {f"q{at}": await waiting(provider, f"q{at}") for at in range(2 * MOST_SERVED)}
    for queue, fetching in reversed(fetches.items()):
        await provider.enqueue([replace(ITEM, id=queue, queue=queue)])
        assert taken(await fetching) == [queue]


async def test_what_becomes_eligible_by_another_call_serves_too(provider: SqliteProvider) -> None:
    await provider.enqueue([replace(ITEM, id="a")])
    (item,) = (await (await waiting(provider))).items  # type: ignore[union-attr]
    fetching = await waiting(provider)
    await provider.settle([Abandon(item.token, ZERO)])
    assert taken(await fetching) == ["a"]


async def test_cancelled_while_it_is_served_it_gives_back(provider: SqliteProvider) -> None:
    fetching, commit = await waiting(provider), await Commit().of(provider)
    enqueueing = asyncio.ensure_future(provider.enqueue([replace(ITEM, id="a")]))
    await asyncio.to_thread(commit.began.wait)
    fetching.cancel()
    await asyncio.wait({fetching})
    commit.allowed.set()
    await enqueueing
    await written(provider)
    (row,) = await provider.items("q")
    assert (row.state, row.attempts, row.given_back) == ("ready", 0, 0)
    assert fetching.cancelled()


async def test_cancelled_before_it_would_be_served_it_takes_nothing(provider: SqliteProvider) -> None:
    fetching = await waiting(provider)
    fetching.cancel()
    await asyncio.wait({fetching})
    await provider.enqueue([replace(ITEM, id="a")])
    assert [row.attempts for row in await provider.items("q", states=["ready"])] == [0]
    assert taken(await (await waiting(provider))) == ["a"]


async def test_served_at_the_end_of_its_time_it_has_it(provider: SqliteProvider, clock: VirtualClock) -> None:
    fetching, commit = await waiting(provider), await Commit().of(provider)
    enqueueing = asyncio.ensure_future(provider.enqueue([replace(ITEM, id="a")]))
    await asyncio.to_thread(commit.began.wait)
    await clock.advance(21)
    commit.allowed.set()
    assert taken(await fetching) == ["a"]
    await enqueueing


async def test_after_its_time_it_takes_nothing(provider: SqliteProvider, clock: VirtualClock) -> None:
    fetching = await waiting(provider)
    await clock.advance(21)
    assert await fetching == Empty(blocked=True)
    await provider.enqueue([replace(ITEM, id="a")])
    assert [row.attempts for row in await provider.items("q", states=["ready"])] == [0]


async def test_woken_it_takes_nothing_any_more(provider: SqliteProvider) -> None:
    fetching = await waiting(provider)
    await provider.wake()
    assert await fetching == Empty(blocked=True)
    await provider.enqueue([replace(ITEM, id="a")])
    assert [row.attempts for row in await provider.items("q", states=["ready"])] == [0]


async def test_what_was_not_committed_was_not_served(provider: SqliteProvider) -> None:
    fetching, commit = await waiting(provider), await Commit().of(provider)
    commit.is_refused = True
    commit.allowed.set()
    with pytest.raises(ProviderError):
        await provider.enqueue([replace(ITEM, id="a")])
    assert not fetching.done()
    assert await provider.items("q") == []
    await provider.enqueue([replace(ITEM, id="b")])
    assert taken(await fetching) == ["b"]


# --- one that fails ----------------------------------------------------------------------------------------


async def standing_with(provider: SqliteProvider, fail: Callable[[Transaction], None]) -> Offer:
    """An offer that stands and will fail so."""
    looks = iter([lambda _: None, fail])

    def look(transaction: Transaction) -> Empty:
        next(looks)(transaction)
        return Empty()

    offer = Offer(look, waits=True)
    await provider._database.write(provider._database.standing.look, offer)
    return offer


async def test_one_that_fails_harms_nobody(provider: SqliteProvider) -> None:
    def fail(transaction: Transaction) -> None:
        transaction.row("UPDATE work_items SET payload = 'changed'")
        raise LookupError

    offer = await standing_with(provider, fail)
    fetching = await waiting(provider)
    await provider.enqueue([replace(ITEM, id="a")])
    assert taken(await fetching) == ["a"]
    assert [row.payload for row in await provider.items("q")] == ["{}"]
    await provider.enqueue([replace(ITEM, id="b")])  # in which it would look again if it stood
    assert offer.found is None


async def test_one_that_loses_the_transaction_is_left_out(provider: SqliteProvider) -> None:
    def lose(transaction: Transaction) -> None:
        transaction.connection.execute("ROLLBACK")  # as SQLite does by itself where a disk is full
        raise apsw.FullError("database or disk is full")

    await standing_with(provider, lose)
    await asyncio.gather(*(provider.enqueue([replace(ITEM, id=id)]) for id in "ab"))
    assert sorted(row.id for row in await provider.items("q")) == ["a", "b"]


def test_withdrawn_it_has_what_was_found_at_the_last_moment() -> None:
    standing, transaction = Standing(), Transaction(apsw.Connection(":memory:"), 0)
    looks: Iterator[Items | Empty] = iter([Empty(), FOUND])
    offer = Offer(lambda _: next(looks), waits=True)
    assert standing.look(transaction, offer) == Empty()
    transaction.connection.execute("BEGIN")
    ((served, found),) = standing.serve(transaction)
    served.found = found
    assert standing.withdraw(transaction, offer) == FOUND
    assert standing.serve(transaction) == []
