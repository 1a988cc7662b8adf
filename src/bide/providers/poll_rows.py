"""What claims, answers and failures make of the row of a poll: for every provider that decides in Python."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from bide.core.claim import next_due_at, phase_ms
from bide.core.durations import to_ms
from bide.provider import Answered, Claim, NotModified, PollRow, Schedule, Unchanged
from bide.providers import reasons


def taken(kept: PollRow | None, schedule: Schedule, now: int) -> PollRow:
    """The row after its poll was claimed."""
    name, every_ms = schedule.name, to_ms(schedule.every)
    row = kept or new_row(name, now)
    return replace(
        held(row, schedule.deadline + schedule.failure_retry, now),
        due_at=next_due_at(now, every_ms, phase_ms(name, every_ms)),
        every_ms=every_ms,
        generation=row.generation + 1,
        called_at=now,
        outstanding=True,
    )


def claim_of(row: PollRow, lag_ms: int, now: int) -> Claim:
    """What whoever took the row is given."""
    validated_at = row.validated_at
    return Claim(
        name=row.name,
        generation=row.generation,
        claimed_at=now,
        next_due_at=row.due_at,
        lag_ms=lag_ms,
        failures=row.failures,
        validators=row.validators,
        declaration=row.declaration,
        validated_ago=None if validated_at is None else timedelta(milliseconds=now - validated_at),
        digest=row.digest,
    )


def failed(row: PollRow, error: str, hold: timedelta, now: int) -> PollRow:
    """The row after a call that failed."""
    return replace(
        held(row, hold, now),
        outstanding=False,
        due_at=now,
        failures=row.failures + 1,
        failing_since=now if row.failing_since is None else row.failing_since,
        last_error=reasons.storable(error),
    )


def lag_ms(row: PollRow | None, now: int) -> int:
    """How long it has been claimable."""
    if row is None:
        return 0
    held_until = row.not_before_at
    if row.outstanding:
        return max(now - held_until, 0) if held_until is not None else 0
    return max(now - max(row.due_at, row.due_at if held_until is None else held_until), 0)


def new_row(name: str, now: int) -> PollRow:
    """The row of a poll that was never claimed."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("not_before_at", "every_ms", "digest", "changed_at", "called_at", "answered_at", "failing_since")
    )
    return PollRow(
        name=name,
        due_at=now,
        hold_ms=0,
        outstanding=False,
        generation=now,  # never one that a poll of this name had before it was forgotten
        failures=0,
        last_error=None,
        paused=False,
        event_id=None,
        **nothing,
    )


def held(row: PollRow, hold: timedelta | None, now: int) -> PollRow:
    """The row, held for so long from now; not held where that is None or nothing."""
    hold_ms = 0 if hold is None else to_ms(hold)
    return replace(row, hold_ms=hold_ms, not_before_at=now + hold_ms if hold_ms else None)


def with_answer(row: PollRow, answer: Answered | NotModified, now: int) -> PollRow:
    """What every good answer does to its poll."""
    row = replace(
        held(row, answer.hold, now),
        outstanding=False,
        failures=0,
        failing_since=None,
        last_error=None,
        answered_at=now,
        validators=answer.validators,
    )
    if isinstance(answer, NotModified):
        return row
    return replace(row, declaration=answer.declaration, validated_at=now)


def unchanged(row: PollRow, now: int) -> Unchanged:
    """What is said of an answer that is the same as before."""
    if row.changed_at is None:
        return Unchanged()
    return Unchanged(timedelta(milliseconds=max(now - row.changed_at, 0)))
