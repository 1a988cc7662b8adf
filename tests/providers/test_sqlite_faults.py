"""Kinds of fault that work queues are known for, each with real processes that are killed or frozen."""

from __future__ import annotations

import asyncio
import collections
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from bide.clock import SystemClock
from bide.errors import ProviderError
from bide.provider import ZERO, Ack, Items, Limit, NewItem, WorkItem
from bide.providers.sqlite import SqliteProvider
from tests.providers.children import ITEM, LOCK, SHORT_LOCK
from tests.providers.files import sql

CHILDREN = Path(__file__).with_name("children.py")
LIMITS = {"q": Limit(queue=1)}


class Child:
    """A program on the file, in a process of its own."""

    def __init__(self, what: str, path: Path, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(CHILDREN), what, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def hears(self) -> list[str]:
        """The words of its next line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            return (await asyncio.to_thread(self.process.stdout.readline)).split()

    async def finish(self) -> list[list[str]]:
        """Tell it to go on, and hear what else it says until it ends."""
        output, _ = await asyncio.to_thread(self.process.communicate, "\n", 60)
        return [line.split() for line in output.splitlines()]

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def child(what: str, path: Path, name: str = "child") -> Iterator[Child]:
    started = Child(what, path, name)
    try:
        yield started
    finally:
        started.kill()


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[SqliteProvider]:
    provider = SqliteProvider(tmp_path / "bide.db", clock=SystemClock())
    await provider.open()
    yield provider
    await provider.close()


def new(*ids: str) -> list[NewItem]:
    return [replace(ITEM, id=id) for id in ids]


async def taken(
    provider: SqliteProvider, wait: timedelta = ZERO, *, limit: int = 10, limited: bool = False
) -> list[WorkItem]:
    fetched = await provider.fetch_work_items(
        *(["q"], ["n"]),
        limit=limit,
        lock_timeout=LOCK,
        poll_timeout=wait,
        fetch_token="here",
        limits=LIMITS if limited else None,
    )
    return list(fetched.items) if isinstance(fetched, Items) else []


async def test_what_a_killed_worker_held_comes_back_after_its_lock_and_no_sooner(
    provider: SqliteProvider,
) -> None:
    await provider.enqueue(new("a"))
    with child("hold", provider.path, "worker") as held:
        assert await held.hears() == ["took", "a", "1", "0"]
        with child("hold", provider.path, "worker") as again:  # of the same name, begun before it died
            held.kill()
            assert await taken(provider) == []
            assert await again.hears() == ["took", "a", "2", "1"]
            assert await again.finish() == [["settled"]]
    assert [row.id for row in await provider.items("q")] == ["late"]


async def test_a_worker_frozen_beyond_its_lock_changes_nothing_when_it_goes_on(
    provider: SqliteProvider,
) -> None:
    await provider.enqueue(new("a"))
    with child("hold", provider.path) as held:
        assert await held.hears() == ["took", "a", "1", "0"]
        held.freeze()
        (item,) = await taken(provider, LOCK)
        assert (item.id, item.attempt, item.deaths) == ("a", 2, 1)
        held.thaw()
        assert await held.finish() == [["stale"]]
        assert await provider.settle([Ack(item.token)]) == ["settled"]
    assert await provider.items("q") == []  # nor was anything enqueued by the late one


async def test_a_loop_that_is_blocked_keeps_its_locks_by_another_thread(provider: SqliteProvider) -> None:
    await provider.enqueue(new("a"))
    fetched = await provider.fetch_work_items(
        *(["q"], ["n"]), limit=1, lock_timeout=SHORT_LOCK, poll_timeout=ZERO, fetch_token="here"
    )
    assert isinstance(fetched, Items)
    (item,) = fetched.items
    ended = threading.Event()

    async def renew() -> list[list[bool]]:
        renewed = []
        while not ended.is_set():
            renewed.append(await provider.renew([item.token], SHORT_LOCK))
            await asyncio.sleep(SHORT_LOCK.total_seconds() / 5)
        return renewed

    renewing = asyncio.create_task(asyncio.to_thread(asyncio.run, renew()))
    await asyncio.sleep(0.05)
    with child("drain", provider.path) as other:
        said = other.process.communicate("\n", 60)[0]  # which blocks this loop for more than a lock
    ended.set()
    assert all(all(kept) for kept in await renewing)
    assert said == ""
    assert await provider.settle([Ack(item.token)]) == ["settled"]


async def test_what_kills_its_workers_is_buried_and_the_rest_is_done(provider: SqliteProvider) -> None:
    await provider.enqueue([replace(ITEM, id="poison", priority=5), *new(*"abcdefghij")])
    deaths = []
    for _ in range(3):
        with child("die", provider.path) as dying:
            deaths.append(await dying.hears())
            await dying.finish()
        await asyncio.sleep(SHORT_LOCK.total_seconds())
    assert deaths == [["took", "poison", str(number + 1), str(number)] for number in range(3)]
    with child("drain", provider.path) as worker:
        done = await worker.finish()
    # They were taken along by the first two deaths; then the killer was alone.
    assert sorted(done) == sorted(["took", id, "3"] for id in "abcdefghij")
    (row,) = await provider.items("q")
    assert (row.id, row.state, row.error) == (
        "poison",
        "dead",
        "the worker died 3 times while handling it",
    )


async def test_a_place_within_a_limit_outlives_its_holder_by_one_lock_and_is_then_free(
    provider: SqliteProvider,
) -> None:
    await provider.enqueue(new("a", "b", "c"))
    with child("hold", provider.path, "limited") as held:
        assert (await held.hears())[:2] == ["took", "a"]
        held.kill()
        assert await taken(provider, limited=True) == []  # at once after the restart
        (item,) = await taken(provider, LOCK, limited=True)
        assert item.id == "a"
        assert await taken(provider, limited=True) == []  # never two at once
        await provider.settle([Ack(item.token)])
        assert [item.id for item in await taken(provider, limited=True)] == ["b"]


async def test_a_place_that_another_process_frees_is_taken_at_once(provider: SqliteProvider) -> None:
    await provider.enqueue(new("a", "b"))
    with child("hold", provider.path, "limited") as held:
        assert (await held.hears())[:2] == ["took", "a"]
        waiting = asyncio.create_task(taken(provider, LOCK, limited=True))
        assert await held.finish() == [["settled"]]
        async with asyncio.timeout(20):
            assert [item.id for item in await waiting] == ["b"]


@pytest.mark.parametrize("name", ["free", "limited"])
async def test_many_processes_never_meet_a_locked_database(provider: SqliteProvider, name: str) -> None:
    reading = apsw.Connection(str(provider.path))  # somebody holds a read open all the while
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM work_items").fetchall()
    started = [Child("feed", provider.path, "fed"), *(Child("drain", provider.path, name) for _ in range(4))]
    said = await asyncio.gather(*(each.finish() for each in started))
    reading.close()
    assert [each.process.returncode for each in started] == [0] * 5
    enqueued = {id for _, id in said[0]}
    took = collections.Counter(id for output in said[1:] for _, id, _ in output)
    assert took == dict.fromkeys(enqueued, 1)
    assert {attempt for output in said[1:] for _, _, attempt in output} == {"1"}
    assert sql(provider.path, "SELECT count(*) FROM work_items") == [(0,)]
    assert sql(provider.path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_process_frozen_while_it_writes_is_told_of_and_no_data_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.providers.sqlite.writer.BUSY_TIMEOUT_MS", 10)
    monkeypatch.setattr("bide.providers.sqlite.writer.BUSY_PAUSE_S", 0.001)
    provider = SqliteProvider(tmp_path / "bide.db", clock=SystemClock())
    await provider.open()
    await provider.enqueue(new("a"))
    with child("write_for_long", provider.path, "b") as writing:
        assert await writing.hears() == ["open"]
        writing.freeze()
        with pytest.raises(ProviderError, match="another process keeps it locked") as raised:
            await provider.enqueue(new("c"))
        assert raised.value.retryable
        assert [row.id for row in await provider.items("q")] == ["a"]  # reading goes on
        writing.kill()
        await provider.enqueue(new("c"))
    assert [row.id for row in await provider.items("q")] == ["c", "a"]
    assert sql(provider.path, "PRAGMA integrity_check") == [("ok",)]
    await provider.close()
