"""Counting the items of queues: what is told, and that nothing depends on the store's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from bide.engine.counting import Counting
from bide.errors import ProviderError
from bide.provider import NewItem, QueueCounts
from bide.providers.memory import MemoryProvider
from bide.telemetry import ProviderDown, ProviderUp, QueueCounted, Record, Telemetry
from bide.testing import VirtualClock


class Flaky(MemoryProvider):
    """Answers counts unless it is ``away``."""

    away = False

    async def counts(self) -> list[QueueCounts]:
        if self.away:
            raise ProviderError("gone")
        return await super().counts()


def heard(telemetry: Telemetry) -> Sequence[Record]:
    records: list[Record] = []
    telemetry.listen(records.append)
    return records


async def test_queues_are_counted_at_once_and_then_each_interval_until_it_is_stopped() -> None:
    clock, telemetry = VirtualClock(), Telemetry()
    provider, records = Flaky(clock), heard(telemetry)
    await provider.enqueue([NewItem("a", "q", "n", "{}"), NewItem("b", "q", "n", "{}")])
    stop = asyncio.Event()
    counting = Counting(provider, timedelta(seconds=10), clock=clock, telemetry=telemetry)
    running = asyncio.ensure_future(counting.run(stop))
    await clock.advance(25)
    assert records == [QueueCounted("q", 2, 0, 0, 0, oldest_ms=age) for age in (0, 10_000, 20_000)]
    stop.set()
    await running
    await clock.advance(25)
    assert len(records) == 3


async def test_a_queue_that_has_become_empty_is_told_once_more() -> None:
    clock, telemetry = VirtualClock(), Telemetry()
    provider, records = Flaky(clock), heard(telemetry)
    await provider.enqueue([NewItem("a", "q", "n", "{}")])
    counting = Counting(provider, timedelta(seconds=10), clock=clock, telemetry=telemetry)
    await counting.once()
    await provider.purge("q", states=["ready"])
    for _ in range(3):
        await counting.once()
    assert records == [QueueCounted("q", 1, 0, 0, 0, oldest_ms=0), QueueCounted("q", 0, 0, 0, 0)]


async def test_a_store_that_does_not_answer_is_told_on_the_edges_and_asked_again() -> None:
    clock, telemetry = VirtualClock(), Telemetry()
    provider, records = Flaky(clock), heard(telemetry)
    counting = Counting(provider, timedelta(seconds=10), clock=clock, telemetry=telemetry)
    provider.away = True
    for _ in range(3):
        await counting.once()
    provider.away = False
    await counting.once()
    assert [type(record) for record in records] == [ProviderDown, ProviderUp]
