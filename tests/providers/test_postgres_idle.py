"""What a worker that has nothing to do costs, what a busy table comes to, and the other event loop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import uvloop

from bide.clock import SystemClock
from bide.provider import ZERO, Ack, Fetched, Items, NewItem
from bide.providers.postgres import PostgresProvider, listening
from bide.testing import VirtualClock
from tests.providers.postgres_server import Server, run_sql
from tests.providers.test_postgres_trouble import until

LOCK = timedelta(seconds=30)
MINUTES = 10
MOST_STATEMENTS = 6
"""A minute."""

_CALLS = (
    "SELECT sum(calls) FROM pg_stat_statements WHERE query !~ 'pg_stat_statements' AND query !~ 'set_config'"
)


@pytest.fixture(scope="module")
def counting() -> Iterator[Server]:
    """A server that counts statements, and clears dead rows away every second."""
    options = ("shared_preload_libraries=pg_stat_statements", "autovacuum_naptime=1")
    started = Server(18, options=options)
    try:
        started.start()
        asyncio.run(run_sql(started.address(), "CREATE EXTENSION pg_stat_statements"))
        yield started
    finally:
        started.remove()


async def fetch(provider: PostgresProvider, wait: timedelta = ZERO, limit: int = 100) -> Fetched:
    return await provider.fetch_work_items(
        ["q"], ["n"], limit=limit, lock_timeout=LOCK, poll_timeout=wait, fetch_token="f"
    )


async def calls(server: Server) -> int:
    return int((await run_sql(server.address(), _CALLS))[0][0])


async def test_an_idle_worker_asks_six_times_a_minute_at_most(counting: Server) -> None:
    clock = VirtualClock()
    provider = PostgresProvider(counting.address(), clock=clock)
    clock.busy_while(lambda: provider.pending)
    await provider.open()

    async def work() -> None:
        while True:
            await fetch(provider, timedelta(seconds=30))

    working = asyncio.create_task(work())
    await clock.advance(60)
    before = await calls(counting)
    for _ in range(MINUTES * 6):
        await clock.advance(10)
        await asyncio.sleep(0.01)  # for the probe of the listener, which waits for the server
    asked = await calls(counting) - before
    assert MINUTES <= asked <= MINUTES * MOST_STATEMENTS
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    await provider.close()


async def test_a_table_that_much_went_through_stays_small(counting: Server) -> None:
    provider = PostgresProvider(counting.address(options="?schema=busy"), clock=SystemClock())
    await provider.open()
    went = 0
    for turn in range(30):
        await provider.enqueue([NewItem(f"{turn}.{at}", "q", "n", "x" * 200) for at in range(500)])
        while isinstance(fetched := await fetch(provider), Items):
            went += len(fetched.items)
            await provider.settle([Ack(item.token) for item in fetched.items])
    assert went == 15_000  # twice as many rows were written, of 400 bytes: 12 MB

    async def size() -> int:
        query = "SELECT count(*), pg_relation_size('busy.work_items') FROM busy.work_items"
        ((rows, bytes_),) = await run_sql(counting.address(), query)
        assert rows == 0
        return int(bytes_)

    async with asyncio.timeout(60):  # the server looks by itself, when it comes to it
        while await size() > 2**20:  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(0.2)
    await provider.close()


def test_it_works_on_uvloop_as_on_asyncio(counting: Server) -> None:
    async def work() -> list[str]:
        provider = PostgresProvider(counting.address(options="?schema=uv"), clock=SystemClock())
        await provider.open()
        waiting = asyncio.create_task(fetch(provider, timedelta(seconds=30)))
        await asyncio.sleep(0.1)
        other = PostgresProvider(counting.address(options="?schema=uv"), clock=SystemClock())
        await other.open()
        async with other.transaction() as transaction:
            await other.enqueue_within(transaction, [NewItem("a", "q", "n", "{}")])
        fetched = await waiting
        assert isinstance(fetched, Items)
        tokens = [item.token for item in fetched.items]
        assert await asyncio.to_thread(asyncio.run, provider.renew(tokens, LOCK)) == [True]
        settled = await provider.settle([Ack(token) for token in tokens])
        await other.close()
        await provider.close()
        return list(settled)

    assert uvloop.run(work()) == ["settled"]


# --- the listener -------------------------------------------------------------------------------------------------


class Wire:
    """Passes bytes on to a server, until it is cut as by a firewall: nothing comes through, and nobody is told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._copying: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.cut = False

    async def __aenter__(self) -> Wire:
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listening.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for task in self._copying:
            task.cancel()
        await asyncio.gather(*self._copying, return_exceptions=True)
        for writer in self._writers:  # a task that is cancelled before it begins closes nothing
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._start(self._join(reader, writer))

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(to_writer)
        self._start(self._copy(reader, to_writer))
        self._start(self._copy(to_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cut_before = self.cut
        try:
            while some := await reader.read(65_536):
                if self.cut == cut_before:
                    writer.write(some)
        finally:
            writer.close()

    def _start(self, act: Any) -> None:
        task = asyncio.ensure_future(act)
        self._copying.add(task)
        task.add_done_callback(self._copying.discard)


async def test_a_listening_connection_that_has_gone_dead_in_silence_is_made_again(
    counting: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "CONNECT_S", 0.3)
    monkeypatch.setattr(listening, "PROBE_S", 0.2)
    async with Wire(counting.port) as wire:
        address = f"postgresql://bide@127.0.0.1:{wire.port}/postgres?schema=wired"
        provider = PostgresProvider(address, clock=SystemClock())
        await provider.open()
        other = PostgresProvider(counting.address(options="?schema=wired"), clock=SystemClock())
        await other.open()
        with caplog.at_level(logging.WARNING, logger="bide.postgres"):
            wire.cut = True
            await until(lambda: not provider.hears)
            await until(lambda: provider.hears)
        assert [record.message.partition(":")[0] for record in caplog.records] == [
            "no wake-ups from other processes until it is back",
            "wake-ups from other processes are back",
        ]
        await other.close()
        provider._database._home and provider._database._home._pool.terminate()
        await provider.close()


async def test_a_server_that_is_away_for_long_is_two_lines_and_few_tries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server(18)
    try:
        await asyncio.to_thread(server.start)
        provider = PostgresProvider(server.address(), clock=SystemClock())
        await provider.open()
        with caplog.at_level(logging.DEBUG, logger="bide.postgres"):
            await asyncio.to_thread(server.stop)
            await asyncio.sleep(2)  # tries after 0.1, 0.3, 0.7 and 1.5 seconds
            await asyncio.to_thread(server.start)
            await until(lambda: provider.hears)
        assert len(caplog.records) == 2
        await provider.close()
    finally:
        server.remove()


# --- workers that are killed --------------------------------------------------------------------------------------


KILLED = """
import asyncio, sys
from datetime import timedelta
from bide.clock import SystemClock
from bide.providers.postgres import PostgresProvider

async def main():
    provider = PostgresProvider(sys.argv[1], clock=SystemClock())
    await provider.open()
    fetched = await provider.fetch_work_items(["q"], ["n"], limit=1, lock_timeout=timedelta(seconds=1.5),
                                              poll_timeout=timedelta(), fetch_token="f")
    print(fetched.items[0].id, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_work_of_a_worker_that_was_killed_comes_back_after_one_lock(counting: Server) -> None:
    provider = PostgresProvider(counting.address(options="?schema=killed"), clock=SystemClock())
    await provider.open()
    await provider.enqueue([NewItem("a", "q", "n", "{}"), NewItem("b", "q", "n", "{}")])
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, counting.address(options="?schema=killed")),
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"a\n"
    child.send_signal(signal.SIGKILL)
    await child.wait()
    first = await fetch(provider)
    assert isinstance(first, Items)
    assert [item.id for item in first.items] == ["b"]
    again = await fetch(provider, timedelta(seconds=20))  # no sweep, list of workers or restart is needed
    assert isinstance(again, Items)
    assert [(item.id, item.attempt, item.deaths) for item in again.items] == [("a", 2, 1)]
    await provider.close()
