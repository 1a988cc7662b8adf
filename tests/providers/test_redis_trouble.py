"""What goes wrong with a server of Redis, and what callers hear of it: FAULTS of blocking reads, users and memory."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import redis.asyncio as driver

from bide.clock import SystemClock
from bide.core.redis_address import redis_address
from bide.errors import ProviderCorrupt, ProviderError, ProviderNewer
from bide.provider import DELIVERIES, ZERO, Ack, Fetched, Items, NewItem
from bide.providers.redis import RedisProvider, listening
from bide.providers.redis.connections import client_of
from bide.testing.conformance.bench import subscription
from tests.providers.redis_server import Server, free_port
from tests.providers.wire import Wire
from tests.servers import eventually

ITEM = NewItem(id="a", queue="q", name="n", payload="{}")
LOCK = timedelta(seconds=30)
LOST = "no wake-ups from other processes until it is back"
BACK = "wake-ups from other processes are back"


class Opened:
    """Makes providers on an emptied server, and closes them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._stack = AsyncExitStack()

    async def __call__(self, options: str = "", *, port: int | None = None) -> RedisProvider:
        address = f"redis://127.0.0.1:{port or self.server.port}/0?{options}"
        provider = RedisProvider(address, clock=SystemClock())
        await provider.open()
        self._stack.push_async_callback(provider.close)
        return provider

    async def command(self, *arguments: Any) -> Any:
        return await command(self.server, *arguments)

    async def close(self) -> None:
        await self._stack.aclose()


async def command(server: Server, *arguments: Any, options: str = "") -> Any:
    """Run one command on a connection of its own."""
    client = client_of(redis_address(server.address(f"?name=aside{options}")), 1, 10)
    try:
        return await client.execute(*arguments)
    finally:
        await client.aclose()


@pytest.fixture
async def opened(valkey: Server) -> AsyncIterator[Opened]:
    await command(valkey, "FLUSHALL")
    made = Opened(valkey)
    yield made
    await made.close()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may stop; it keeps what it is told."""
    started = Server(durable=True)
    try:
        started.start()
        yield started
    finally:
        started.remove()


@pytest.fixture
async def own(own_server: Server) -> AsyncIterator[Opened]:
    made = Opened(own_server)
    yield made
    own_server.thaw()
    await made.close()


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocking reads that last a moment."""
    monkeypatch.setattr(listening, "BLOCK_S", 0.4)
    monkeypatch.setattr(listening, "MARGIN_S", 0.4)


async def fetch(provider: RedisProvider, wait: timedelta = ZERO, by: str = "f") -> Fetched:
    return await provider.fetch_work_items(
        ["q"], ["n"], limit=10, lock_timeout=LOCK, poll_timeout=wait, fetch_token=by
    )


def ids(fetched: Fetched) -> list[str]:
    return [item.id for item in fetched.items] if isinstance(fetched, Items) else []


def new(id: str) -> NewItem:
    return replace(ITEM, id=id)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        await eventually(condition)


async def waits(provider: RedisProvider) -> None:
    """Until the fetch that was begun has looked and waits."""
    await asyncio.sleep(0.02)
    await until(lambda: provider.pending == 0)


async def fails(asking: Awaitable[object]) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        await asking
    return raised.value


def edges(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message.partition(":")[0] for record in caplog.records if record.name == "bide.redis"]


# --- wake-ups -------------------------------------------------------------------------------------------------


async def test_what_another_process_enqueued_ends_a_wait_long_before_it_looks_again(opened: Opened) -> None:
    waiting, other = await opened(), await opened()
    fetching = asyncio.create_task(fetch(waiting, timedelta(seconds=60)))
    await waits(waiting)
    began = time.monotonic()
    for number in range(3):
        await other.enqueue([NewItem(id=f"i{number}", queue="q", name="other", payload="{}")])
        await waits(waiting)
    await other.enqueue([ITEM])
    assert ids(await fetching) == ["a"]
    assert time.monotonic() - began < 10


async def test_a_listener_reset_three_times_comes_back_and_looks_at_once(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    async with Wire(opened.server.port) as wire:
        waiting, other = await opened(port=wire.port), await opened()
        fetching = asyncio.create_task(fetch(waiting, timedelta(seconds=60)))
        await waits(waiting)
        with caplog.at_level(logging.WARNING, logger="bide.redis"):
            for _ in range(3):
                wire.cut()
                await until(lambda: not waiting.hears)
                await until(lambda: waiting.hears)
                await waits(waiting)  # for the look that follows
            wire.cut()
            await until(lambda: not waiting.hears)
            await other.enqueue([ITEM])  # nobody hears of this while it happens
            assert ids(await fetching) == ["a"]
            await until(lambda: waiting.hears)
        assert edges(caplog) == [LOST, BACK] * 4
        fetching = asyncio.create_task(fetch(waiting, timedelta(seconds=60)))
        await waits(waiting)
        await other.enqueue([new("b")])
        assert ids(await fetching) == ["b"]
        await waiting.close()


async def test_without_a_listener_a_wait_ends_all_the_same(opened: Opened) -> None:
    waiting, other = await opened("wake=false"), await opened()
    assert not waiting.hears
    fetching = asyncio.create_task(fetch(waiting, timedelta(seconds=60)))
    await waits(waiting)
    await other.enqueue([ITEM])
    assert ids(await fetching) == ["a"]


@pytest.mark.usefixtures("short_blocks")
async def test_a_block_longer_than_the_timeout_of_commands_is_no_error(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="bide.redis"):
        waiting, other = await opened("timeout=100ms"), await opened()
        before = waiting.requests()["command"]
        await until(lambda: waiting.requests()["command"] >= before + 3)  # three blocks in which nothing came
        assert waiting.hears
        fetching = asyncio.create_task(fetch(waiting, timedelta(seconds=60)))
        await waits(waiting)
        await other.enqueue([ITEM])
        assert ids(await fetching) == ["a"]
    assert edges(caplog) == []


# --- servers that go away -------------------------------------------------------------------------------------


async def test_a_stopped_server_is_said_at_once_and_found_again_with_all_that_it_kept(
    own: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    provider = await own()
    await provider.enqueue([ITEM])
    with caplog.at_level(logging.WARNING, logger="bide.redis"):
        await asyncio.to_thread(own.server.stop)
        for asking in (provider.enqueue([new("b")]), fetch(provider), provider.renew(["x:y"], LOCK)):
            error = await fails(asking)
            assert error.retryable
            assert f"redis://127.0.0.1:{own.server.port}/0: " in str(error)
        await until(lambda: not provider.hears)
        await asyncio.to_thread(own.server.start)
        await until(lambda: provider.hears)
    assert edges(caplog) == [LOST, BACK]
    assert ids(await fetch(provider)) == ["a"]


@pytest.mark.usefixtures("short_blocks")
async def test_a_frozen_server_is_given_up_in_time(own: Opened, caplog: pytest.LogCaptureFixture) -> None:
    provider = await own("timeout=300ms")
    with caplog.at_level(logging.WARNING, logger="bide.redis"):
        own.server.freeze()
        began = time.monotonic()
        error = await fails(provider.enqueue([ITEM]))
        assert time.monotonic() - began < 5
        assert error.retryable
        assert "did not answer in time" in str(error)
        await until(lambda: not provider.hears)
        own.server.thaw()
        await until(lambda: provider.hears)
    assert edges(caplog) == [LOST, BACK]
    fetched = await fetch(provider)  # what was asked of a frozen server may have happened
    if not ids(fetched):
        await provider.enqueue([ITEM])
        fetched = await fetch(provider)
    assert ids(fetched) == ["a"]


async def test_a_server_that_lost_everything_is_begun_anew_and_this_is_said_once(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    provider, other = await opened(), await opened()
    await provider.enqueue([ITEM])
    await provider.register_subscriptions([subscription("s")])
    (item,) = (await fetch(provider)).items  # type: ignore[union-attr]  # it is there
    waiting = asyncio.create_task(fetch(other, timedelta(seconds=60), by="other"))
    await waits(other)
    with caplog.at_level(logging.WARNING, logger="bide.redis"):
        await opened.command("FLUSHALL")
        await opened.command("FUNCTION", "FLUSH")
        assert await provider.settle([Ack(item.token)]) == ["stale"]
        assert await provider.enqueue([new("b")]) != []
        # Whoever waits was told by what is gone; it looks again in time.
        other._store.bell.ring_everywhere()
        assert ids(await waiting) == ["b"]
        assert await provider.subscriptions() == []
    said = [record.message for record in caplog.records]
    assert len(said) == 1
    assert "the store is empty" in said[0]
    # A process that declares its subscribers again, as each does once a tick, has them again.
    assert await provider.register_subscriptions([subscription("s")]) == ["s"]


async def test_a_fetch_whose_answer_was_lost_gives_back_what_it_took(opened: Opened) -> None:
    async with Wire(opened.server.port) as wire:
        provider = await opened("wake=false", port=wire.port)
        await provider.enqueue([new("a"), new("b")])
        wire.loses = True
        error = await fails(fetch(provider, by="lost"))
        assert error.retryable
        wire.loses = False
        assert ids(await fetch(provider)) == []
        assert await provider.release("lost") == 2
        fetched = await fetch(provider)
        assert isinstance(fetched, Items)
        assert [(item.id, item.attempt) for item in fetched.items] == [("a", 1), ("b", 1)]
        await provider.close()


async def test_what_was_asked_again_after_a_lost_answer_happened_once(opened: Opened) -> None:
    async with Wire(opened.server.port) as wire:
        provider = await opened("wake=false", port=wire.port)
        wire.loses = True
        await fails(provider.enqueue([replace(ITEM, keep_result=timedelta(hours=1))]))
        wire.loses = False
        (enqueued,) = await provider.enqueue([ITEM])
        assert (enqueued.id, enqueued.new) == ("a", False)
        (item,) = (await fetch(provider)).items  # type: ignore[union-attr]  # it is there
        wire.loses = True
        await fails(provider.settle([Ack(item.token, "first", (new("child"),))]))
        wire.loses = False
        assert await provider.settle([Ack(item.token, "second", (new("other"),))]) == ["stale"]
        rows = {row.id: (row.state, row.result) for row in await provider.items("q")}
        assert rows == {"a": ("done", "first"), "child": ("ready", None)}
        await provider.close()


# --- what a server refuses ------------------------------------------------------------------------------------


async def open_at(address: str) -> ProviderError:
    """What opening a store there raises."""
    return await fails(RedisProvider(address, clock=SystemClock()).open())


async def test_a_server_that_is_not_there(valkey: Server) -> None:
    error = await open_at(f"redis://127.0.0.1:{free_port()}/0")
    assert error.retryable
    assert "check that the server runs" in str(error)


async def test_a_password_that_is_wrong_or_missing_is_not_worth_a_retry() -> None:
    server = Server(options=["--requirepass", "s3cret"])
    try:
        server.start()
        for user in ("", ":wrong-s3cr3t@", "nobody:wrong-s3cr3t@"):
            error = await open_at(server.address(user=user))
            assert not error.retryable
            assert "password" in str(error)
            assert "s3cr3t" not in str(error)
        provider = RedisProvider(server.address(user=":s3cret@"), clock=SystemClock())
        await provider.open()
        assert "s3cret" not in repr(redis_address(server.address(user=":s3cret@")))
        await provider.close()
    finally:
        server.remove()


async def test_a_user_who_may_not_is_told_what_is_wanting(opened: Opened) -> None:
    allowed = ("+@connection", "+eval", "+evalsha")
    await opened.command("ACL", "SETUSER", "reader", "on", ">x", "~*", "-@all", *allowed)
    error = await open_at(opened.server.address(user="reader:x@"))
    assert not error.retryable
    assert "ACL SETUSER" in str(error)
    # And the least that is enough, as docs/providers.md has it.
    commands = ("+@connection", "+@scripting", "+@read", "+@write", "+time")
    await opened.command(
        "ACL", "SETUSER", "worker", "on", ">x", "~{bide}:*", "resetchannels", "-@all", *commands
    )
    provider = RedisProvider(opened.server.address(user="worker:x@"), clock=SystemClock())
    await provider.open()
    await provider.enqueue([ITEM])
    assert ids(await fetch(provider)) == ["a"]
    assert provider.hears
    await provider.close()


async def test_a_server_out_of_memory_keeps_what_it_has_and_refuses_the_whole_step(opened: Opened) -> None:
    provider = await opened()
    await provider.enqueue([ITEM])
    await opened.command("CONFIG", "SET", "maxmemory", "1")
    try:
        error = await fails(provider.enqueue([new("b"), new("c")]))
        assert error.retryable
        assert "maxmemory" in str(error)
    finally:
        await opened.command("CONFIG", "SET", "maxmemory", "0")
    assert [row.id for row in await provider.items("q")] == ["a"]


async def test_a_replica_takes_no_writes_until_it_is_the_primary(opened: Opened) -> None:
    provider = await opened()
    await provider.enqueue([ITEM])
    await opened.command("REPLICAOF", "127.0.0.1", free_port())
    try:
        error = await fails(provider.enqueue([new("b")]))
        assert error.retryable
        assert "primary" in str(error)
    finally:
        await opened.command("REPLICAOF", "NO", "ONE")
    assert ids(await fetch(provider)) == ["a"]


async def test_a_server_busy_with_a_script_is_worth_asking_again(own: Opened) -> None:
    provider = await own()
    await own.command("CONFIG", "SET", "busy-reply-threshold", "50")
    spinning = asyncio.create_task(own.command("EVAL", "while true do end", 0))
    await asyncio.sleep(0.3)
    error = await fails(provider.enqueue([ITEM]))
    assert error.retryable
    assert "busy" in str(error)
    await own.command("SCRIPT", "KILL")
    with pytest.raises(driver.ResponseError):
        await spinning
    assert len(await provider.enqueue([ITEM])) == 1


async def test_a_key_of_another_program_is_left_alone(opened: Opened) -> None:
    await opened.command("SET", "{theirs}:meta", "something")
    error = await open_at(opened.server.address("?prefix=theirs"))
    assert isinstance(error, ProviderCorrupt)
    assert "?prefix=" in str(error)
    assert await opened.command("GET", "{theirs}:meta") == b"something"


async def test_a_newer_program_that_took_the_store_over_is_noticed_at_once(opened: Opened) -> None:
    provider = await opened()
    await opened.command("HSET", "{bide}:meta", "schema", 2, "written_by", "9.9")
    error = await fails(provider.enqueue([ITEM]))
    assert isinstance(error, ProviderNewer)
    assert await opened.command("EXISTS", "{bide}:i:a") == 0
    error = await open_at(opened.server.address())
    assert "bide 9.9" in str(error)


async def test_a_crash_loses_nothing_that_was_told_is_done(own: Opened) -> None:
    provider = await own()
    await provider.enqueue([new(f"i{number}") for number in range(50)])
    await asyncio.to_thread(own.server.stop, signal.SIGKILL)
    await asyncio.to_thread(own.server.start)
    assert len(await provider.items("q")) == 50


# --- what is left -------------------------------------------------------------------------------------------


async def test_once_everything_is_done_and_pruned_only_what_is_documented_is_left(opened: Opened) -> None:
    from bide.testing.benches.redis import RedisBench

    bench = RedisBench(opened.server.address("?prefix=left&name=left"))
    await bench.open()
    store = bench.provider
    await bench.subscribe("s")
    await bench.subscribe("o", template=replace(subscription(), ordered=True))
    for price in (1, 2, 3):
        await bench.change("eu.price", price)
    full = replace(
        ITEM, key="k", limit_key="l", order_key="o", priority=3, max_attempts=4, within=timedelta(days=2)
    )
    await store.enqueue([full, replace(full, id="b", key="m", keep_result=timedelta(hours=1))])
    await store.enqueue([replace(full, id="late", key=None, delay=timedelta(hours=3)), new("dead")])
    await store.enqueue([new("never")])
    await store.occurred({"hourly": ("rule", 1)})
    for _ in range(12):
        for queue, names in (("q", ["n"]), (DELIVERIES, ["s", "o"])):
            items = await bench.take(100, queues=[queue], names=names, lock=timedelta(minutes=5))
            await store.settle([Ack(item.token, "r") for item in items if item.id != "never"])
        await bench.advance(3600)
    await store.discard(["never"], "not wanted")
    await bench.advance(40 * 86_400)
    while (await store.prune(timedelta(days=30))).any:
        pass
    assert await store.counts() == []
    left = await bench.keys()
    last_event = {"e:3", "ev", "en:shop.PriceChanged"}
    declared = {"subs", "s:s", "s:o", "hear:shop.PriceChanged", "polls", "p:eu.price", "schedules"}
    assert left - {"hungry", "starved"} <= {"meta", "wake"} | last_event | declared
    await store.forget_polls(["eu.price"])
    await store.end_subscriptions(["s", "o"], "gone")
    await bench.advance(40 * 86_400)
    await store.prune(timedelta(days=30))
    assert await bench.keys() - {"wake", "hungry"} == {"meta", "subs", "s:s", "s:o", "schedules"}
    await bench.close()
