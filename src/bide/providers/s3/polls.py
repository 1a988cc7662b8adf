"""Which polls are due, and what came of the calls: one write for a claim, one for what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

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
from bide.providers.items import refuse_unstorable
from bide.providers.poll_rows import claim_of, failed, held, lag_ms, new_row, taken, unchanged, with_answer
from bide.providers.s3.documents import NOTHING, Document
from bide.providers.s3.parts import Parts
from bide.providers.s3.poll_documents import poll_key, row_of, value_of

Value = dict[str, Any]


class S3Polls:
    """The polls part of :class:`bide.provider.Provider`."""

    def _parts(self) -> Parts:
        raise NotImplementedError

    async def claim_polls(
        self, schedules: Sequence[Schedule], limit: int, *, slack: timedelta = ZERO
    ) -> list[Claim]:
        parts = self._parts()
        by_name = {schedule.name: schedule for schedule in schedules}
        claims: list[Claim] = []
        if not by_name or limit < 1:
            return claims
        documents = await parts.poll_documents.refresh([poll_key(name) for name in by_name])
        now = await parts.store.now()
        while len(claims) < limit:
            due = []
            for name, schedule in by_name.items():
                row = row_of(documents.get(poll_key(name), NOTHING).value)
                if is_claimable(row, now=now, every_ms=to_ms(schedule.every), slack_ms=to_ms(slack)):
                    due.append((-lag_ms(row, now), name))
            first = [name for _, name in sorted(due)[: limit - len(claims)]]
            if not first:
                break
            for name in first:
                schedule = by_name.pop(name)
                claim = await _claim(parts, schedule, documents.get(poll_key(name), NOTHING), now, slack)
                claims += [] if claim is None else [claim]
        return claims

    async def record_answer(self, claim: Claim, answer: Answered | NotModified) -> Recorded:
        parts = self._parts()
        if isinstance(answer, Answered):
            refuse_unstorable(answer.payload)
        now = await parts.store.now()

        async def decide(value: Value) -> tuple[Value | None, Recorded]:
            row = _claimed(value, claim)
            if row is None:
                return None, Stale()
            row = with_answer(row, answer, now)
            if isinstance(answer, NotModified):
                return value_of(row, value), unchanged(row, now)
            if row.digest == answer.digest:
                return value_of(row, value), unchanged(row, now)
            last = await parts.changes.last_of(value)
            if not is_change(row.digest, last.payload if last else None, answer.digest):
                return value_of(replace(row, digest=answer.digest), value), unchanged(row, now)
            event = _event_of(row, answer, now)
            hearing = await parts.subscriptions.hearing(event.name)
            change = parts.changes.change_of(event, last, hearing)
            row = replace(row, digest=event.digest, changed_at=now, event_id=event.id)
            return value_of(row, value, change), Changed(event.id, 0, len(hearing))

        key = poll_key(claim.name)
        recorded = await parts.documents.change(key, decide, trust=True)
        if not isinstance(recorded, Changed):
            return recorded
        document = parts.documents.known(key) or await parts.documents.read(key)
        return await parts.changes.tell(document.value["change"], is_new=True)

    async def record_answers(self, answers: Sequence[tuple[Claim, Answered | NotModified]]) -> list[Recorded]:
        return await self._parts().store.each(answers, lambda given: self.record_answer(*given))

    async def record_failure(self, claim: Claim, error: str, hold: timedelta) -> bool:
        parts = self._parts()
        now = await parts.store.now()

        async def decide(value: Value) -> tuple[Value | None, bool]:
            row = _claimed(value, claim)
            if row is None:
                return None, False
            return value_of(failed(row, error, hold, now), value), True

        return await parts.documents.change(poll_key(claim.name), decide, trust=True)

    async def now(self) -> int:
        return await self._parts().store.now()

    async def poll_rows(self, names: Collection[str] | None = None) -> list[PollRow]:
        parts = self._parts()
        if names is None:
            documents = list((await parts.poll_documents.all()).values())
        else:
            documents = await parts.store.each([poll_key(name) for name in set(names)], parts.documents.read)
        rows = [row for document in documents if (row := row_of(document.value)) is not None]
        return sorted(rows, key=_name)

    async def pause_polls(self, names: Collection[str], paused: bool) -> list[str]:
        now = await self._parts().store.now()

        def pause(name: str, row: PollRow | None) -> PollRow | None:
            row = new_row(name, now) if row is None and paused else row
            return None if row is None or row.paused == paused else replace(row, paused=paused)

        return await self._changed(names, pause)

    async def poll_now(self, names: Collection[str]) -> list[str]:
        now = await self._parts().store.now()

        def make_due(name: str, row: PollRow | None) -> PollRow | None:
            return None if row is None else replace(held(row, None, now), due_at=now)

        return await self._changed(names, make_due)

    async def forget_polls(self, names: Collection[str]) -> list[str]:
        parts = self._parts()
        found = []
        for name in sorted(set(names)):
            key = poll_key(name)
            document = await parts.documents.read(key)
            if document.value:
                await parts.changes.told(document.value)
                await parts.store.bucket.delete([key])
                parts.documents.forget(key)
                found.append(name)
        return found

    async def _changed(
        self, names: Collection[str], change: Callable[[str, PollRow | None], PollRow | None]
    ) -> list[str]:
        """The names of which ``change`` made another row."""
        parts = self._parts()

        async def changed(name: str) -> bool:
            async def decide(value: Value) -> tuple[Value | None, bool]:
                row = change(name, row_of(value))
                return (None, False) if row is None else (value_of(row, value), True)

            return await parts.documents.change(poll_key(name), decide)

        ordered = sorted(set(names))
        are_changed = await parts.store.each(ordered, changed)
        return [name for name, is_changed in zip(ordered, are_changed, strict=True) if is_changed]


async def _claim(
    parts: Parts, schedule: Schedule, document: Document, now: int, slack: timedelta
) -> Claim | None:
    """Take a poll that looks claimable; None where others were first."""
    key = poll_key(schedule.name)
    before = await parts.changes.told(document.value)
    late_ms = lag_ms(row_of(before), now)
    row = taken(row_of(before), schedule, now)
    if await parts.documents.write(key, document, value_of(row, before)) is not None:
        return claim_of(row, late_ms, now)
    read = await parts.documents.read(key)
    kept = row_of(read.value)
    if is_claimable(kept, now=now, every_ms=to_ms(schedule.every), slack_ms=to_ms(slack)):
        return await _claim(parts, schedule, read, now, slack)
    return None


def _claimed(value: Value, claim: Claim) -> PollRow | None:
    """The row of a claim that still holds."""
    row = row_of(value)
    if row is None or row.generation != claim.generation or not row.outstanding:
        return None
    return row


def _event_of(row: PollRow, answer: Answered, now: int) -> EventRow:
    """The event that comes of a changed answer, without its number."""
    return EventRow(
        seq=0,
        id=answer.event_id,
        name=answer.event,
        poll=row.name,
        payload=answer.payload,
        digest=answer.digest,
        created_at=now,
        occurred_at=answer.occurred_at,
        previous_id=row.event_id,
    )


def _name(row: PollRow) -> str:
    return row.name
