"""Programs that tests run beside each other on one store: ``python children.py <what> <path or address> <name>``.

Each prints what it was told is done, one line at a time, as soon as it was told.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from bide.clock import SystemClock
from bide.provider import (
    DELIVERIES,
    Abandon,
    Ack,
    Changed,
    Items,
    Limit,
    NewItem,
    Provider,
    Schedule,
    Stale,
    WorkItem,
)
from bide.providers.sqlite import SqliteProvider
from bide.stores import open_provider
from bide.testing.conformance.bench import answered

ITEM = NewItem(id="", queue="q", name="n", payload="x" * 300)
POLLS = 30
LOCK = timedelta(seconds=30)
SHORT_LOCK = timedelta(seconds=1)


def say(*words: object) -> None:
    print(*words, flush=True)


async def open_only(provider: Provider, name: str) -> None:
    """Open, leave a mark, and go."""
    await provider.enqueue([replace(ITEM, id=f"from{name}")])


async def share(provider: Provider, name: str) -> None:
    """Claim polls, record what changed, and deliver, until nothing is left to deliver."""
    schedules = [Schedule(f"eu.p{number}", timedelta(hours=1)) for number in range(POLLS)]

    async def call() -> None:
        for _ in range(40):
            for claim in await provider.claim_polls(schedules, 3):
                say("claimed", claim.name, claim.generation)
                recorded = await provider.record_answer(claim, answered(claim.generation, claim))
                if isinstance(recorded, Changed):
                    say("changed", recorded.event_id)
                else:  # made due again while it was out, and claimed by another
                    assert recorded == Stale(), recorded
                    say("stale", claim.name, claim.generation)
            await provider.poll_now([f"eu.p{(7 * int(name)) % POLLS}"])

    async def deliver(number: int) -> None:
        while True:
            fetched = await provider.fetch_work_items(
                [DELIVERIES],
                ["a", "b"],
                limit=5,
                lock_timeout=LOCK,
                poll_timeout=timedelta(seconds=1),
                fetch_token=f"{name}.{number}",
            )
            if not isinstance(fetched, Items):
                return
            for item in fetched.items:
                say("delivered", item.id)
            settled = await provider.settle([Ack(item.token) for item in fetched.items])
            assert settled == ["settled"] * len(fetched.items), settled

    await asyncio.gather(call(), deliver(1), deliver(2))


async def churn(provider: Provider, name: str) -> None:
    """Write without end, in every way there is, until killed."""
    schedules = [Schedule(f"{name}.p{number}", timedelta(hours=1)) for number in range(5)]

    async def enqueue(lane: int) -> None:
        number = 0
        while True:
            number += 1
            ids = [f"{name}.{lane}.{number}.{part}" for part in range(3)]
            await provider.enqueue([replace(ITEM, id=id) for id in ids])
            for id in ids:
                say("enqueued", id)

    async def work() -> None:
        while True:
            fetched = await provider.fetch_work_items(
                ["q"], ["n"], limit=4, lock_timeout=LOCK, poll_timeout=LOCK, fetch_token=name
            )
            if isinstance(fetched, Items):
                first, *others = fetched.items
                more = replace(ITEM, id=f"{first.id}.child", name="kept")
                await provider.settle(
                    [
                        Ack(first.token, enqueue=(more,)),
                        *(Abandon(item.token, LOCK, "later") for item in others),
                    ]
                )
                say("acked", first.id)

    async def poll() -> None:
        while True:
            await provider.poll_now([schedule.name for schedule in schedules])
            for claim in await provider.claim_polls(schedules, 5):
                recorded = await provider.record_answer(claim, answered(claim.generation, claim))
                if isinstance(recorded, Changed):
                    say("event", recorded.event_id, claim.name, claim.generation)

    await asyncio.gather(enqueue(1), enqueue(2), work(), poll())


async def feed(provider: Provider, name: str) -> None:
    """Enqueue a few items at a time."""
    for number in range(100):
        ids = [f"{name}.{number}.{part}" for part in range(3)]
        await provider.enqueue([replace(ITEM, id=id, limit_key=f"k{number % 3}") for id in ids])
        for id in ids:
            say("enqueued", id)


async def drain(provider: Provider, name: str) -> None:
    """Take and settle until nothing has come for a while."""
    while True:
        fetched = await take(provider, name, limit=7, wait=timedelta(seconds=2))
        if not fetched:
            return
        for item in fetched:
            say("took", item.id, item.attempt)
        settled = await provider.settle([Ack(item.token) for item in fetched])
        assert settled == ["settled"] * len(fetched), settled


async def toil(provider: Provider, name: str) -> None:
    """Take and settle under short locks without end, until killed; what is taken makes a child of its own."""
    while True:
        items = await take(provider, name, limit=5, lock=SHORT_LOCK, wait=timedelta())
        for item in items:
            more = () if item.id.endswith(".child") else (replace(ITEM, id=f"{item.id}.child"),)
            if await provider.settle([Ack(item.token, enqueue=more)]) == ["settled"]:
                say("done", item.id)
        if not items:
            await asyncio.sleep(0.05)


async def hold(provider: Provider, name: str) -> None:
    """Take one under a short lock, and settle it when told to."""
    (item,) = await take(provider, name, lock=SHORT_LOCK, wait=LOCK)
    say("took", item.id, item.attempt, item.deaths)
    await asyncio.to_thread(sys.stdin.readline)
    say(*await provider.settle([Ack(item.token, enqueue=(replace(ITEM, id="late", name="other"),))]))


async def die(provider: Provider, name: str) -> None:
    """Take what there is, and die of the first."""
    first, *_ = await take(provider, name, limit=20, lock=SHORT_LOCK, wait=LOCK)
    say("took", first.id, first.attempt, first.deaths)
    os._exit(1)


async def write_for_long(provider: Provider, name: str) -> None:
    """Open a transaction, and leave it open."""
    async with provider.transaction() as transaction:
        await provider.enqueue_within(transaction, [replace(ITEM, id=name)])
        say("open")
        await asyncio.Event().wait()


async def take(
    provider: Provider, name: str, *, limit: int = 1, lock: timedelta = LOCK, wait: timedelta
) -> list[WorkItem]:
    fetched = await provider.fetch_work_items(
        *(["q"], ["n"]),
        limit=limit,
        lock_timeout=lock,
        poll_timeout=wait,
        fetch_token=name,
        limits={"q": Limit(queue=1)} if name.startswith("limited") else None,
    )
    return list(fetched.items) if isinstance(fetched, Items) else []


PROGRAMS: dict[str, Callable[[Provider, str], Awaitable[None]]] = {
    "open": open_only,
    "share": share,
    "churn": churn,
    "feed": feed,
    "drain": drain,
    "hold": hold,
    "toil": toil,
    "die": die,
    "write_for_long": write_for_long,
}


def provider_at(place: str) -> Provider:
    if place.startswith("s3://"):
        from bide.providers.s3 import S3Provider

        return S3Provider(place, clock=SystemClock())
    if "://" not in place:
        return SqliteProvider(Path(place), clock=SystemClock())
    return open_provider(place, Path(), SystemClock())


async def main(what: str, place: str, name: str) -> None:
    provider = provider_at(place)
    await provider.open()
    await PROGRAMS[what](provider, name)
    await provider.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
