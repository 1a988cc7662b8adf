"""Rows that only a hand, a fault or a great number of them makes: met, and put right."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from bide.core.conditional import Validators
from bide.provider import ZERO, Empty, Items, NewItem, NotModified, Schedule
from bide.providers.sqlite import SqliteProvider, fetching
from bide.providers.sqlite import events as sqlite_events
from bide.testing import VirtualClock
from bide.testing.conformance.bench import answered, subscription

ITEM = NewItem(id="", queue="q", name="n", payload="{}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bide.db"


@pytest.fixture
async def provider(path: Path) -> AsyncIterator[SqliteProvider]:
    provider = SqliteProvider(path, clock=VirtualClock(), synchronous="NORMAL")
    await provider.open()
    yield provider
    await provider.close()


def change(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


async def fetched(provider: SqliteProvider) -> list[str]:
    found = await provider.fetch_work_items(
        ["q"], ["n"], limit=10, lock_timeout=timedelta(seconds=30), poll_timeout=ZERO, fetch_token="f"
    )
    assert isinstance(found, Items | Empty)
    return [item.id for item in found.items] if isinstance(found, Items) else []


async def test_attempts_lowered_by_hand_count_at_the_next_fetch(provider: SqliteProvider, path: Path) -> None:
    await provider.enqueue([replace(ITEM, id="a"), replace(ITEM, id="b")])
    change(path, "UPDATE work_items SET attempts = 3, max_attempts = 2, error = 'refused' WHERE id = 'a'")
    assert await fetched(provider) == ["b"]
    (row,) = await provider.items("q", states=["dead"])
    assert (row.id, row.error) == ("a", "gave up after 3 attempts: refused")


async def test_more_than_one_fetch_buries_are_still_not_handed_out(
    provider: SqliteProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MOST_AT_ONCE", 2)
    mortal = replace(ITEM, within=timedelta(seconds=5))
    await provider.enqueue([replace(mortal, id=f"i{number}") for number in range(5)])
    await provider.enqueue([replace(ITEM, id="good")])
    clock = provider._database.clock
    assert isinstance(clock, VirtualClock)
    await clock.advance(5)
    assert await fetched(provider) == ["good"]
    assert {row.error for row in await provider.items("q", states=["dead"])} == {"not done within 5s"}


async def test_delays_that_end_together_come_a_part_at_a_time(
    provider: SqliteProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MOST_AT_ONCE", 2)
    late = replace(ITEM, delay=timedelta(seconds=5))
    await provider.enqueue([replace(late, id=f"i{number}") for number in range(5)])
    clock = provider._database.clock
    assert isinstance(clock, VirtualClock)
    await clock.advance(5)
    assert [await fetched(provider) for _ in range(4)] == [["i0", "i1"], ["i2", "i3"], ["i4"], []]


@pytest.mark.parametrize("damaged", ["{", "[]", '{"etag": 1, "colour": 2}', "null"])
async def test_validators_that_cannot_be_read_are_none(
    provider: SqliteProvider, path: Path, damaged: str
) -> None:
    schedules = [Schedule("eu.price", timedelta(minutes=1))]
    (claim,) = await provider.claim_polls(schedules, 1)
    await provider.record_answer(claim, NotModified(Validators('"a"')))
    change(path, f"UPDATE polls SET due = 0, validators = '{damaged}'")
    (claim,) = await provider.claim_polls(schedules, 1)
    assert claim.validators == Validators()


async def test_an_event_that_cannot_be_read_stops_nothing(provider: SqliteProvider, path: Path) -> None:
    schedules = [Schedule("eu.price", timedelta(minutes=1))]
    (claim,) = await provider.claim_polls(schedules, 1)
    await provider.record_answer(claim, answered(1, claim))
    change(path, "UPDATE events SET payload = CAST(x'7bff7d' AS TEXT)")
    assert [event.payload for event in await provider.events()] == ["{\ufffd}"]
    await provider.poll_now(["eu.price"])
    (claim,) = await provider.claim_polls(schedules, 1)
    await provider.register_subscriptions([subscription("a")])
    await provider.record_answer(claim, answered(2, claim))
    assert len(await provider.events()) == 2


async def test_a_long_replay_goes_in_steps(provider: SqliteProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_events, "REPLAYED_AT_ONCE", 2)
    for price in range(5):
        await provider.poll_now(["eu.price"])
        (claim,) = await provider.claim_polls([Schedule("eu.price", timedelta(minutes=1))], 1)
        await provider.record_answer(claim, answered(price, claim))
    await provider.register_subscriptions([subscription("a")])
    assert await provider.replay("a", 0) == 5


async def test_a_name_with_and_without_limit_keys_keeps_to_what_may_be_taken(
    provider: SqliteProvider,
) -> None:
    items = [replace(ITEM, id=f"i{number}", limit_key="k" if number % 2 else None) for number in range(6)]
    await provider.enqueue(items)
    found = await provider.fetch_work_items(
        *(["q"], ["n"]),
        limit=10,
        lock_timeout=timedelta(seconds=30),
        poll_timeout=ZERO,
        fetch_token="f",
        most={"n": 3},
    )
    assert isinstance(found, Items)
    assert [item.id for item in found.items] == ["i0", "i1", "i2"]
    assert await fetched(provider) == ["i3", "i4", "i5"]
