"""What came of calls, on PostgreSQL: answers and failures, many in one transaction.

Nearly every answer is the one before, and then all that wait are recorded with one statement. Those that are not, or
whose claim was overtaken, are looked at together in one more transaction, in which event, deliveries and digest are
written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from bide.core.change import is_change
from bide.core.conditional import Validators
from bide.core.durations import to_ms
from bide.provider import Answered, Changed, Claim, EventRow, NewItem, NotModified, Recorded, Stale, Unchanged
from bide.providers import reasons
from bide.providers.fanout import delivery_of, envelope_of
from bide.providers.postgres.items import enqueue_all
from bide.providers.postgres.session import Session, Transaction
from bide.providers.postgres.subscriptions import hearing_now
from bide.providers.postgres.texts import shown, shown_if_any, stored

_UNCHANGED = "SELECT name, quiet_ms FROM bide.record_unchanged($1, $2, $3, $4, $5, $6)"

_KEPT = """
SELECT p.name, p.digest, p.changed_at, p.event_id, e.payload
FROM unnest($1::text[], $2::bigint[]) AS given(name, generation)
JOIN bide.polls AS p ON p.name = given.name AND p.generation = given.generation AND p.outstanding
LEFT JOIN bide.events AS e ON e.id = p.event_id
ORDER BY p.name
FOR UPDATE OF p
"""

_ADOPT = """
UPDATE bide.polls AS p SET digest = given.digest
FROM unnest($1::text[], $2::text[]) AS given(name, digest) WHERE p.name = given.name
"""

_EVENTS = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[])
        WITH ORDINALITY AS given(id, name, poll, payload, digest, occurred_at, previous_id, place)
), moved AS (
    UPDATE bide.polls AS p SET digest = given.digest, changed_at = $8, event_id = given.id
    FROM given WHERE p.name = given.poll
)
INSERT INTO bide.events (id, name, poll, payload, digest, created_at, occurred_at, previous_id)
SELECT id, name, poll, payload, digest, $8, occurred_at, previous_id FROM given ORDER BY place
RETURNING id, seq
"""

_FAILED = "SELECT bide.record_failed($1, $2, $3, $4)"

Answer = tuple[Claim, Answered | NotModified]


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that failed, and for how long its poll is held."""

    claim: Claim
    error: str
    hold_ms: int


@dataclass(frozen=True, slots=True)
class _Change:
    """An answer that is another one than before: the payload of the event before, and its id."""

    at: int
    claim: Claim
    answer: Answered
    previous: str | None
    previous_id: str | None


def check_storable(answer: Answered | NotModified) -> None:
    """Raise ``ProviderError`` for an answer that cannot be stored, before it shares a transaction."""
    if isinstance(answer, Answered):
        stored(answer.payload)
        stored(f"{answer.event_id}{answer.event}{answer.digest}{answer.declaration}")


async def record_answers(session: Session, answers: list[Answer]) -> list[Recorded]:
    """Record ``answers``, each by its claim."""
    recorded: dict[int, Recorded] = {}
    for round_ in _rounds([claim.name for claim, _ in answers]):
        rows = await session.rows(_UNCHANGED, *_columns([answers[at] for at in round_]))
        unchanged = {shown(name): quiet_ms for name, quiet_ms in rows}
        others: list[int] = []
        for at in round_:
            claim, answer = answers[at]
            if claim.name in unchanged:
                recorded[at] = _quiet(unchanged[claim.name])
            elif isinstance(answer, NotModified):
                recorded[at] = Stale()
            else:
                others.append(at)
        if others:
            recorded |= await _record_others(session, answers, others)
    return [recorded[at] for at in range(len(answers))]


async def record_failures(session: Session, failures: list[Failure]) -> list[bool]:
    """Record ``failures``; False for each whose claim was stale."""
    recorded = [False] * len(failures)
    for round_ in _rounds([failure.claim.name for failure in failures]):
        given = [failures[at] for at in round_]
        rows = await session.rows(
            _FAILED,
            [stored(failure.claim.name) for failure in given],
            [failure.claim.generation for failure in given],
            [failure.hold_ms for failure in given],
            [stored(reasons.storable(failure.error)) for failure in given],
        )
        kept = {shown(name) for (name,) in rows}
        for at in round_:
            recorded[at] = failures[at].claim.name in kept
    return recorded


def _rounds(names: Sequence[str]) -> Iterator[list[int]]:
    """Places of ``names`` such that none is twice in a round: nearly always there is one."""
    left = list(range(len(names)))
    while left:
        seen: dict[str, int] = {}
        for at in left:
            seen.setdefault(names[at], at)
        yield list(seen.values())
        left = [at for at in left if seen[names[at]] != at]


def _columns(answers: Sequence[Answer]) -> list[list[Any]]:
    """Answers as the arguments of the statement that records those that say nothing new."""
    return [list(column) for column in zip(*(_row(*given) for given in answers), strict=True)]


def _row(claim: Claim, answer: Answered | NotModified) -> tuple[Any, ...]:
    hold_ms = 0 if answer.hold is None else to_ms(answer.hold)
    validators = written_validators(answer.validators)
    if isinstance(answer, NotModified):
        return stored(claim.name), claim.generation, hold_ms, validators, None, None
    return stored(claim.name), claim.generation, hold_ms, validators, answer.declaration, answer.digest


async def _record_others(session: Session, answers: list[Answer], others: list[int]) -> dict[int, Recorded]:
    """Answers whose digest is not the one kept, or whose claim is stale: all of each or nothing of any."""

    async def act(transaction: Transaction) -> dict[int, Recorded]:
        now: int = await transaction.value("SELECT bide.lock_events()")
        names = [stored(answers[at][0].name) for at in others]
        generations = [answers[at][0].generation for at in others]
        kept = {shown(row["name"]): row for row in await transaction.rows(_KEPT, names, generations)}
        recorded: dict[int, Recorded] = {}
        changes: list[_Change] = []
        adopted: list[Answer] = []
        for at in others:
            claim, answer = answers[at]
            row = kept.get(claim.name)
            if row is None or isinstance(answer, NotModified):
                recorded[at] = Stale()
                continue
            previous = shown_if_any(row["payload"])
            if is_change(row["digest"], previous, answer.digest):
                changes.append(_Change(at, claim, answer, previous, row["event_id"]))
                continue
            recorded[at] = _quiet(None if row["changed_at"] is None else max(now - row["changed_at"], 0))
            adopted.append((claim, answer))
        if adopted:
            digests = [answer.digest for _, answer in adopted if isinstance(answer, Answered)]
            await transaction.rows(_ADOPT, [stored(claim.name) for claim, _ in adopted], digests)
            await transaction.rows(_UNCHANGED, *_columns(adopted))
        if changes:
            recorded |= await _keep_events(transaction, changes, now)
        return recorded

    return await session.atomically(act)


async def _keep_events(transaction: Transaction, changes: list[_Change], now: int) -> dict[int, Recorded]:
    """Keep an event for each change, its digest as what the next answer is compared with, and the deliveries."""
    rows = [
        (
            change.answer.event_id,
            change.answer.event,
            stored(change.claim.name),
            stored(change.answer.payload),
            change.answer.digest,
            change.answer.occurred_at,
            change.previous_id,
        )
        for change in changes
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    seqs = dict(await transaction.rows(_EVENTS, *columns, now))
    await transaction.rows(_UNCHANGED, *_columns([(change.claim, change.answer) for change in changes]))
    hearing = await hearing_now(transaction, {change.answer.event for change in changes})
    recorded: dict[int, Recorded] = {}
    deliveries: list[NewItem] = []
    for change in changes:
        answer = change.answer
        event = EventRow(
            seq=seqs[answer.event_id],
            id=answer.event_id,
            name=answer.event,
            poll=change.claim.name,
            payload=answer.payload,
            digest=answer.digest,
            created_at=now,
            occurred_at=answer.occurred_at,
            previous_id=change.previous_id,
        )
        text = envelope_of(event, change.previous)
        heard = [delivery_of(event, row, text) for row in hearing if row.event == event.name]
        deliveries.extend(heard)
        recorded[change.at] = Changed(event_id=event.id, seq=event.seq, deliveries=len(heard))
    if deliveries:
        await enqueue_all(transaction.rows, deliveries)
    return recorded


def _quiet(quiet_ms: int | None) -> Unchanged:
    return Unchanged(None if quiet_ms is None else timedelta(milliseconds=quiet_ms))


@lru_cache(maxsize=20_000)
def written_validators(validators: Validators) -> str | None:
    """Validators as they are kept in a row: JSON, or nothing where there are none."""
    given = {"etag": validators.etag, "last_modified": validators.last_modified}
    kept = {name: value for name, value in given.items() if value is not None}
    return json.dumps(kept) if kept else None
