"""Settlements gather while one batch is under way, and survive a provider that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from bide.engine.settling import Settler
from bide.errors import ProviderError
from bide.provider import Abandon, Ack, Settled, Settlement
from bide.providers.memory import MemoryProvider
from bide.testing import VirtualClock


class Slow(MemoryProvider):
    """Takes a second to settle, and remembers the batches."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.batches: list[int] = []
        self.errors: list[ProviderError] = []

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        await self.clock.sleep(1)
        self.batches.append(len(settlements))
        if self.errors:
            raise self.errors.pop(0)
        return ["settled" if isinstance(each, Ack) else "stale" for each in settlements]


async def test_settlements_gather_while_a_batch_is_under_way() -> None:
    clock = VirtualClock()
    provider = Slow(clock)
    settler = Settler(provider, clock)
    first = asyncio.ensure_future(settler.settle(Ack("0")))
    await clock.advance(0.5)
    rest = [asyncio.ensure_future(settler.settle(Ack(str(n)))) for n in range(1, 40)]
    late = asyncio.ensure_future(settler.settle(Abandon("x", timedelta())))
    await clock.advance(2)
    assert provider.batches == [1, 40]
    assert first.result() == "settled"
    assert {each.result() for each in rest} == {"settled"}
    assert late.result() == "stale"
    again = asyncio.ensure_future(settler.settle(Ack("y")))
    await clock.advance(1)
    assert again.result() == "settled"


async def test_a_provider_that_is_away_is_asked_again_with_back_off() -> None:
    clock = VirtualClock()
    provider = Slow(clock)
    provider.errors = [ProviderError("locked", retryable=True) for _ in range(3)]
    settling = asyncio.ensure_future(Settler(provider, clock).settle(Ack("a")))
    await clock.advance(4 + 0.1 + 0.2 + 0.4)
    assert settling.result() == "settled"
    assert provider.batches == [1, 1, 1, 1]


async def test_a_refusal_for_good_reaches_every_waiter_and_the_next_batch_is_tried() -> None:
    clock = VirtualClock()
    provider = Slow(clock)
    provider.errors = [ProviderError("read-only")]
    settler = Settler(provider, clock)
    settling = [asyncio.ensure_future(settler.settle(Ack(name))) for name in "ab"]
    await clock.advance(1)
    for each in settling:
        with pytest.raises(ProviderError, match="read-only"):
            each.result()
    again = asyncio.ensure_future(settler.settle(Ack("c")))
    await clock.advance(1)
    assert again.result() == "settled"


async def test_a_waiter_that_is_cancelled_harms_nobody() -> None:
    clock = VirtualClock()
    provider = Slow(clock)
    settler = Settler(provider, clock)
    one, two = (asyncio.ensure_future(settler.settle(Ack(name))) for name in "ab")
    await clock.advance(0.5)
    one.cancel()
    await clock.advance(2)
    assert two.result() == "settled"
