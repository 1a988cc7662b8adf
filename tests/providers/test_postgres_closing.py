"""Closing while the server answers nothing: it has an end, and what was under way is told of it once."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

import pytest

from bide.clock import SystemClock
from bide.errors import ProviderError
from bide.provider import Ack, Fetched, Items, NewItem
from bide.providers.postgres import PostgresProvider
from bide.providers.postgres.session import CLOSE_S
from tests.providers.postgres_server import Server
from tests.servers import eventually

LOCK = timedelta(seconds=30)
MINUTE = timedelta(minutes=1)
POOL = 2

Act = Callable[[PostgresProvider, str], Coroutine[Any, Any, object]]
"""Something to do with a provider and the token of an item that it holds."""


@pytest.fixture(scope="module")
def frozen_server() -> Iterator[Server]:
    """A server that tests of this module freeze, and let go on."""
    started = Server(18)
    try:
        started.start()
        yield started
    finally:
        started.remove()


@pytest.fixture
async def provider(frozen_server: Server) -> AsyncIterator[PostgresProvider]:
    made = PostgresProvider(frozen_server.address(options=f"?pool={POOL}"), clock=SystemClock())
    await made.open()
    yield made
    frozen_server.thaw()
    await made.close()


@pytest.fixture
def unheard() -> Iterator[list[str]]:
    """What the event loop was told that nobody retrieved."""
    told: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    handler = Handler()
    logging.getLogger("asyncio").addHandler(handler)
    yield told
    logging.getLogger("asyncio").removeHandler(handler)


async def token_of(provider: PostgresProvider, name: str) -> str:
    await provider.enqueue([NewItem(provider._database.clock.new_id(), "q", name, "{}")])
    fetched = await fetch(provider, name, timedelta())
    assert isinstance(fetched, Items)
    return fetched.items[0].token


async def fetch(provider: PostgresProvider, name: str, wait: timedelta = MINUTE) -> Fetched:
    return await provider.fetch_work_items(
        ["q"], [name], limit=1, lock_timeout=LOCK, poll_timeout=wait, fetch_token=f"of {name}"
    )


async def transact(provider: PostgresProvider, token: str) -> None:
    async with provider.transaction() as transaction:
        await transaction.execute("SELECT pg_sleep(60)")


ACTS: dict[str, Act] = {
    "fetch": lambda provider, token: fetch(provider, "none"),
    "enqueue": lambda provider, token: provider.enqueue([NewItem("new", "q", "n", "{}")]),
    "settle": lambda provider, token: provider.settle([Ack(token)]),
    "renew": lambda provider, token: provider.renew([token], LOCK),
    "release": lambda provider, token: provider.release("of it"),
    "transaction": transact,
    "look": lambda provider, token: provider.now(),
}


async def closed_in_s(provider: PostgresProvider) -> float:
    began = time.monotonic()
    await provider.close()
    return time.monotonic() - began


async def left_alone() -> None:
    """What nobody holds any more is gone, and its last words with it."""
    for _ in range(3):
        await asyncio.sleep(0)
        gc.collect()


async def test_closing_cuts_off_what_a_hung_server_does_not_answer(
    frozen_server: Server, provider: PostgresProvider, unheard: list[str]
) -> None:
    """More calls of each kind than there are connections: some are asked, some wait for a connection."""
    token = await token_of(provider, "all")
    frozen_server.freeze()
    asked = [asyncio.create_task(act(provider, token)) for act in ACTS.values() for _ in range(POOL)]
    await asyncio.sleep(0.05)
    assert await closed_in_s(provider) < CLOSE_S + 1
    async with asyncio.timeout(1):
        told = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(error, ProviderError) and error.retryable for error in told), told
    assert provider.pending == 0
    await left_alone()
    assert unheard == []


async def test_calls_that_were_cancelled_say_nothing_when_they_are_cut_off(
    frozen_server: Server, provider: PostgresProvider, unheard: list[str]
) -> None:
    token = await token_of(provider, "cancelled")
    frozen_server.freeze()
    asked = [asyncio.create_task(act(provider, token)) for act in ACTS.values() for _ in range(POOL)]
    await asyncio.sleep(0.05)
    for _ in range(2):  # the second time as by somebody who waits no longer for what is given back
        for each in asked:
            each.cancel()
        await asyncio.wait(asked, timeout=0.05)
    assert all(each.cancelled() for each in asked)
    assert await closed_in_s(provider) < CLOSE_S + 1
    await left_alone()
    assert unheard == []


@pytest.mark.parametrize("leaves", [False, True])
async def test_calls_of_other_event_loops_are_cut_off_too(
    frozen_server: Server, provider: PostgresProvider, unheard: list[str], leaves: bool
) -> None:
    """Within the same seconds, and whether or not somebody still waits for them."""
    token = await token_of(provider, f"aside {leaves}")
    told: list[object] = []
    begun = threading.Event()

    async def aside() -> None:
        await provider.renew([token], LOCK)
        begun.set()
        await asyncio.to_thread(frozen.wait)
        renewing = [asyncio.ensure_future(provider.renew([token], LOCK)) for _ in range(5)]
        await asyncio.wait(renewing, timeout=0.1 if leaves else 30)
        for each in renewing:
            each.cancel()
        told.extend(await asyncio.gather(*renewing, return_exceptions=True))

    frozen = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(aside()))
    thread.start()
    await eventually(begun.is_set)
    frozen_server.freeze()
    frozen.set()
    here = asyncio.create_task(provider.renew([token], LOCK))
    await asyncio.sleep(0.3)
    assert await closed_in_s(provider) < CLOSE_S + 1
    await asyncio.to_thread(thread.join, 5)
    with pytest.raises(ProviderError):
        await here
    kind = asyncio.CancelledError if leaves else ProviderError
    assert [type(each) for each in told] == [kind] * 5
    await eventually(lambda: all(each.name != "bide-postgres" for each in threading.enumerate()))
    await left_alone()
    assert unheard == []


async def test_closing_waits_for_a_server_that_is_slow(provider: PostgresProvider) -> None:
    sleeping = asyncio.create_task(provider._database.value("SELECT 7 FROM pg_sleep(1)"))
    await asyncio.sleep(0.05)
    await provider.close()
    assert sleeping.done()
    assert sleeping.result() == 7


async def test_closing_while_nothing_can_connect_has_an_end(
    frozen_server: Server, provider: PostgresProvider, unheard: list[str]
) -> None:
    """The listening connection is lost and asked for again; no other is there yet."""
    frozen_server.freeze()
    other = PostgresProvider(frozen_server.address(), clock=SystemClock())
    opening = asyncio.create_task(other.open())
    await asyncio.sleep(0.05)
    opening.cancel()
    began = time.monotonic()
    await asyncio.wait({opening})
    assert time.monotonic() - began < CLOSE_S + 1
    assert opening.cancelled()
    assert await closed_in_s(provider) < CLOSE_S + 1
    await left_alone()
    assert unheard == []
