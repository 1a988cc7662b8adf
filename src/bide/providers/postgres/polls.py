"""Which polls are due, on PostgreSQL: the claim in one statement, and the commands on rows of polls."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import timedelta
from functools import lru_cache
from typing import Any

from bide.core.claim import phase_ms
from bide.core.conditional import Validators
from bide.core.durations import to_ms
from bide.provider import ZERO, Answered, Changed, Claim, NotModified, PollRow, Recorded, Schedule
from bide.providers.postgres.database import Database
from bide.providers.postgres.recording import Failure, check_storable, record_answers, record_failures
from bide.providers.postgres.session import Session
from bide.providers.postgres.texts import shown, shown_if_any, stored

_CLAIM = "SELECT * FROM bide.claim_polls($1, $2, $3, $4, $5, $6)"

_PAUSE = """
INSERT INTO bide.polls AS p (name, due, generation, paused)
SELECT given.name, now.ms, now.ms, $2
FROM unnest($1::text[]) AS given(name) CROSS JOIN (SELECT bide.now_ms()) AS now(ms)
WHERE $2 OR EXISTS (SELECT 1 FROM bide.polls AS kept WHERE kept.name = given.name)
ORDER BY given.name
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused WHERE p.paused <> excluded.paused
RETURNING name
"""

_NOW = """
UPDATE bide.polls SET due = bide.now_ms(), not_before = NULL, hold_ms = 0 WHERE name = ANY ($1::text[])
RETURNING name
"""

_FORGET = "DELETE FROM bide.polls WHERE name = ANY ($1::text[]) RETURNING name"

_ROWS = """
SELECT name, due, not_before, hold_ms, outstanding, every_ms, generation, digest, changed_at, called_at, answered_at,
    failures, failing_since, last_error, paused, event_id, validators, declaration, validated_at
FROM bide.polls
WHERE $1::text[] IS NULL OR name = ANY ($1)
ORDER BY name
"""


class PostgresPolls:
    """The polls part of :class:`bide.provider.Provider`."""

    _database: Database
    _phases: dict[tuple[str, int], int]
    """Phases of the schedules seen: most claims ask for the same ones again."""

    async def claim_polls(
        self, schedules: Sequence[Schedule], limit: int, *, slack: timedelta = ZERO
    ) -> list[Claim]:
        if not schedules or limit < 1:
            return []
        rows = [self._row(schedule) for schedule in {given.name: given for given in schedules}.values()]
        columns = [list(column) for column in zip(*rows, strict=True)]
        found = await self._database.rows(_CLAIM, *columns, limit, to_ms(slack))
        return sorted((_as_claim(row) for row in found), key=lambda claim: (-claim.lag_ms, claim.name))

    async def record_answer(self, claim: Claim, answer: Answered | NotModified) -> Recorded:
        check_storable(answer)
        # What most likely changes nothing may wait for company: nobody is kept waiting by it.
        news = isinstance(answer, Answered) and answer.digest != claim.digest

        async def act(session: Session) -> Recorded:
            recorded: Recorded = await session.batched(record_answers, (claim, answer), haste=news)
            if isinstance(recorded, Changed) and recorded.deliveries:
                self._database.wake(session)
            return recorded

        return await self._database.run(act)

    async def record_answers(self, answers: Sequence[tuple[Claim, Answered | NotModified]]) -> list[Recorded]:
        for _, answer in answers:
            check_storable(answer)

        async def act(session: Session) -> list[Recorded]:
            recorded = await record_answers(session, list(answers))
            if any(isinstance(each, Changed) and each.deliveries for each in recorded):
                self._database.wake(session)
            return recorded

        return await self._database.run(act)

    async def record_failure(self, claim: Claim, error: str, hold: timedelta) -> bool:
        failure = Failure(claim, error, to_ms(hold))

        async def act(session: Session) -> bool:
            return await session.batched(record_failures, failure)

        return await self._database.run(act)

    async def now(self) -> int:
        now: int = await self._database.value("SELECT bide.now_ms()")
        return now

    async def poll_rows(self, names: Collection[str] | None = None) -> list[PollRow]:
        wanted = None if names is None else [stored(name) for name in names]
        return [_as_row(row) for row in await self._database.rows(_ROWS, wanted)]

    async def pause_polls(self, names: Collection[str], paused: bool) -> list[str]:
        return await self._changed(_PAUSE, names, paused)

    async def poll_now(self, names: Collection[str]) -> list[str]:
        return await self._changed(_NOW, names)

    async def forget_polls(self, names: Collection[str]) -> list[str]:
        return await self._changed(_FORGET, names)

    async def _changed(self, statement: str, names: Collection[str], *arguments: object) -> list[str]:
        wanted = [stored(name) for name in sorted(set(names))]
        return sorted(shown(name) for (name,) in await self._database.rows(statement, wanted, *arguments))

    def _row(self, schedule: Schedule) -> tuple[str, int, int, int]:
        every_ms = to_ms(schedule.every)
        phase = self._phases.get((schedule.name, every_ms))
        if phase is None:
            phase = self._phases[schedule.name, every_ms] = phase_ms(schedule.name, every_ms)
        return stored(schedule.name), every_ms, to_ms(schedule.deadline + schedule.failure_retry), phase


def _as_claim(row: Any) -> Claim:
    name, generation, called_at, due, lag_ms, failures, validators, declaration, validated_at, digest = row
    return Claim(
        name=shown(name),
        generation=generation,
        claimed_at=called_at,
        next_due_at=due,
        lag_ms=lag_ms,
        failures=failures,
        validators=read_validators(validators),
        declaration=declaration,
        validated_ago=None if validated_at is None else timedelta(milliseconds=called_at - validated_at),
        digest=digest,
    )


@lru_cache(maxsize=20_000)
def read_validators(kept: str | None) -> Validators:
    """Validators as they are kept in a row."""
    if kept is None:
        return Validators()
    try:
        return Validators(**json.loads(kept))
    except (TypeError, ValueError):  # damaged: the next call is unconditional, and puts it right
        return Validators()


_COLUMNS = [field.name for field in fields(PollRow)]


def _as_row(row: Any) -> PollRow:
    columns = dict(zip(_COLUMNS, row, strict=True))
    columns["name"] = shown(columns["name"])
    columns["last_error"] = shown_if_any(columns["last_error"])
    columns["validators"] = read_validators(columns["validators"])
    return PollRow(**columns)
