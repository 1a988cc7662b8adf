"""Wake-ups between processes: a knock at the write-ahead log is heard at once, and nothing depends on it."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from bide.clock import SystemClock
from bide.provider import Ack, Empty, Fetched, Items, Limit
from bide.providers.sqlite import SqliteProvider, watching
from bide.providers.sqlite.watching import Inotify, Watch
from bide.testing import VirtualClock
from tests.providers.files import ITEM

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is a part of Linux")

LONG = timedelta(seconds=60)
NEVER = 3600.0
"""Seconds until a fetch looks by itself, where only a knock shall wake it."""


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[SqliteProvider, SqliteProvider]]:
    """Two providers that share nothing but the file, as two processes have them."""
    pair = [SqliteProvider(tmp_path / "bide.db", clock=SystemClock()) for _ in range(2)]
    for provider in pair:
        await provider.open()
    yield pair[0], pair[1]
    for provider in pair:
        await provider.close()


@pytest.fixture
def only_knocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fetch looks by itself for what others did."""
    monkeypatch.setattr(watching, "LOOK_AGAIN_S", NEVER)


async def fetch(
    provider: SqliteProvider, wait: timedelta = LONG, limits: dict[str, Limit] | None = None, name: str = "n"
) -> Fetched:
    return await provider.fetch_work_items(
        ["q"], [name], limit=1, lock_timeout=LONG, poll_timeout=wait, fetch_token="f", limits=limits
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait a little for what threads and other loops do."""
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to pass")


async def waiting(provider: SqliteProvider, name: str = "n") -> asyncio.Task[Fetched]:
    """A fetch that waits by now."""
    fetching = asyncio.create_task(fetch(provider, name=name))
    await until(lambda: bool(provider._database.bell.loops()) and not provider.pending)
    await asyncio.sleep(0.02)
    assert not fetching.done()
    return fetching


def ids(fetched: Fetched) -> list[str]:
    return [item.id for item in fetched.items] if isinstance(fetched, Items) else []


@pytest.mark.usefixtures("only_knocks")
async def test_what_another_enqueues_wakes_a_fetch(pair: tuple[SqliteProvider, SqliteProvider]) -> None:
    here, there = pair
    for number in range(5):
        fetching = await waiting(here)
        await there.enqueue([replace(ITEM, id=f"i{number}")])
        async with asyncio.timeout(20):
            assert ids(await fetching) == [f"i{number}"]


@pytest.mark.usefixtures("only_knocks")
async def test_a_delay_begun_by_another_is_waited_for(pair: tuple[SqliteProvider, SqliteProvider]) -> None:
    here, there = pair
    fetching = await waiting(here)
    await there.enqueue([replace(ITEM, delay=timedelta(milliseconds=80))])
    async with asyncio.timeout(20):
        assert ids(await fetching) == ["a"]


@pytest.mark.usefixtures("only_knocks")
async def test_every_cause_in_another_process_wakes_a_fetch(
    pair: tuple[SqliteProvider, SqliteProvider],
) -> None:
    here, there = pair
    limits = {"q": Limit(queue=1)}
    await there.enqueue([ITEM, replace(ITEM, id="b")])
    first = await fetch(there, limits=limits)
    assert isinstance(first, Items)
    fetching = asyncio.create_task(fetch(here, limits=limits))
    await asyncio.sleep(0.05)
    assert not fetching.done()
    await there.settle([Ack(first.items[0].token)])  # which frees a place within the limit
    async with asyncio.timeout(20):
        taken = await fetching
    assert ids(taken) == ["b"]
    fetching = asyncio.create_task(fetch(there))
    await asyncio.sleep(0.05)
    await here.release("f")
    async with asyncio.timeout(20):
        assert ids(await fetching) == ["b"]


@pytest.mark.usefixtures("only_knocks")
async def test_a_log_that_was_removed_and_made_again_is_watched_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    rung: list[int] = []
    watch, other = (Watch(log, VirtualClock(), lambda: rung.append(1)) for _ in range(2))
    with watch.waiter() as waiter:
        assert waiter.look_again_s() == 0  # what happened before the watch began has to be looked for
        assert waiter.look_again_s() == NEVER
        other.knock()
        await until(lambda: len(rung) == 1)
        log.unlink()
        await until(lambda: len(rung) > 1)
        assert 0 < waiter.look_again_s() <= 5.5  # nothing to hear: at intervals
        log.touch()
        assert waiter.look_again_s() == 0
        assert waiter.look_again_s() == NEVER
        rung.clear()
        other.knock()
        await until(lambda: bool(rung))
        rung.clear()
        log.unlink()
        log.touch()  # perhaps in the very place of the one before
        await until(lambda: bool(rung))
        assert waiter.look_again_s() == 0
    watch.close()


async def test_a_knock_between_the_look_of_one_fetch_and_its_wait_is_not_lost_to_another(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    log.touch()
    rung: list[int] = []
    watch, other = (Watch(log, VirtualClock(), lambda: rung.append(1)) for _ in range(2))
    with watch.waiter() as waiter:
        waiter.look_again_s()  # so that there is a watch
    watch.will_look()  # the first fetch looks, and finds nothing
    other.knock()
    watch.will_look()  # the second one looks, and what it finds may be wanted by the first
    assert rung == [1]
    watch.close()


@pytest.mark.usefixtures("only_knocks")
async def test_a_symbolic_link_leads_to_the_same_log(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere" / "bide.db")
    here = SqliteProvider(tmp_path / "link.db", clock=SystemClock())
    there = SqliteProvider(tmp_path / "elsewhere" / "bide.db", clock=SystemClock())
    await here.open()
    await there.open()
    for waits, enqueues in ((here, there), (there, here)):
        fetching = await waiting(waits)
        await enqueues.enqueue([replace(ITEM, id=str(waits.path))])
        async with asyncio.timeout(20):
            assert ids(await fetching) == [str(waits.path)]
    await here.close()
    await there.close()


@pytest.mark.usefixtures("only_knocks")
async def test_checkpoints_and_a_log_begun_anew_do_no_harm(
    pair: tuple[SqliteProvider, SqliteProvider],
) -> None:
    here, there = pair
    for number, mode in enumerate(("PASSIVE", "FULL", "RESTART", "TRUNCATE")):
        fetching = await waiting(here)
        connection = apsw.Connection(str(here.path))
        connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        await there.enqueue([replace(ITEM, id=f"i{number}")])
        async with asyncio.timeout(20):
            assert ids(await fetching) == [f"i{number}"]
        connection.close()


async def test_commits_that_make_nothing_eligible_wake_nobody(
    pair: tuple[SqliteProvider, SqliteProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = pair
    await there.enqueue([replace(ITEM, id=f"i{number}", name="other") for number in range(20)])
    fetching = await waiting(here)
    rung: list[int] = []
    monkeypatch.setattr(here._database.watch, "_ring", lambda: rung.append(1))
    for _ in range(20):
        found = await fetch(there, name="other")
        assert isinstance(found, Items)
        await there.renew([found.items[0].token], LONG)
        await there.settle([Ack(found.items[0].token)])
    await asyncio.sleep(0.05)
    assert rung == []
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)


async def test_own_commits_are_not_taken_for_those_of_others(
    pair: tuple[SqliteProvider, SqliteProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = pair
    fetching = await waiting(here)
    rung: list[int] = []
    monkeypatch.setattr(here._database.watch, "_ring", lambda: rung.append(1))
    for number in range(20):
        await here.enqueue([replace(ITEM, id=f"i{number}", name="other")])
    await asyncio.sleep(0.05)
    assert rung == []
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)


async def test_knocks_that_lead_to_nothing_are_heard_less_and_less(
    pair: tuple[SqliteProvider, SqliteProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "KNOCKS_AT_ONCE", 3)
    monkeypatch.setattr(watching, "REST_S", 1000.0)
    here, there = pair
    fetching = await waiting(here)
    rung: list[int] = []
    monkeypatch.setattr(here._database.watch, "_ring", lambda: rung.append(1))
    for number in range(30):
        await there.enqueue([replace(ITEM, id=f"i{number}", name="other")])
        await asyncio.sleep(0.002)
    assert 1 <= len(rung) <= 4
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)


def inotify_watches() -> int:
    """How many files of inotify this process has open."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that lists them
            count += os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:inotify"
    return count


async def test_one_watch_for_however_many_fetches(pair: tuple[SqliteProvider, SqliteProvider]) -> None:
    here, _ = pair
    fetches = [await waiting(here, name) for name in ("n", "m", "o")]
    assert inotify_watches() == 1
    for fetching in fetches:
        fetching.cancel()
    await asyncio.gather(*fetches, return_exceptions=True)


async def test_without_inotify_it_looks_at_growing_intervals_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def exhausted(self: Inotify) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Inotify, "__init__", exhausted)
    clock = VirtualClock(draws=0.5)
    watch = Watch(tmp_path / "log", clock, lambda: None)
    with caplog.at_level(logging.WARNING, "bide.sqlite"), watch.waiter() as first, watch.waiter() as second:
        waits = [first.look_again_s() for _ in range(9)]
        assert second.look_again_s() == waits[0]
    assert waits[:3] == pytest.approx([0.1, 0.2, 0.4])
    assert 4.5 <= max(waits) <= 5
    (record,) = caplog.records
    assert "inotify cannot be had" in record.getMessage()


async def test_without_inotify_what_another_enqueues_is_found_all_the_same(
    pair: tuple[SqliteProvider, SqliteProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(self: Inotify) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(Inotify, "__init__", missing)
    here, there = pair
    fetching = await waiting(here)
    await there.enqueue([ITEM])
    async with asyncio.timeout(20):
        assert ids(await fetching) == ["a"]


async def test_whoever_died_before_knocking_is_noticed_all_the_same(
    pair: tuple[SqliteProvider, SqliteProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LOOK_AGAIN_S", 0.05)
    here, there = pair
    fetching = await waiting(here)
    monkeypatch.setattr(there._database._writer, "_knock", lambda: None)
    await there.enqueue([ITEM])
    async with asyncio.timeout(20):
        assert ids(await fetching) == ["a"]


async def test_closing_ends_the_watch_and_opening_begins_it_anew(
    pair: tuple[SqliteProvider, SqliteProvider],
) -> None:
    here, there = pair
    fetching = await waiting(here)
    await here.wake()
    assert await fetching == Empty(blocked=True)
    await here.close()
    await here.open()
    fetching = await waiting(here)
    await there.enqueue([ITEM])
    async with asyncio.timeout(20):
        assert ids(await fetching) == ["a"]


@pytest.mark.usefixtures("only_knocks")
async def test_fetches_on_several_event_loops_are_all_woken(
    pair: tuple[SqliteProvider, SqliteProvider],
) -> None:
    here, there = pair
    others = [asyncio.create_task(asyncio.to_thread(asyncio.run, fetch(here))) for _ in range(2)]
    await until(lambda: len(here._database.bell.loops()) == 2 and not here.pending)
    await asyncio.sleep(0.05)
    fetching = await waiting(here)
    await there.enqueue([replace(ITEM, id=id) for id in "abc"])
    async with asyncio.timeout(20):
        found = [ids(fetched) for fetched in await asyncio.gather(fetching, *others)]
    assert sorted(found) == [["a"], ["b"], ["c"]]


async def test_waiting_costs_next_to_nothing(tmp_path: Path) -> None:
    """A hundred times the aim, since a test machine is never quiet: a loop that spins takes all of a core."""
    provider = SqliteProvider(tmp_path / "bide.db", clock=SystemClock())
    await provider.open()
    fetching = await waiting(provider)
    began, used = time.monotonic(), time.process_time()
    await asyncio.sleep(1)
    assert (time.process_time() - used) / (time.monotonic() - began) < 0.1
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)
    await provider.close()


@pytest.mark.usefixtures("only_knocks")
async def test_another_process_is_heard(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    provider = SqliteProvider(path, clock=SystemClock())
    await provider.open()
    fetching = await waiting(provider)
    child = Path(__file__).with_name("children.py")
    command = [sys.executable, str(child), "open", str(path), "child"]
    assert await asyncio.to_thread(lambda: subprocess.run(command, check=False).returncode) == 0
    async with asyncio.timeout(20):
        assert ids(await fetching) == ["fromchild"]
    await provider.close()
