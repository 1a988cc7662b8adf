"""Why an item ended: the texts that every provider keeps, so that they read the same everywhere."""

from __future__ import annotations

from datetime import timedelta

from bide.core.durations import format_duration
from bide.provider import DELIVERIES

LOCK_EXPIRED = "its lock expired: the worker died or stalled while handling it"
"""The last error of an item whose attempt ended by lock expiry."""

DEATHS_BEFORE_ALONE = 2
"""With so many deaths an item is fetched alone, so that it takes no neighbours along."""

DEATHS_BEFORE_BURIAL = 3
"""With so many deaths an item is not fetched any more."""

LONGEST_ERROR = 2000
"""Characters of an error text that are kept."""


def gave_up(attempts: int, last_error: str | None) -> str:
    """Of an item that is out of attempts."""
    times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return _because(f"gave up after {times}", last_error)


def expired(queue: str, within_ms: int, last_error: str | None) -> str:
    """Of an item whose whole life is over."""
    missed = "delivered" if queue == DELIVERIES else "done"
    within = format_duration(timedelta(milliseconds=within_ms))
    return _because(f"not {missed} within {within}", last_error)


def killed_workers(deaths: int) -> str:
    """Of an item that every worker died of."""
    return f"the worker died {deaths} times while handling it"


def subscription_ended(reason: str | None) -> str:
    """Of a delivery whose subscription ended while it waited."""
    return _because("the subscription ended", reason)


def storable(error: str) -> str:
    """``error`` as it is kept: bounded, and without the lone surrogates that no store takes."""
    clipped = error if len(error) <= LONGEST_ERROR else f"{error[: LONGEST_ERROR - 1]}…"
    return clipped.encode(errors="replace").decode()


def _because(reason: str, detail: str | None) -> str:
    return storable(f"{reason}: {detail}" if detail else reason)
