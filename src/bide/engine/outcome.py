"""What came of handling one work item, as the handler tells it; the dispatcher settles accordingly."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from bide.provider import Abandon, Ack, Bury, Settlement, WorkItem


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The item is done."""


@dataclass(frozen=True, slots=True)
class Retried:
    """The attempt failed; try again after ``delay``."""

    error: str
    delay: timedelta


@dataclass(frozen=True, slots=True)
class Dead:
    """The item will never succeed; keep it for a person, with its reason."""

    error: str


@dataclass(frozen=True, slots=True)
class GivenBack:
    """Nothing was tried: as it was claimed, attempt uncounted, due again after ``delay``."""

    reason: str
    delay: timedelta


Outcome = Succeeded | Retried | Dead | GivenBack


def settlement(item: WorkItem, outcome: Outcome) -> Settlement:
    """How ``outcome`` settles ``item``. A retry past its ``max_attempts`` is dead, with the last error."""
    match outcome:
        case Succeeded():
            return Ack(item.token)
        case Retried(error=error) if is_last(item):
            return Bury(item.token, f"gave up after {_attempts(item.attempt)}: {error}")
        case Retried(error=error, delay=delay):
            return Abandon(item.token, delay, error)
        case Dead(error=error):
            return Bury(item.token, error)
        case GivenBack(reason=reason, delay=delay):
            return Abandon(item.token, delay, reason, count_attempt=False)
        case _ as unreachable:
            assert_never(unreachable)


def is_last(item: WorkItem) -> bool:
    """Whether this attempt is the last that ``item`` may have."""
    return item.max_attempts is not None and item.attempt >= item.max_attempts


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count} attempts"
