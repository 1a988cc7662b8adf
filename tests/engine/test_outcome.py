"""How outcomes settle items, and what is told of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bide.engine.outcome import (
    LONGEST_ERROR,
    Dead,
    GivenBack,
    Outcome,
    Retried,
    Succeeded,
    settlement,
)
from bide.engine.telling import delivery_settled
from bide.provider import Abandon, Ack, Bury, Settlement, WorkItem

SECOND = timedelta(seconds=1)


def item(attempt: int = 1, max_attempts: int | None = None) -> WorkItem:
    return WorkItem("i", "deliveries", "audit", "{}", "token", attempt, 0, 0, None, max_attempts)


@pytest.mark.parametrize(
    ("outcome", "work", "settled", "told"),
    [
        (Succeeded(), item(), Ack("token"), "succeeded"),
        (Succeeded("[1]"), item(), Ack("token", "[1]"), "succeeded"),
        (Retried("no", SECOND), item(), Abandon("token", SECOND, "no"), "retried"),
        (Retried("no", SECOND), item(2, 3), Abandon("token", SECOND, "no"), "retried"),
        (Retried("no", SECOND), item(3, 3), Bury("token", "gave up after 3 attempts: no"), "dead"),
        (Retried("no", SECOND), item(1, 1), Bury("token", "gave up after 1 attempt: no"), "dead"),
        (Dead("gone"), item(), Bury("token", "gone"), "dead"),
        (
            GivenBack("full", SECOND),
            item(3, 3),
            Abandon("token", SECOND, "full", count_attempt=False),
            "given_back",
        ),
    ],
)
def test_each_outcome_settles_and_is_told(
    outcome: Outcome, work: WorkItem, settled: Settlement, told: str
) -> None:
    assert settlement(work, outcome) == settled
    record = delivery_settled(work, outcome, False, 0.25, now_ms=90)
    assert (record.outcome, record.subscriber, record.delivery) == (told, "audit", "i")
    assert (record.attempt, record.elapsed_ms, record.age_ms) == (work.attempt, 250, 90)


def test_a_lost_item_is_told_as_lost_whatever_its_handler_said() -> None:
    for outcome in (Succeeded(), Dead("gone"), Retried("no", SECOND)):
        assert delivery_settled(item(), outcome, True, 0.0, now_ms=0).outcome == "lost"


def test_an_item_of_a_store_whose_clock_is_ahead_is_not_of_a_negative_age() -> None:
    ahead = replace(item(), enqueued_at=5_000)
    assert delivery_settled(ahead, Succeeded(), False, 0.0, now_ms=4_000).age_ms == 0


@pytest.mark.parametrize("outcome", [Retried("\ud800", SECOND), Dead("\ud800"), GivenBack("\ud800", SECOND)])
def test_an_error_is_settled_as_text_that_every_store_can_keep(outcome: Outcome) -> None:
    settled = settlement(item(), outcome)
    assert isinstance(settled, Abandon | Bury)
    assert settled.error == "\\ud800"


def test_an_endless_error_is_cut() -> None:
    settled = settlement(item(), Dead("e" * 10_000_000))
    assert isinstance(settled, Bury)
    assert settled.error == "e" * LONGEST_ERROR + "…"
