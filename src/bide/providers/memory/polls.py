"""Which polls are due, and what came of the calls, in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta

from bide.core.change import is_change
from bide.core.claim import is_claimable
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
)
from bide.providers.fanout import delivery_of, envelope_of
from bide.providers.memory.store import Store, atomic
from bide.providers.poll_rows import claim_of, failed, held, lag_ms, new_row, taken, unchanged, with_answer


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
            (-lag_ms(polls.get(name), now), name)
            for name, schedule in by_name.items()
            if is_claimable(polls.get(name), now=now, every_ms=to_ms(schedule.every), slack_ms=to_ms(slack))
        ]
        first = sorted(due)[: max(limit, 0)]
        return [self._take(by_name[name], -negative_lag, now) for negative_lag, name in first]

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
        row = with_answer(row, answer, now)
        if isinstance(answer, NotModified):
            self._store.polls[row.name] = row
            return unchanged(row, now)
        last = self._store.event(row.event_id)
        if not is_change(row.digest, last.payload if last else None, answer.digest):
            self._store.polls[row.name] = replace(row, digest=answer.digest)
            return unchanged(row, now)
        return self._record_change(row, answer, last, now)

    @atomic
    def record_failure(self, claim: Claim, error: str, hold: timedelta) -> bool:
        now = self._store.now()
        row = self._claimed(claim)
        if row is None:
            return False
        self._store.polls[row.name] = failed(row, error, hold, now)
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
                row = new_row(name, self._store.now())
            if row is not None and row.paused != paused:
                polls[name] = replace(row, paused=paused)
                changed.append(name)
        return changed

    @atomic
    def poll_now(self, names: Collection[str]) -> list[str]:
        now = self._store.now()
        return self._each_kept(names, lambda row: replace(held(row, None, now), due_at=now))

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

    def _take(self, schedule: Schedule, late_ms: int, now: int) -> Claim:
        row = taken(self._store.polls.get(schedule.name), schedule, now)
        self._store.polls[row.name] = row
        return claim_of(row, late_ms, now)

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
