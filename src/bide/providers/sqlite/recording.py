"""What came of calls, on SQLite: answers and failures, many in one statement.

Nearly every answer is the one before, and then all that wait are recorded together. An answer that is not, or whose
claim was overtaken, is looked at by itself: event, deliveries and digest are written there, in the same transaction.
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
from bide.providers.sqlite.enqueueing import insert_items
from bide.providers.sqlite.items import as_json
from bide.providers.sqlite.subscriptions import hearing_now
from bide.providers.sqlite.writer import Transaction

_SAME = """
SELECT json_group_object(polls.name, polls.changed_at)
FROM json_each(?) AS answer JOIN polls ON polls.name = answer.value ->> 0
WHERE polls.generation = answer.value ->> 1 AND polls.outstanding = 1
    AND (answer.value ->> 5 IS NULL OR answer.value ->> 5 = polls.digest)
"""
"""What ``_UNCHANGED`` is about to record, all in one row: at each row that a statement hands out, this thread and the
event loop may have to wait for each other."""

_UNCHANGED = """
UPDATE polls SET
    outstanding = 0,
    not_before = CASE WHEN answer.hold_ms > 0 THEN ?2 + answer.hold_ms END,
    hold_ms = answer.hold_ms,
    failures = 0,
    failing_since = NULL,
    last_error = NULL,
    answered_at = ?2,
    validators = answer.validators,
    declaration = coalesce(answer.declaration, polls.declaration),
    validated_at = CASE WHEN answer.digest IS NULL THEN polls.validated_at ELSE ?2 END
FROM (
    SELECT value ->> 0 AS name, value ->> 1 AS generation, value ->> 2 AS hold_ms, value ->> 3 AS validators,
        value ->> 4 AS declaration, value ->> 5 AS digest
    FROM json_each(?1)
) AS answer
WHERE polls.name = answer.name AND polls.generation = answer.generation AND polls.outstanding = 1
    AND (answer.digest IS NULL OR answer.digest = polls.digest)
"""

_KEPT = """
SELECT polls.digest, polls.changed_at, polls.event_id, CAST(events.payload AS BLOB)
FROM polls LEFT JOIN events ON events.id = polls.event_id
WHERE polls.name = ? AND polls.generation = ? AND polls.outstanding = 1
"""

_ADOPT = "UPDATE polls SET digest = ? WHERE name = ?"

_EVENT = """
INSERT INTO events (id, name, poll, payload, digest, created_at, occurred_at, previous_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
RETURNING seq
"""

_CHANGED = "UPDATE polls SET digest = ?1, changed_at = ?2, event_id = ?3 WHERE name = ?4"

_FAILED = """
UPDATE polls SET
    outstanding = 0,
    due = ?2,
    not_before = CASE WHEN failure.hold_ms > 0 THEN ?2 + failure.hold_ms END,
    hold_ms = failure.hold_ms,
    failures = failures + 1,
    failing_since = coalesce(failing_since, ?2),
    last_error = failure.error
FROM (
    SELECT value ->> 0 AS name, value ->> 1 AS generation, value ->> 2 AS hold_ms, value ->> 3 AS error
    FROM json_each(?1)
) AS failure
WHERE polls.name = failure.name AND polls.generation = failure.generation AND polls.outstanding = 1
RETURNING name
"""

Answer = tuple[Claim, Answered | NotModified]


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that failed, and for how long its poll is held."""

    claim: Claim
    error: str
    hold_ms: int


def record_answers(transaction: Transaction, answers: list[Answer]) -> list[Recorded]:
    """Record ``answers``, each by its claim."""
    recorded: dict[int, Recorded] = {}
    deliveries: list[NewItem] = []
    for round_ in _rounds([claim.name for claim, _ in answers]):
        unchanged = _record_unchanged(transaction, [answers[at] for at in round_])
        for at in round_:
            claim, answer = answers[at]
            if claim.name in unchanged:
                recorded[at] = _quiet(unchanged[claim.name], transaction.now)
            else:
                recorded[at] = _record_other(transaction, claim, answer, deliveries)
    if deliveries:
        insert_items(transaction, deliveries)
    return [recorded[at] for at in range(len(answers))]


def record_failures(transaction: Transaction, failures: list[Failure]) -> list[bool]:
    """Record ``failures``; False for each whose claim was stale."""
    recorded = [False] * len(failures)
    for round_ in _rounds([failure.claim.name for failure in failures]):
        rows = [
            (failure.claim.name, failure.claim.generation, failure.hold_ms, reasons.storable(failure.error))
            for failure in (failures[at] for at in round_)
        ]
        kept = {name for (name,) in transaction.rows(_FAILED, (as_json(rows), transaction.now))}
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


def _record_unchanged(transaction: Transaction, answers: list[Answer]) -> dict[str, int | None]:
    """Record those of ``answers`` that say nothing new: when each of them last changed, by name."""
    rows = as_json([_as_row(claim, answer) for claim, answer in answers])
    (same,) = transaction.row(_SAME, (rows,))
    transaction.row(_UNCHANGED, (rows, transaction.now))
    unchanged: dict[str, int | None] = json.loads(same)
    return unchanged


def _as_row(claim: Claim, answer: Answered | NotModified) -> tuple[Any, ...]:
    hold_ms = 0 if answer.hold is None else to_ms(answer.hold)
    validators = written_validators(answer.validators)
    if isinstance(answer, NotModified):
        return claim.name, claim.generation, hold_ms, validators, None, None
    return claim.name, claim.generation, hold_ms, validators, answer.declaration, answer.digest


def _record_other(
    transaction: Transaction, claim: Claim, answer: Answered | NotModified, deliveries: list[NewItem]
) -> Recorded:
    """An answer whose digest is not the one kept, or whose claim is stale."""
    kept = transaction.row(_KEPT, (claim.name, claim.generation))
    if kept is None or isinstance(answer, NotModified):
        return Stale()
    digest, changed_at, previous_id, stored = kept
    previous = None if stored is None else stored.decode(errors="replace")
    if not is_change(digest, previous, answer.digest):
        transaction.row(_ADOPT, (answer.digest, claim.name))
        _record_unchanged(transaction, [(claim, answer)])
        return _quiet(changed_at, transaction.now)
    event = _keep_event(transaction, claim, answer, previous_id)
    text = envelope_of(event, previous)
    heard = [delivery_of(event, hearing, text) for hearing in hearing_now(transaction, event.name)]
    deliveries.extend(heard)
    return Changed(event_id=event.id, seq=event.seq, deliveries=len(heard))


def _keep_event(
    transaction: Transaction, claim: Claim, answer: Answered, previous_id: str | None
) -> EventRow:
    """Keep the event, and its digest as what the next answer is compared with."""
    now = transaction.now
    row = (claim.name, answer.payload, answer.digest, now, answer.occurred_at, previous_id)
    (seq,) = transaction.row(_EVENT, (answer.event_id, answer.event, *row))
    transaction.row(_CHANGED, (answer.digest, now, answer.event_id, claim.name))
    _record_unchanged(transaction, [(claim, answer)])
    return EventRow(seq, answer.event_id, answer.event, *row)


def _quiet(changed_at: int | None, now: int) -> Unchanged:
    return Unchanged(None if changed_at is None else timedelta(milliseconds=max(now - changed_at, 0)))


@lru_cache(maxsize=20_000)
def written_validators(validators: Validators) -> str | None:
    """Validators as they are kept in a row: JSON, or nothing where there are none."""
    given = {"etag": validators.etag, "last_modified": validators.last_modified}
    kept = {name: value for name, value in given.items() if value is not None}
    return json.dumps(kept) if kept else None
