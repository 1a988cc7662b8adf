"""What telemetry is told of an attempt that ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, assert_never

from bide.engine.outcome import Dead, GivenBack, Outcome, Retried, Succeeded, is_last
from bide.provider import WorkItem
from bide.telemetry import DeliverySettled, TaskSettled

Word = Literal["succeeded", "retried", "dead", "given_back", "lost"]


def delivery_settled(
    item: WorkItem, outcome: Outcome, lost: bool, elapsed_s: float, *, now_ms: int
) -> DeliverySettled:
    """The record of one attempt of a delivery that ended. ``now_ms`` is the wall clock."""
    word, error, retry_in_ms = _told(item, outcome, lost)
    age_ms = max(0, now_ms - item.enqueued_at)
    return DeliverySettled(
        item.name, item.id, word, item.attempt, elapsed_s * 1000, error, retry_in_ms, age_ms
    )


def task_settled(
    item: WorkItem, outcome: Outcome, lost: bool, elapsed_s: float, *, now_ms: int
) -> TaskSettled:
    """The record of one attempt of a task that ended. ``now_ms`` is the wall clock."""
    word, error, retry_in_ms = _told(item, outcome, lost)
    age_ms = max(0, now_ms - item.enqueued_at)
    return TaskSettled(
        item.name, item.queue, item.id, word, item.attempt, elapsed_s * 1000, error, retry_in_ms, age_ms
    )


def _told(item: WorkItem, outcome: Outcome, lost: bool) -> tuple[Word, str | None, float | None]:
    if lost:
        return "lost", None, None
    match outcome:
        case Succeeded():
            return "succeeded", None, None
        case Retried(error=error) if is_last(item):
            return "dead", error, None
        case Retried(error=error, delay=delay):
            return "retried", error, _ms(delay)
        case Dead(error=error):
            return "dead", error, None
        case GivenBack(reason=reason, delay=delay):
            return "given_back", reason, _ms(delay)
        case _ as unreachable:
            assert_never(unreachable)


def _ms(delay: timedelta) -> float:
    return delay.total_seconds() * 1000
