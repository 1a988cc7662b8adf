"""Real processes on one file: frozen, killed, several at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import dedent

import pytest

from bide import App
from tests.servers import Answer, RawServer, Received


def declare(folder: Path, server: RawServer, *, every: str = "1s", polls: int = 1) -> None:
    blocks = "".join(
        f"""
        [packages.shop.operations.price{index}]
        get = "/price{index}"
        answer = {{ price = "number" }}
        deadline = "1s"
        retry = 0
        [packages.shop.polls.price{index}]
        call = "price{index}"
        every = "{every}"
        emits = "PriceChanged"
        """
        for index in range(polls)
    )
    (folder / "bide.toml").write_text(
        dedent(f"""
        [app]
        tick = "1s"
        failure_retry = "1s"
        [packages.shop.events.PriceChanged]
        public = true
        fields = {{ price = "number" }}
        [connections.eu]
        package = "shop"
        base_url = "{server.url()}"
        [subscribers.audit]
        on = "shop.PriceChanged"
        webhook = "{server.url("/audit")}"
        """)
        + dedent(blocks)
    )


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """``bide run`` as a process of its own; ended when the block is left."""
    with (folder / "run.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bide", "run", "--no-live", cwd=folder, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def until(holds: object, seconds: float = 30) -> None:
    assert callable(holds)
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(0.02)


async def test_a_process_that_was_frozen_makes_up_for_it_with_one_call_and_not_one_for_each_missed(
    tmp_path: Path,
) -> None:
    async with RawServer() as server:
        server.script("/price0", Answer.json({"price": 1}))
        server.script("/audit", Answer(status=204))
        declare(tmp_path, server)
        async with running(tmp_path) as process:
            await until(lambda: server.count("/price0") >= 2)
            os.kill(process.pid, signal.SIGSTOP)
            await asyncio.sleep(4.5)
            before = server.count("/price0")
            os.kill(process.pid, signal.SIGCONT)
            await until(lambda: server.count("/price0") > before)
            await asyncio.sleep(0.3)
            assert server.count("/price0") <= before + 2, "one at once, perhaps one that was due just then"
            await until(lambda: server.count("/price0") >= before + 3)


@pytest.mark.parametrize("when", ["answering", "recording"])
async def test_a_process_killed_in_a_call_costs_one_hold_and_the_next_one_goes_on(
    tmp_path: Path, when: str
) -> None:
    async with RawServer() as server:
        asked = asyncio.Event()

        def stuck(request: Received) -> Answer:
            asked.set()
            return Answer.silence() if when == "answering" else Answer.json({"price": 1})

        server.script("/price0", stuck)
        server.script("/audit", Answer(status=204))
        declare(tmp_path, server, every="1h" if when == "answering" else "1s")
        async with running(tmp_path) as process:
            await asked.wait()
            process.kill()
            await process.wait()
        server.script("/price0", Answer.json({"price": 2}))
        before = server.count("/price0")
        async with running(tmp_path):
            await until(lambda: server.count("/price0") > before)
            await until(lambda: server.count("/audit") >= 1)
        app = App.from_file(tmp_path / "bide.toml")
        async with app.open():
            events = await app.provider.events()
        assert '{"price":2}' in {event.payload for event in events}
        assert len(events) == len({event.payload for event in events}), "no change was kept twice"


async def test_of_three_processes_started_together_one_calls_each_poll_each_time(tmp_path: Path) -> None:
    async with RawServer() as server:
        for index in range(6):
            server.script(f"/price{index}", Answer.json({"price": index}))
        server.script("/audit", Answer(status=204))
        declare(tmp_path, server, every="3s", polls=6)
        async with running(tmp_path), running(tmp_path), running(tmp_path):
            await until(lambda: all(server.count(f"/price{index}") >= 1 for index in range(6)))
            await asyncio.sleep(7)
        for index in range(6):
            assert 2 <= server.count(f"/price{index}") <= 5, "about one in 3 s, whoever makes it"
        posts = [request.header("webhook-id") for request in server.requests if request.path == "/audit"]
        assert len(posts) == len(set(posts)) == 6
