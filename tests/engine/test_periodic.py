"""Periodic tasks: one run for the whole fleet, one after an outage, and nothing asked in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bide.core.arguments import read_signature
from bide.core.periodic import Rule, cron_rule, every_rule
from bide.core.work import TaskDeclaration
from bide.engine.periodic import Periodic
from bide.errors import ProviderError
from bide.provider import NewItem
from bide.providers.memory import MemoryProvider
from bide.telemetry import ProviderDown, ProviderUp, Record, Telemetry
from bide.testing import VirtualClock

MINUTE = timedelta(minutes=1)
HOUR_MS = 3_600_000


async def tidy(deep: bool = False) -> None: ...


def declare(rule: Rule, name: str = "tidy", **options: Any) -> TaskDeclaration:
    signature, _ = read_signature(name, tidy)
    assert signature is not None
    return TaskDeclaration(name, tidy, "test:tidy", signature, rule=rule, **options)


class Asked:
    """A store that counts what it is asked, and may be away."""

    def __init__(self, clock: VirtualClock, provider: MemoryProvider | None = None) -> None:
        self.provider = provider or MemoryProvider(clock)
        self.asked: list[str] = []
        self.error: ProviderError | None = None

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.error is not None:
            raise self.error

    async def now(self) -> int:
        self._ask("now")
        return await self.provider.now()

    async def occurred(self, schedules: Mapping[str, tuple[str, int]]) -> dict[str, int]:
        self._ask("occurred")
        return await self.provider.occurred(schedules)

    async def occur(self, name: str, at: int, item: NewItem) -> bool:
        self._ask("occur")
        return await self.provider.occur(name, at, item)


def clock_at(text: str) -> VirtualClock:
    return VirtualClock(start_ms=round(datetime.fromisoformat(text).timestamp() * 1000))


@asynccontextmanager
async def running(clock: VirtualClock, store: Asked, *tasks: TaskDeclaration) -> AsyncIterator[list[Record]]:
    telemetry, told = Telemetry(), list[Record]()
    telemetry.listen(told.append)
    periodic = Periodic(store, tasks, tick=MINUTE, clock=clock, telemetry=telemetry)
    assert periodic
    loop = asyncio.ensure_future(periodic.run())
    await clock.advance(0)
    try:
        yield told
    finally:
        loop.cancel()
        await asyncio.wait({loop})
        if not loop.cancelled():
            loop.result()


async def enqueued(store: Asked, queue: str = "default") -> list[int]:
    """When each item was enqueued, in order."""
    rows = await store.provider.items(queue, limit=1000)
    return sorted(row.enqueued_at for row in rows)


def local(instants: list[int], zone: str) -> list[str]:
    return [datetime.fromtimestamp(at / 1000, ZoneInfo(zone)).strftime("%m-%d %H:%M%z") for at in instants]


async def test_an_item_is_enqueued_at_each_instant_as_the_task_says() -> None:
    clock = VirtualClock()
    store = Asked(clock)
    rule = every_rule("tidy", timedelta(minutes=10))
    task = declare(rule, queue="night", priority=3, max_attempts=2, keep_result=MINUTE)
    async with running(clock, store, task):
        await clock.advance(3600)
    at = await enqueued(store, "night")
    assert len(at) == 6
    assert all(each == rule.latest_instant(each) for each in at), "each at its very instant"
    row = (await store.provider.items("night", limit=1))[0]
    assert (row.name, row.payload, row.priority, row.max_attempts) == ("tidy", "{}", 3, 2)


async def test_a_new_task_begins_with_its_next_instant() -> None:
    clock = clock_at("2026-01-31T08:59:00+00:00")
    store = Asked(clock)
    async with running(clock, store, declare(cron_rule("0 9 * * *"))):
        await clock.advance(50)
        assert await enqueued(store) == []
        await clock.advance(20)
        assert local(await enqueued(store), "UTC") == ["01-31 09:00+0000"]


async def test_of_many_processes_one_enqueues() -> None:
    clock = VirtualClock()
    shared = MemoryProvider(clock)
    stores = [Asked(clock, shared) for _ in range(5)]
    rule = every_rule("tidy", timedelta(minutes=1))
    periodics = [
        Periodic(store, [declare(rule)], tick=MINUTE, clock=clock, telemetry=Telemetry()) for store in stores
    ]
    loops = [asyncio.ensure_future(periodic.run()) for periodic in periodics]
    await clock.advance(3600)
    for loop in loops:
        loop.cancel()
    await asyncio.wait(loops)
    at = await enqueued(stores[0])
    assert len(at) == 60
    assert len({rule.latest_instant(each) for each in at}) == 60


async def test_an_outage_is_caught_up_with_once() -> None:
    clock = VirtualClock()
    store = Asked(clock)
    task = declare(every_rule("tidy", timedelta(hours=1)))
    async with running(clock, store, task):
        await clock.advance(3600)
    assert len(await enqueued(store)) == 1
    await clock.advance(8 * 3600)
    async with running(clock, store, task):
        assert len(await enqueued(store)) == 2
        await clock.advance(3600)
        assert len(await enqueued(store)) == 3


async def test_a_machine_that_slept_catches_up_once_when_it_wakes() -> None:
    """Its monotonic clock stood still meanwhile, so the loop wakes by its next look."""
    clock = VirtualClock()
    store = Asked(clock)
    async with running(clock, store, declare(every_rule("tidy", timedelta(hours=1)))):
        await clock.advance(3600)
        clock.step_wall(8 * 3600)
        await clock.advance(60)
        assert len(await enqueued(store)) == 2


@pytest.mark.parametrize(
    ("zone", "expression", "began", "expected"),
    [
        (
            *("Europe/Berlin", "30 2 * * *", "2026-10-24T20:00+02:00"),
            ["10-25 02:30+0200", "10-26 02:30+0100"],
        ),
        (
            *("Europe/Berlin", "30 2 * * *", "2026-03-28T20:00+01:00"),
            ["03-29 03:00+0200", "03-30 02:30+0200"],
        ),
        (
            *("America/New_York", "30 1 * * *", "2026-10-31T20:00-04:00"),
            ["11-01 01:30-0400", "11-02 01:30-0500"],
        ),
        (
            *("America/New_York", "30 2 * * *", "2026-03-07T20:00-05:00"),
            ["03-08 03:00-0400", "03-09 02:30-0400"],
        ),
    ],
)
async def test_daylight_saving_repeats_nothing_and_loses_nothing(
    zone: str, expression: str, began: str, expected: list[str]
) -> None:
    clock = clock_at(began)
    store = Asked(clock)
    async with running(clock, store, declare(cron_rule(expression, zone))):
        await clock.advance(34 * 3600)
    assert local(await enqueued(store), zone) == expected


async def test_a_restart_within_the_hour_that_comes_twice_repeats_nothing() -> None:
    clock = clock_at("2026-10-25T02:00+02:00")
    store, task = Asked(clock), declare(cron_rule("30 2 * * *", "Europe/Berlin"))
    for _ in range(12):
        async with running(clock, store, task):
            await clock.advance(600)
    assert local(await enqueued(store), "Europe/Berlin") == ["10-25 02:30+0200"]


async def test_a_changed_rule_begins_anew_without_a_burst() -> None:
    clock = VirtualClock()
    store = Asked(clock)
    async with running(clock, store, declare(every_rule("tidy", timedelta(days=1)))):
        await clock.advance(86_400)
    assert len(await enqueued(store)) == 1
    await clock.advance(30 * 86_400)
    rule = every_rule("tidy", timedelta(hours=1))
    async with running(clock, store, declare(rule)):
        await clock.advance(0)
        assert len(await enqueued(store)) == 1
        await clock.advance(3600)
        assert len(await enqueued(store)) == 2


async def test_the_store_is_asked_nothing_between_instants_but_its_clock_once_a_tick() -> None:
    clock = VirtualClock()
    store = Asked(clock)
    async with running(clock, store, declare(cron_rule("0 0 1 1 *"))):
        assert store.asked == ["now", "occurred"]
        await clock.advance(3600)
        assert store.asked[2:] == ["now"] * 60


async def test_it_wakes_at_the_next_instant_of_several_tasks() -> None:
    clock = clock_at("2026-01-31T09:00:30+00:00")
    store = Asked(clock)
    tasks = [declare(cron_rule("1 9 * * *"), "one"), declare(cron_rule("20 1 9 * * *"), "two")]
    async with running(clock, store, *tasks):
        await clock.advance(29)
        assert store.asked == ["now", "occurred"]
        await clock.advance(1)
        assert store.asked[2:] == ["now", "occur"]
        await clock.advance(20)
        assert store.asked[4:] == ["now", "occur"]


async def test_a_store_that_is_away_is_asked_again_and_nothing_is_lost() -> None:
    clock = VirtualClock()
    store = Asked(clock)
    async with running(clock, store, declare(every_rule("tidy", timedelta(hours=1)))) as told:
        store.error = ProviderError("away", retryable=True)
        await clock.advance(5 * 3600)
        assert await enqueued(store) == []
        store.error = None
        await clock.advance(60)
        assert len(await enqueued(store)) == 1
    assert [type(each) for each in told if isinstance(each, ProviderUp)] == [ProviderUp]
    assert isinstance(told[0], ProviderDown)


async def test_a_store_that_refuses_for_good_ends_it() -> None:
    clock = VirtualClock()
    store = Asked(clock)
    store.error = ProviderError("the schema is newer")
    with pytest.raises(ProviderError, match="newer"):
        async with running(clock, store, declare(every_rule("tidy", MINUTE))):
            await clock.advance(1)


async def test_a_clock_that_was_years_ahead_and_is_set_right_stops_nothing() -> None:
    clock = VirtualClock()
    store = Asked(clock)
    clock.step_wall(8 * 365 * 86_400)
    task = declare(every_rule("tidy", timedelta(hours=1)))
    async with running(clock, store, task):
        await clock.advance(3600)
        assert len(await enqueued(store)) == 1
        clock.step_wall(-8 * 365 * 86_400)
        await clock.advance(2 * 3600)
        assert len(await enqueued(store)) == 3
    async with running(clock, store, task):
        await clock.advance(3600)
        assert len(await enqueued(store)) == 4


async def test_a_clock_set_back_by_less_than_an_interval_repeats_nothing() -> None:
    clock = clock_at("2026-01-31T08:59:50+00:00")
    store = Asked(clock)
    async with running(clock, store, declare(cron_rule("0 9 * * *"))):
        await clock.advance(20)
        assert len(await enqueued(store)) == 1
        clock.step_wall(-600)
        await clock.advance(3600)
        assert len(await enqueued(store)) == 1


async def test_the_previous_occurrence_that_still_waits_holds_up_no_next_one() -> None:
    clock = VirtualClock()
    store = Asked(clock)
    async with running(clock, store, declare(every_rule("tidy", MINUTE))):
        await clock.advance(300)
    rows = await store.provider.items("default")
    assert [row.state for row in rows] == ["ready"] * 5


def test_without_periodic_tasks_there_is_nothing_to_run() -> None:
    clock = VirtualClock()
    signature, _ = read_signature("tidy", tidy)
    assert signature is not None
    task = TaskDeclaration("tidy", tidy, "test:tidy", signature)
    assert not Periodic(Asked(clock), [task], tick=MINUTE, clock=clock, telemetry=Telemetry())
