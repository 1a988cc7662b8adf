"""Which polls are due, and what is kept of them, on Redis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from bide.core.claim import phase_ms
from bide.core.conditional import Validators
from bide.core.durations import to_ms
from bide.provider import ZERO, Claim, PollRow, Schedule
from bide.providers import reasons
from bide.providers.redis.rows import (
    Row,
    all_packed,
    int_if_any,
    names_of,
    number,
    shown,
    shown_if_any,
    stored,
    texts,
    unpacked,
)
from bide.providers.redis.store import Store

CLAIM_WIDTH = 12
ROW_WIDTH = 20

ROWS_AT_ONCE = 500
"""Polls that are read by one call."""


class RedisPolls:
    """The polls part of :class:`bide.provider.Provider`, but for answers."""

    _store: Store

    async def claim_polls(
        self, schedules: Sequence[Schedule], limit: int, *, slack: timedelta = ZERO
    ) -> list[Claim]:
        by_name = {schedule.name: schedule for schedule in schedules}
        if not by_name or limit < 1:
            return []
        rows = all_packed([_asked(schedule) for schedule in by_name.values()])
        claims: bytes = await self._store.run("claim", rows, limit, to_ms(slack))
        return [_claim(row) for row in unpacked(claims, CLAIM_WIDTH)]

    async def record_failure(self, claim: Claim, error: str, hold: timedelta) -> bool:
        kept = stored(reasons.storable(error))
        return bool(await self._store.run("fail", stored(claim.name), claim.generation, to_ms(hold), kept))

    async def now(self) -> int:
        return int(await self._store.run("now"))

    async def poll_rows(self, names: Collection[str] | None = None) -> list[PollRow]:
        wanted = names_of(await self._store.run("members", "polls")) if names is None else sorted(set(names))
        found: list[PollRow] = []
        for first in range(0, len(wanted), ROWS_AT_ONCE):
            rows = await self._store.run("rows", texts(wanted[first : first + ROWS_AT_ONCE]))
            found += [_poll_row(row) for row in unpacked(rows, ROW_WIDTH)]
        return found

    async def pause_polls(self, names: Collection[str], paused: bool) -> list[str]:
        return await self._steer("pause" if paused else "resume", names)

    async def poll_now(self, names: Collection[str]) -> list[str]:
        return await self._steer("now", names)

    async def forget_polls(self, names: Collection[str]) -> list[str]:
        return await self._steer("forget", names)

    async def _steer(self, act: str, names: Collection[str]) -> list[str]:
        if not names:
            return []
        return names_of(await self._store.run("steer", act, texts(sorted(set(names)))))


def _asked(schedule: Schedule) -> tuple[bytes, ...]:
    every_ms = to_ms(schedule.every)
    hold_ms = to_ms(schedule.deadline + schedule.failure_retry)
    phase = phase_ms(schedule.name, every_ms)
    return stored(schedule.name), number(every_ms), number(hold_ms), number(phase)


def _claim(row: Row) -> Claim:
    (
        name,
        generation,
        claimed_at,
        due_at,
        lag_ms,
        failures,
        etag,
        modified,
        declaration,
        validated_at,
        digest,
        _,
    ) = row
    now = int(claimed_at or 0)
    return Claim(
        name=shown(name or b""),
        generation=int(generation or 0),
        claimed_at=now,
        next_due_at=int(due_at or 0),
        lag_ms=int(lag_ms or 0),
        failures=int(failures or 0),
        validators=Validators(shown_if_any(etag), shown_if_any(modified)),
        declaration=shown_if_any(declaration),
        validated_ago=None if validated_at is None else timedelta(milliseconds=now - int(validated_at)),
        digest=shown_if_any(digest),
    )


def _poll_row(row: Row) -> PollRow:
    name, due_at, not_before_at, hold_ms, out, every_ms, generation, digest, changed_at, called_at = row[:10]
    answered_at, failures, since, error, paused, event_id, etag, modified, declaration, validated_at = row[
        10:
    ]
    return PollRow(
        name=shown(name or b""),
        due_at=int(due_at or 0),
        not_before_at=int_if_any(not_before_at),
        hold_ms=int(hold_ms or 0),
        outstanding=out is not None,
        every_ms=int_if_any(every_ms),
        generation=int(generation or 0),
        digest=shown_if_any(digest),
        changed_at=int_if_any(changed_at),
        called_at=int_if_any(called_at),
        answered_at=int_if_any(answered_at),
        failures=int(failures or 0),
        failing_since=int_if_any(since),
        last_error=shown_if_any(error),
        paused=paused is not None,
        event_id=shown_if_any(event_id),
        validators=Validators(shown_if_any(etag), shown_if_any(modified)),
        declaration=shown_if_any(declaration),
        validated_at=int_if_any(validated_at),
    )
