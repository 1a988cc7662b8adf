"""Which polls are due, and what came of the calls, in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from bide.core.change import is_change
from bide.core.claim import is_claimable, next_due_at, phase_ms
from bide.core.durations import to_ms
from bide.provider import (
    ZERO,
    Answered,
    Changed,
    Claim,
    EventRow,
    NotModified,
    PollRow,
    Recorded,
    Schedule,
    Stale,
    Unchanged,
)
from bide.providers import reasons
from bide.providers.fanout import delivery_of, envelope_of
from bide.providers.memory.store import Store, atomic


class MemoryPolls:
    """The polls part of :class:`bide.provider.Provider`."""

    _store: Store

    @atomic
    def claim_polls(
        self, schedules: Sequence[Schedule], limit: int, *, slack: timedelta = ZERO
    ) -> list[Claim]:
        polls, now = self._store.polls, self._store.now()
        by_name = {schedule.name: schedule for schedule in schedules}
        due = [
            (-_lag_ms(polls.get(name), now), name)
            for name, schedule in by_name.items()
            if is_claimable(polls.get(name), now=now, every_ms=to_ms(schedule.every), slack_ms=to_ms(slack))
        ]
        taken = sorted(due)[: max(limit, 0)]
        return [self._take(by_name[name], -negative_lag, now) for negative_lag, name in taken]

    @atomic
    def record_answer(self, claim: Claim, answer: Answered | NotModified) -> Recorded:
        return self._record(claim, answer)

    @atomic
    def record_answers(self, answers: Sequence[tuple[Claim, Answered | NotModified]]) -> list[Recorded]:
        return [self._record(claim, answer) for claim, answer in answers]

    def _record(self, claim: Claim, answer: Answered | NotModified) -> Recorded:
        now = self._store.now()
        row = self._claimed(claim)
        if row is None:
            return Stale()
        row = _with_answer(row, answer, now)
        if isinstance(answer, NotModified):
            self._store.polls[row.name] = row
            return _quiet(row, now)
        last = self._store.event(row.event_id)
        if not is_change(row.digest, last.payload if last else None, answer.digest):
            self._store.polls[row.name] = replace(row, digest=answer.digest)
            return _quiet(row, now)
        return self._record_change(row, answer, last, now)

    @atomic
    def record_failure(self, claim: Claim, error: str, hold: timedelta) -> bool:
        now = self._store.now()
        row = self._claimed(claim)
        if row is None:
            return False
        self._store.polls[row.name] = replace(
            _held(row, hold, now),
            outstanding=False,
            due_at=now,
            failures=row.failures + 1,
            failing_since=now if row.failing_since is None else row.failing_since,
            last_error=reasons.storable(error),
        )
        return True

    async def now(self) -> int:
        return self._store.clock.utc_ms()

    @atomic
    def poll_rows(self, names: Collection[str] | None = None) -> list[PollRow]:
        polls = self._store.polls
        return [row for name, row in sorted(polls.items()) if names is None or name in names]

    @atomic
    def pause_polls(self, names: Collection[str], paused: bool) -> list[str]:
        polls = self._store.polls
        changed = []
        for name in sorted(set(names)):
            row = polls.get(name)
            if row is None and paused:
                row = _new_row(name, self._store.now())
            if row is not None and row.paused != paused:
                polls[name] = replace(row, paused=paused)
                changed.append(name)
        return changed

    @atomic
    def poll_now(self, names: Collection[str]) -> list[str]:
        now = self._store.now()
        return self._each_kept(names, lambda row: replace(_held(row, None, now), due_at=now))

    @atomic
    def forget_polls(self, names: Collection[str]) -> list[str]:
        return self._each_kept(names, lambda row: None)

    def _each_kept(self, names: Collection[str], change: Callable[[PollRow], PollRow | None]) -> list[str]:
        """Change, or remove, the rows that there are of ``names``; which these are."""
        found = sorted(set(names) & set(self._store.polls))
        for name in found:
            row = change(self._store.polls.pop(name))
            if row is not None:
                self._store.polls[name] = row
        return found

    def _take(self, schedule: Schedule, lag_ms: int, now: int) -> Claim:
        name, every_ms = schedule.name, to_ms(schedule.every)
        kept = self._store.polls.get(name) or _new_row(name, now)
        row = replace(
            _held(kept, schedule.deadline + schedule.failure_retry, now),
            due_at=next_due_at(now, every_ms, phase_ms(name, every_ms)),
            every_ms=every_ms,
            generation=kept.generation + 1,
            called_at=now,
            outstanding=True,
        )
        self._store.polls[name] = row
        validated_at = row.validated_at
        return Claim(
            name=name,
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

    def _claimed(self, claim: Claim) -> PollRow | None:
        """The row of a claim that still holds."""
        row = self._store.polls.get(claim.name)
        if row is None or row.generation != claim.generation or not row.outstanding:
            return None
        return row

    def _record_change(self, row: PollRow, answer: Answered, last: EventRow | None, now: int) -> Changed:
        """Event, deliveries and digest: what makes the answer the one to compare the next with."""
        store = self._store
        event = EventRow(
            seq=store.last_event + 1,
            id=answer.event_id,
            name=answer.event,
            poll=row.name,
            payload=answer.payload,
            digest=answer.digest,
            created_at=now,
            occurred_at=answer.occurred_at,
            previous_id=row.event_id,
        )
        text = envelope_of(event, last.payload if last else None)
        deliveries = [
            delivery_of(event, kept.subscription, text)
            for _, kept in sorted(store.subscriptions.items())
            if kept.ended_at is None and kept.subscription.event == event.name
        ]
        store.add(deliveries, now)
        store.last_event += 1
        store.events.append(event)
        store.polls[row.name] = replace(row, digest=event.digest, changed_at=now, event_id=event.id)
        return Changed(event_id=event.id, seq=event.seq, deliveries=len(deliveries))


def _lag_ms(row: PollRow | None, now: int) -> int:
    """How long it has been claimable."""
    if row is None:
        return 0
    held_until = row.not_before_at
    if row.outstanding:
        return max(now - held_until, 0) if held_until is not None else 0
    return max(now - max(row.due_at, row.due_at if held_until is None else held_until), 0)


def _new_row(name: str, now: int) -> PollRow:
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


def _held(row: PollRow, hold: timedelta | None, now: int) -> PollRow:
    hold_ms = 0 if hold is None else to_ms(hold)
    return replace(row, hold_ms=hold_ms, not_before_at=now + hold_ms if hold_ms else None)


def _with_answer(row: PollRow, answer: Answered | NotModified, now: int) -> PollRow:
    """What every good answer does to its poll."""
    row = replace(
        _held(row, answer.hold, now),
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


def _quiet(row: PollRow, now: int) -> Unchanged:
    if row.changed_at is None:
        return Unchanged()
    return Unchanged(timedelta(milliseconds=max(now - row.changed_at, 0)))
