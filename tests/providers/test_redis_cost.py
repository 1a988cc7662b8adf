"""What is asked of a server: while nothing happens, while much does, and however much lies there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from bide.clock import Clock, SystemClock
from bide.core.conditional import Validators
from bide.provider import ZERO, Ack, Empty, Fetched, Items, Limit, NewItem, NotModified, Schedule
from bide.providers.redis import RedisProvider, listening
from bide.testing import VirtualClock
from bide.testing.conformance.bench import answered
from tests.providers.redis_server import Server
from tests.providers.test_redis_trouble import command, until, waits

ITEM = NewItem(id="a", queue="q", name="n", payload="{}")
MINUTES = 10
MOST_COMMANDS = 4
"""A minute, of a worker that has nothing to do; one of them is its upkeep's."""


async def fetch(
    provider: RedisProvider, wait: timedelta = ZERO, limit: int = 50, limits: dict[str, Limit] | None = None
) -> Fetched:
    return await provider.fetch_work_items(
        *(["q"], ["n"]),
        limit=limit,
        lock_timeout=timedelta(seconds=30),
        poll_timeout=wait,
        fetch_token="f",
        limits=limits,
    )


@asynccontextmanager
async def opened(server: Server, clock: Clock | None = None) -> AsyncIterator[RedisProvider]:
    await command(server, "FLUSHALL")
    provider = RedisProvider(server.address(), clock=clock or SystemClock())
    await provider.open()
    try:
        yield provider
    finally:
        await provider.close()


async def commands(server: Server) -> dict[str, int]:
    """How often the server has run each command, also within scripts."""
    stats = (await command(server, "INFO", "commandstats")).decode()
    rows = [line.partition(":") for line in stats.splitlines() if "calls=" in line]
    return {
        name.removeprefix("cmdstat_"): int(row.partition("calls=")[2].partition(",")[0])
        for name, _, row in rows
    }


async def inner_calls(server: Server) -> int:
    """Commands that the server has run, those of scripts included."""
    return sum((await commands(server)).values())


async def test_an_idle_worker_sends_four_commands_a_minute_at_most(valkey: Server) -> None:
    await command(valkey, "FLUSHALL")
    clock = VirtualClock()
    provider = RedisProvider(valkey.address(), clock=clock)
    clock.busy_while(lambda: provider.pending)
    await provider.open()

    async def work() -> None:
        while True:
            await fetch(provider, timedelta(seconds=30))

    async def keep_up() -> None:
        while True:
            await clock.sleep(60)
            await provider.prune(timedelta(days=30))

    working = [asyncio.create_task(work()), asyncio.create_task(keep_up())]
    await clock.advance(60)
    before = provider.requests()["command"]
    for _ in range(MINUTES * 6):
        await clock.advance(10)
    asked = provider.requests()["command"] - before
    reads = MINUTES * 60 / listening.BLOCK_S  # which last real time, and so did not come here
    assert asked >= MINUTES
    assert asked + reads <= MINUTES * MOST_COMMANDS
    for task in working:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await provider.close()


class Early(SystemClock):
    """A clock whose timers end a little early, as those of event loops do."""

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds * 0.9)

    def sleep(self, seconds: float) -> Coroutine[None, None, None]:
        return self._sleep(seconds)


async def test_a_wait_that_is_over_a_little_early_is_not_followed_by_another_look(valkey: Server) -> None:
    async with opened(valkey, Early()) as provider:
        before = (await commands(valkey)).get("fcall", 0)
        for _ in range(5):
            assert await fetch(provider, timedelta(seconds=0.2)) == Empty(blocked=True)
        assert (await commands(valkey))["fcall"] - before == 5


async def test_a_wait_that_ends_early_with_something_still_to_come_looks_once_more_at_most(
    valkey: Server,
) -> None:
    async with opened(valkey, Early()) as provider:
        await provider.enqueue([replace(ITEM, delay=timedelta(minutes=5))])
        before = (await commands(valkey))["fcall"]
        assert isinstance(await fetch(provider, timedelta(seconds=0.2)), Empty)
        assert (await commands(valkey))["fcall"] - before == 2


async def test_a_read_in_which_nothing_came_is_one_command(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "BLOCK_S", 0.2)
    async with opened(valkey) as provider:
        before = provider.requests()["command"], asyncio.get_running_loop().time()
        await until(lambda: provider.requests()["command"] >= before[0] + 5)
        assert asyncio.get_running_loop().time() - before[1] >= 4 * 0.2


async def test_a_busy_queue_wakes_nobody(valkey: Server) -> None:
    async with opened(valkey) as provider:
        for turn in range(20):
            await provider.enqueue([replace(ITEM, id=f"{turn}.{at}") for at in range(50)])
            fetched = await fetch(provider)
            assert isinstance(fetched, Items)
            await provider.settle([Ack(item.token) for item in fetched.items])
        assert await command(valkey, "EXISTS", "{bide}:wake") == 0
        waiting = asyncio.create_task(fetch(provider, timedelta(seconds=30)))
        await waits(provider)
        await provider.enqueue([replace(ITEM, id="one"), replace(ITEM, id="two")])
        await waiting
        await provider.enqueue([replace(ITEM, id="three")])
        assert await command(valkey, "XLEN", "{bide}:wake") == 1


async def test_two_hundred_submits_at_once_share_a_few_commands(valkey: Server) -> None:
    async with opened(valkey) as provider:
        before = provider.requests()["command"]
        enqueued = await asyncio.gather(
            *(provider.enqueue([replace(ITEM, id=f"i{number}")]) for number in range(200))
        )
        assert [one.new for (one,) in enqueued] == [True] * 200
        assert provider.requests()["command"] - before <= 4


async def test_an_item_from_end_to_end_is_a_few_commands_for_all_of_a_batch(valkey: Server) -> None:
    async with opened(valkey) as provider:
        await provider.enqueue([replace(ITEM, id="warm")])
        fetched = await fetch(provider)
        assert isinstance(fetched, Items)
        await provider.settle([Ack(fetched.items[0].token)])
        before = provider.requests()["command"]
        await provider.enqueue([replace(ITEM, id=f"i{number}") for number in range(50)])
        fetched = await fetch(provider)
        assert isinstance(fetched, Items)
        await provider.settle([Ack(item.token) for item in fetched.items])
        assert provider.requests()["command"] - before == 3


async def test_a_poll_is_two_commands_whether_it_changed_or_not(valkey: Server) -> None:
    schedules = [Schedule(f"eu.p{number}", timedelta(hours=1)) for number in range(20)]
    async with opened(valkey) as provider:

        async def counted(price: int | None) -> int:
            before = provider.requests()["command"]
            claims = await provider.claim_polls(schedules, 20)
            assert len(claims) == 20
            answers = [
                (claim, NotModified(Validators()) if price is None else answered(price, claim))
                for claim in claims
            ]
            await provider.record_answers(answers)
            return provider.requests()["command"] - before

        await counted(0)  # which also sends the scripts
        for price in (1, None, 1):
            await provider.poll_now([schedule.name for schedule in schedules])
            assert await counted(price) == 2


@pytest.mark.parametrize("limited", [False, True], ids=["free", "limited"])
async def test_a_fetch_costs_the_same_however_much_is_there_of_others(valkey: Server, limited: bool) -> None:
    limits = {"q": Limit(per_key=1, queue=1000)} if limited else None

    async def cost(provider: RedisProvider) -> int:
        await provider.enqueue([replace(ITEM, id=f"mine{at}", limit_key=f"k{at}") for at in range(5)])
        before = await inner_calls(valkey)
        fetched = await fetch(provider, limit=5, limits=limits)
        after = await inner_calls(valkey)
        assert isinstance(fetched, Items)
        assert len(fetched.items) == 5
        await provider.settle([Ack(item.token) for item in fetched.items])
        return after - before

    async with opened(valkey) as provider:
        await cost(provider)
        alone = await cost(provider)
        others = [
            replace(ITEM, name="other", limit_key="x"),
            replace(ITEM, queue="p"),
            replace(ITEM, delay=timedelta(1)),
        ]
        for number, other in enumerate(others):
            for first in range(0, 5000, 1000):
                await provider.enqueue([replace(other, id=f"{number}.{first + at}") for at in range(1000)])
        assert await cost(provider) <= alone + 10


async def test_what_is_overdue_is_done_in_bounded_steps(valkey: Server) -> None:
    """A thousand delays, and a thousand lives, that end at one moment: no one script has to see to all of them."""
    from bide.testing.benches.redis import RedisBench

    bench = RedisBench(valkey.address("?prefix=overdue&name=overdue"))
    await bench.open()
    await bench.put(*(f"w{at}" for at in range(1000)), template=replace(ITEM, delay=timedelta(seconds=5)))
    await bench.put(
        *(f"x{at}" for at in range(1000)), template=replace(ITEM, name="m", within=timedelta(seconds=5))
    )
    await bench.advance(5)
    await command(valkey, "CONFIG", "RESETSTAT")
    taken = await bench.take(10)
    assert [item.id for item in taken] == [f"w{at}" for at in range(10)]
    assert await inner_calls(valkey) < 200 * 20 * 2
    done = 10
    while taken := await bench.take(500, lock=timedelta(minutes=5)):
        done += len(taken)
    assert done == 1000
    assert (await bench.provider.counts())[0].dead == 1000
    await bench.close()
