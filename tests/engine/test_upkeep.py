"""What is done once a tick: subscriptions declared anew, lives ended, old things removed in small steps."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import timedelta

from bide.engine.upkeep import Upkeep
from bide.errors import ProviderError
from bide.provider import DELIVERIES, NewItem, Pruned, Subscription
from bide.telemetry import ProviderDown, ProviderUp
from tests.engine.rig import Rig

DAY = timedelta(days=1)


def upkeep(rig: Rig, heard: list[Collection[str]], *names: str) -> Upkeep:
    return Upkeep(
        rig.provider,
        [Subscription(name, "shop.PriceChanged", "function", "test:hear", 3 * DAY) for name in names],
        retention=30 * DAY,
        tick=timedelta(minutes=1),
        living=heard.append,
        clock=rig.clock,
        telemetry=rig.telemetry,
    )


async def test_subscriptions_are_declared_each_tick_and_those_that_live_are_told() -> None:
    rig, heard = Rig.make(), list[Collection[str]]()
    keeping = upkeep(rig, heard, "audit", "mail")
    await keeping.once()
    running = asyncio.ensure_future(keeping.run())
    await rig.clock.advance(60)
    await rig.provider.end_subscriptions(["audit"], "the receiver is gone")
    await rig.clock.advance(60)
    running.cancel()
    assert [sorted(names) for names in heard] == [["audit", "mail"], ["audit", "mail"], ["mail"]]
    rows = {row.subscription.name: row for row in await rig.provider.subscriptions()}
    assert rows["mail"].declared_at - rows["mail"].created_at == 120_000


async def test_deliveries_past_their_life_are_ended_though_nobody_fetches_them() -> None:
    rig = Rig.make()
    await rig.provider.enqueue([NewItem("i", DELIVERIES, "elsewhere", "{}", within=DAY)])
    keeping = upkeep(rig, [], "audit")
    await rig.clock.advance(86_399)
    await keeping.once()
    assert [item.state for item in await rig.provider.items(DELIVERIES)] == ["ready"]
    await rig.clock.advance(2)
    await keeping.once()
    (item,) = await rig.provider.items(DELIVERIES)
    assert item.state == "dead"
    assert item.error is not None
    assert "1d" in item.error


async def test_what_ended_longer_ago_than_the_retention_goes_in_small_steps() -> None:
    rig = Rig.make()
    await rig.provider.enqueue([NewItem(f"i{n}", DELIVERIES, "audit", "{}") for n in range(1200)])
    await rig.provider.discard([f"i{n}" for n in range(1200)], "not wanted")
    await rig.clock.advance(31 * 86_400)
    await upkeep(rig, [], "audit").once()
    assert await rig.provider.items(DELIVERIES) == []


async def test_a_store_that_never_comes_to_an_end_holds_up_no_tick() -> None:
    rig, steps = Rig.make(), list[int]()

    async def prune(retention: timedelta, *, limit: int = 500) -> Pruned:
        steps.append(limit)
        return Pruned(items=limit)

    rig.provider.prune = prune  # type: ignore[method-assign]
    await upkeep(rig, [], "audit").once()
    assert 1 < len(steps) <= 100


async def test_a_provider_that_is_away_is_told_on_the_edges_and_tried_the_next_tick() -> None:
    rig, heard = Rig.make(), list[Collection[str]]()
    register = rig.provider.register_subscriptions

    async def away(subscriptions: object) -> list[str]:
        raise ProviderError("locked", retryable=True)

    keeping = upkeep(rig, heard, "audit")
    rig.provider.register_subscriptions = away  # type: ignore[method-assign]
    running = asyncio.ensure_future(keeping.run())
    await rig.clock.advance(300)
    assert len(rig.told_of(ProviderDown)) == 1
    rig.provider.register_subscriptions = register  # type: ignore[method-assign]
    await rig.clock.advance(60)
    running.cancel()
    assert [up.failures for up in rig.told_of(ProviderUp)] == [5]
    assert len(heard) == 1
