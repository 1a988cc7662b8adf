"""A worker whose PostgreSQL answers nothing any more stops in time, and loses nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from bide import App, WorkerRunOptions
from bide.engine.handling import SETTLE_LIMIT_S
from bide.providers.postgres.session import CLOSE_S
from tests.providers.postgres_server import Server
from tests.servers import eventually

GRACE_S = 2.0
SLACK_S = 1.5
"""For a machine that is busy."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server(18)
    try:
        started.start()
        yield started
    finally:
        started.remove()


@pytest.mark.parametrize("asked_again", [False, True])
async def test_a_worker_stops_in_time_over_a_server_that_hangs(
    server: Server, asked_again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(server.address(options=f"?schema=hangs_{asked_again}".lower()), environment={})
    begun: list[str] = []
    ended: dict[str, float] = {}
    release = asyncio.Event()

    @app.task(lock_timeout="10m")
    async def wait(name: str) -> None:
        begun.append(name)
        try:
            await (release.wait() if name == "short" else asyncio.sleep(3600))
        finally:
            ended[name] = time.monotonic()

    async with app.open():
        handles = await wait.submit_many([("short",), ("long",)])
        worker, stopping = app.worker(), asyncio.Event()
        running = asyncio.create_task(worker.run(WorkerRunOptions(grace=f"{GRACE_S:g}s"), stopping=stopping))
        await eventually(lambda: len(begun) == 2)
        await asyncio.sleep(0.1)  # until it waits in a fetch for more
        server.freeze()
        try:
            fetching = asyncio.create_task(wait.submit("another"))  # which wakes the fetch
            release.set()
            await asyncio.sleep(0.1)
            began = time.monotonic()
            stopping.set()
            if asked_again:
                await asyncio.sleep(0.3)
                worker.stop_now()
            await running
            took = time.monotonic() - began
            closing = time.monotonic()
            await app.provider.close()
            closed = time.monotonic() - closing
        finally:
            server.thaw()
        await asyncio.gather(fetching, return_exceptions=True)
    grace = 0.3 if asked_again else GRACE_S
    assert grace <= ended["long"] - began < grace + SLACK_S, "the grace begins with the stop"
    assert took < grace + (2 if asked_again else SETTLE_LIMIT_S + 1) + SLACK_S
    assert closed < CLOSE_S + SLACK_S
    assert "never retrieved" not in caplog.text
    async with app.open():
        rows = [await app.provider.item(handle.id) for handle in handles]
        assert all(row is None or row.deaths == 0 for row in rows)
        assert rows[1] is not None
        assert rows[1].state in ("ready", "running"), (
            "what could not be given back keeps its lock until it ends"
        )
