"""Which polls are due, on SQLite: the claim in one statement, and the commands on rows of polls."""

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
from bide.provider import ZERO, Answered, Claim, NotModified, PollRow, Recorded, Schedule
from bide.providers.sqlite.database import Database
from bide.providers.sqlite.items import as_json
from bide.providers.sqlite.recording import Failure, record_answers, record_failures
from bide.providers.sqlite.writer import Transaction

_CLAIMABLE = """
SELECT json_group_array(json_array(name, every_ms, hold_ms, generation,
    least + (phase - least % every_ms + every_ms) % every_ms, lag, failures, validators, declaration, validated_at,
    digest))
FROM (
    SELECT name, asked ->> 0 AS every_ms, asked ->> 1 AS hold_ms, asked ->> 2 AS phase,
        :now + (asked ->> 0) / 2 + 1 AS least,
        generation, lag, failures, validators, declaration, validated_at, digest
    FROM (
        SELECT
            key AS name,
            value AS asked,
            coalesce(kept.generation, :now) + 1 AS generation,
            CASE
                WHEN kept.name IS NULL THEN 0
                WHEN kept.outstanding THEN max(:now - coalesce(kept.not_before, :now), 0)
                ELSE max(:now - max(kept.due, coalesce(kept.not_before, kept.due)), 0)
            END AS lag,
            coalesce(kept.failures, 0) AS failures, kept.validators, kept.declaration, kept.validated_at, kept.digest
        FROM json_each(:schedules) LEFT JOIN polls AS kept ON kept.name = key
        WHERE kept.name IS NULL OR (
            NOT kept.paused
            AND NOT (
                kept.not_before IS NOT NULL
                AND :now < kept.not_before AND kept.not_before <= :now + 2 * kept.hold_ms)
            AND (
                kept.outstanding
                OR kept.due <= :now + :slack
                OR (coalesce(kept.every_ms > value ->> 0, 1) AND kept.due > :now + (value ->> 0))
                OR kept.due > :now + 2 * (value ->> 0)))
        ORDER BY lag DESC, name
        LIMIT 0 + :limit
    )
)
"""
"""What ``_CLAIM`` is about to take, all in one row: at each row that a statement hands out, this thread and the event
loop may have to wait for each other. Nobody comes between the two: writers of the file take turns."""

_CLAIM = """
INSERT INTO polls (name, due, not_before, hold_ms, outstanding, every_ms, generation, called_at, lag_ms)
SELECT value ->> 0, value ->> 4, :now + (value ->> 2), value ->> 2, 1, value ->> 1, value ->> 3, :now, value ->> 5
FROM json_each(:claimed) WHERE true
ON CONFLICT (name) DO UPDATE SET
    due = excluded.due,
    not_before = excluded.not_before,
    hold_ms = excluded.hold_ms,
    outstanding = 1,
    every_ms = excluded.every_ms,
    generation = excluded.generation,
    called_at = excluded.called_at,
    lag_ms = excluded.lag_ms
"""

_PAUSE = """
INSERT INTO polls (name, due, generation, paused) SELECT value, :now, :now, :paused FROM json_each(:names)
WHERE :paused OR value IN (SELECT name FROM polls)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused WHERE paused <> excluded.paused
RETURNING name
"""

_NOW = """
UPDATE polls SET due = :now, not_before = NULL, hold_ms = 0
WHERE name IN (SELECT value FROM json_each(:names))
RETURNING name
"""

_FORGET = "DELETE FROM polls WHERE name IN (SELECT value FROM json_each(:names)) RETURNING name"

_ROWS = """
SELECT name, due, not_before, hold_ms, outstanding, every_ms, generation, digest, changed_at, called_at, answered_at,
    failures, failing_since, last_error, paused, event_id, validators, declaration, validated_at
FROM polls
WHERE :names IS NULL OR name IN (SELECT value FROM json_each(:names))
ORDER BY name
"""

_COLUMNS = [field.name for field in fields(PollRow)]
_FLAGS = (_COLUMNS.index("outstanding"), _COLUMNS.index("paused"))
_VALIDATORS = _COLUMNS.index("validators")


class SqlitePolls:
    """The polls part of :class:`bide.provider.Provider`."""

    _database: Database
    _fragments: dict[str, tuple[Schedule, str]]
    """JSON of the schedules seen, by name: most claims ask for the same ones again."""

    async def claim_polls(
        self, schedules: Sequence[Schedule], limit: int, *, slack: timedelta = ZERO
    ) -> list[Claim]:
        if not schedules or limit < 1:
            return []
        fragments = {schedule.name: self._fragment(schedule) for schedule in schedules}
        text = f"{{{','.join(fragments.values())}}}"
        return await self._database.write(_claim, (text, limit, to_ms(slack)))

    async def record_answer(self, claim: Claim, answer: Answered | NotModified) -> Recorded:
        haste = _is_news(claim, answer)
        return await self._database.write_batched(record_answers, (claim, answer), haste=haste)

    async def record_answers(self, answers: Sequence[tuple[Claim, Answered | NotModified]]) -> list[Recorded]:
        return await self._database.write(
            record_answers, list(answers), haste=any(_is_news(claim, answer) for claim, answer in answers)
        )

    async def record_failure(self, claim: Claim, error: str, hold: timedelta) -> bool:
        return await self._database.write_batched(record_failures, Failure(claim, error, to_ms(hold)))

    async def now(self) -> int:
        return self._database.clock.utc_ms()

    async def poll_rows(self, names: Collection[str] | None = None) -> list[PollRow]:
        return await self._database.read(_rows, names)

    async def pause_polls(self, names: Collection[str], paused: bool) -> list[str]:
        return await self._database.write(_pause, (names, paused))

    async def poll_now(self, names: Collection[str]) -> list[str]:
        return await self._database.write(_poll_now, names)

    async def forget_polls(self, names: Collection[str]) -> list[str]:
        return await self._database.write(_forget, names)

    def _fragment(self, schedule: Schedule) -> str:
        known = self._fragments.get(schedule.name)
        if known is not None and known[0] is schedule:
            return known[1]
        every_ms = to_ms(schedule.every)
        hold_ms = to_ms(schedule.deadline + schedule.failure_retry)
        fragment = f"{json.dumps(schedule.name)}:[{every_ms},{hold_ms},{phase_ms(schedule.name, every_ms)}]"
        self._fragments[schedule.name] = (schedule, fragment)
        return fragment


def _is_news(claim: Claim, answer: Answered | NotModified) -> bool:
    """What most likely changes nothing may wait for company: nobody is kept waiting by it."""
    return isinstance(answer, Answered) and answer.digest != claim.digest


def _claim(transaction: Transaction, request: tuple[str, int, int]) -> list[Claim]:
    schedules, limit, slack_ms = request
    now = transaction.now
    bindings = {"schedules": schedules, "limit": limit, "slack": slack_ms, "now": now}
    (claimed,) = transaction.row(_CLAIMABLE, bindings)
    claims = [_as_claim(row, now) for row in json.loads(claimed)]
    if claims:
        transaction.row(_CLAIM, {"claimed": claimed, "now": now})
    return sorted(claims, key=lambda claim: (-claim.lag_ms, claim.name))


def _as_claim(row: list[Any], now: int) -> Claim:
    name, _, _, generation, due, lag_ms, failures, validators, declaration, validated_at, digest = row
    return Claim(
        name=name,
        generation=generation,
        claimed_at=now,
        next_due_at=due,
        lag_ms=lag_ms,
        failures=failures,
        validators=read_validators(validators),
        declaration=declaration,
        validated_ago=None if validated_at is None else timedelta(milliseconds=now - validated_at),
        digest=digest,
    )


@lru_cache(maxsize=20_000)
def read_validators(stored: str | None) -> Validators:
    """Validators as they are kept in a row."""
    if stored is None:
        return Validators()
    try:
        return Validators(**json.loads(stored))
    except (TypeError, ValueError):  # damaged: the next call is unconditional, and puts it right
        return Validators()


def _pause(transaction: Transaction, request: tuple[Collection[str], bool]) -> list[str]:
    names, paused = request
    bindings = {"names": as_json(sorted(set(names))), "now": transaction.now, "paused": int(paused)}
    return sorted(name for (name,) in transaction.rows(_PAUSE, bindings))


def _poll_now(transaction: Transaction, names: Collection[str]) -> list[str]:
    bindings = {"names": as_json(names), "now": transaction.now}
    return sorted(name for (name,) in transaction.rows(_NOW, bindings))


def _forget(transaction: Transaction, names: Collection[str]) -> list[str]:
    return sorted(name for (name,) in transaction.rows(_FORGET, {"names": as_json(names)}))


def _rows(transaction: Transaction, names: Collection[str] | None) -> list[PollRow]:
    bindings = {"names": None if names is None else as_json(names)}
    return [_as_row(row) for row in transaction.rows(_ROWS, bindings)]


def _as_row(row: tuple[Any, ...]) -> PollRow:
    """A row of ``_ROWS``, whose columns are the fields of a ``PollRow`` in their order."""
    columns = list(row)
    for at in _FLAGS:
        columns[at] = bool(columns[at])
    columns[_VALIDATORS] = read_validators(columns[_VALIDATORS])
    return PollRow(*columns)
