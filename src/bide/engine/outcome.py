"""What came of handling one work item, as the handler tells it; the dispatcher settles accordingly."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from bide.provider import Abandon, Ack, Bury, Settlement, WorkItem

LONGEST_ERROR = 10_000
"""Characters of an error that are kept with its item."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The item is done. ``result`` is text that is kept with an item that keeps one."""

    result: str | None = None


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


CALLED_OFF = GivenBack("stopped before it was done", timedelta())
"""Of an attempt that a stop, or the loss of its lock, has cut short."""

Outcome = Succeeded | Retried | Dead | GivenBack


def settlement(item: WorkItem, outcome: Outcome) -> Settlement:
    """How ``outcome`` settles ``item``. A retry past its ``max_attempts`` is dead, with the last error."""
    match outcome:
        case Succeeded(result=result):
            return Ack(item.token, result)
        case Retried(error=error) if is_last(item):
            return Bury(item.token, storable(f"gave up after {_attempts(item.attempt)}: {error}"))
        case Retried(error=error, delay=delay):
            return Abandon(item.token, delay, storable(error))
        case Dead(error=error):
            return Bury(item.token, storable(error))
        case GivenBack(reason=reason, delay=delay):
            return Abandon(item.token, delay, storable(reason), count_attempt=False)
        case _ as unreachable:
            assert_never(unreachable)


def is_last(item: WorkItem) -> bool:
    """Whether this attempt is the last that ``item`` may have."""
    return item.max_attempts is not None and item.attempt >= item.max_attempts


def storable(error: str) -> str:
    """``error`` as every store can keep it: no lone surrogates, and no longer than :data:`LONGEST_ERROR`."""
    if len(error) > LONGEST_ERROR:
        error = error[:LONGEST_ERROR] + "…"
    return error.encode(errors="backslashreplace").decode()


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count} attempts"
