"""Taking work: one transaction that puts the queues in order, chooses, and locks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bide.provider import Empty, Items, WorkItem
from bide.providers import reasons
from bide.providers.choosing import Candidate, choose
from bide.providers.sqlite.items import as_json, end_item, line_up, readable
from bide.providers.sqlite.writer import Transaction

MOST_AT_ONCE = 1000
"""Rows that one fetch makes ready or buries, so that its transaction stays short; the next one goes on."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """What is asked for. ``pairs`` is JSON of every queue with every name; ``queues`` are in this turn's order."""

    queues: tuple[str, ...]
    pairs: str
    limit: int
    limits: Mapping[str, int]
    lock_ms: int
    nonce: str
    fetch_token: str


_LOCK_OVER = """
SELECT seq, queue, order_key, deaths + 1, attempts, max_attempts, locked_until FROM work_items INDEXED BY work_running
WHERE state = 'running' AND (locked_until <= ?1 OR locked_until > ?1 + 2 * lock_ms)
"""

_ONE_MORE_LENGTH = "UPDATE work_items SET locked_until = ? + lock_ms WHERE seq = ?"

_GIVE_BACK = """
UPDATE work_items
SET state = 'ready', deaths = ?, error = ?, token = NULL, fetch_token = NULL, locked_until = NULL, lock_ms = NULL
WHERE seq = ?
"""

_PAST_LIFE = """
SELECT seq, within_ms, error FROM work_items
WHERE state IN ('ready', 'waiting', 'blocked') AND expires_at <= ?
LIMIT 0 + ?
"""

_BECOME_READY = """
UPDATE work_items SET state = 'ready' WHERE seq IN (
    SELECT w.seq FROM json_each(?1) AS pair CROSS JOIN work_items AS w
    WHERE w.state = 'waiting' AND w.queue = pair.value ->> 0 AND w.name = pair.value ->> 1 AND w.visible_at <= ?2
    UNION ALL
    SELECT w.seq FROM json_each(?1) AS pair CROSS JOIN work_items AS w
    WHERE w.state = 'waiting' AND w.queue = pair.value ->> 0 AND w.name = pair.value ->> 1
        AND w.visible_at - 2 * w.hold_ms > ?2
    LIMIT 0 + ?3)
"""

_READY_PAIRS = """
SELECT value ->> 0, value ->> 1 FROM json_each(?) AS pair
WHERE EXISTS (
    SELECT 1 FROM work_items WHERE state = 'ready' AND queue = pair.value ->> 0 AND name = pair.value ->> 1)
"""

_FIRST = """
SELECT seq, rank, deaths, attempts, max_attempts, within_ms, expires_at, error FROM work_items
WHERE state = 'ready' AND queue = ? AND name = ? ORDER BY rank, seq LIMIT 0 + ?
"""

_LOCK = """
UPDATE work_items
SET state = 'running', attempts = attempts + 1, token = seq || ':' || ?2, fetch_token = ?3,
    locked_until = ?4 + ?5, lock_ms = ?5
WHERE seq IN (SELECT value FROM json_each(?1))
RETURNING rank, seq, id, queue, name, CAST(payload AS BLOB), token, attempts, deaths, enqueued_at, expires_at,
    max_attempts
"""

_NEXT = """
SELECT
    EXISTS (
        SELECT 1 FROM json_each(?1) AS pair CROSS JOIN work_items AS w
        WHERE w.state = 'ready' AND w.queue = pair.value ->> 0 AND w.name = pair.value ->> 1),
    (
        SELECT min((SELECT min(visible_at) FROM work_items
                    WHERE state = 'waiting' AND queue = pair.value ->> 0 AND name = pair.value ->> 1))
        FROM json_each(?1) AS pair),
    (
        SELECT min(locked_until) FROM work_items INDEXED BY work_running
        WHERE state = 'running' AND (queue, name) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1)))
"""


def fetch(transaction: Transaction, wanted: Fetch) -> Items | Empty:
    """Lock what is eligible, or say when something will be."""
    _free_expired_locks(transaction)
    bury_past_life(transaction, MOST_AT_ONCE)
    transaction.row(_BECOME_READY, (wanted.pairs, transaction.now, MOST_AT_ONCE))
    while True:
        candidates = _candidates(transaction, wanted)
        if candidates is None:
            continue
        chosen = choose(candidates, wanted.queues, limit=wanted.limit, limits=wanted.limits)
        if chosen:
            return _lock(transaction, wanted, chosen)
        return Empty(next_eligible_in(transaction, wanted.pairs))


def next_eligible_in(transaction: Transaction, pairs: str) -> timedelta | None:
    """How long until an item of ``pairs`` will be eligible as things stand; zero: one is. Only reads."""
    ready, *instants = transaction.row(_NEXT, (pairs,))
    if ready:
        return timedelta()
    known = [instant for instant in instants if instant is not None]
    return timedelta(milliseconds=max(min(known) - transaction.now, 0)) if known else None


def bury_past_life(transaction: Transaction, limit: int) -> int:
    """Bury items whose whole life is over before anybody had them; how many."""
    over = transaction.rows(_PAST_LIFE, (transaction.now, limit))
    for seq, within_ms, error in over:
        end_item(transaction, seq, "dead", reasons.expired(within_ms, error))
    return len(over)


def _free_expired_locks(transaction: Transaction) -> None:
    """Give back what its worker lost, counting the death; bury what is out of lives or attempts.

    Where the clock was set back, a lock would last for ever: it gets one more length, in which to be renewed.
    """
    now = transaction.now
    for seq, queue, order_key, deaths, attempts, max_attempts, locked_until in transaction.rows(
        _LOCK_OVER, (now,)
    ):
        if locked_until > now:
            transaction.row(_ONE_MORE_LENGTH, (now, seq))
            continue
        transaction.row(_GIVE_BACK, (deaths, reasons.LOCK_EXPIRED, seq))
        if deaths >= reasons.DEATHS_BEFORE_BURIAL:
            end_item(transaction, seq, "dead", reasons.killed_workers(deaths))
        elif max_attempts is not None and attempts >= max_attempts:
            end_item(transaction, seq, "dead", reasons.gave_up(attempts, reasons.LOCK_EXPIRED))
        elif order_key is not None:
            line_up(transaction, {(queue, order_key)})


def _candidates(transaction: Transaction, wanted: Fetch) -> list[Candidate] | None:
    """The first ready items of each pair; None where some had to be buried first."""
    candidates = []
    buried = False
    for queue, name in transaction.rows(_READY_PAIRS, (wanted.pairs,)):
        most = min(wanted.limit, wanted.limits.get(name, wanted.limit))
        for row in transaction.rows(_FIRST, (queue, name, most)):
            seq, rank, deaths, *_ = row
            reason = _reason_to_bury(row, transaction.now)
            if reason is None:
                candidates.append(Candidate(seq, queue, name, rank, deaths))
                continue
            end_item(transaction, seq, "dead", reason)
            buried = True
    return None if buried else candidates


def _reason_to_bury(row: tuple[Any, ...], now: int) -> str | None:
    _, _, _, attempts, max_attempts, within_ms, expires_at, error = row
    if max_attempts is not None and attempts >= max_attempts:
        return reasons.gave_up(attempts, error)
    if expires_at is not None and expires_at <= now:
        return reasons.expired(within_ms, error)
    return None


def _lock(transaction: Transaction, wanted: Fetch, chosen: list[Candidate]) -> Items:
    seqs = as_json(candidate.seq for candidate in chosen)
    bindings = (seqs, wanted.nonce, wanted.fetch_token, transaction.now, wanted.lock_ms)
    locked = sorted(transaction.rows(_LOCK, bindings))
    return Items(tuple(_work_item(row) for row in locked))


def _work_item(row: tuple[Any, ...]) -> WorkItem:
    _, _, id, queue, name, stored, token, attempts, deaths, enqueued_at, expires_at, max_attempts = row
    payload, unreadable = readable(stored)
    return WorkItem(
        id=id,
        queue=queue,
        name=name,
        payload=payload,
        token=token,
        attempt=attempts,
        deaths=deaths,
        enqueued_at=enqueued_at,
        expires_at=expires_at,
        max_attempts=max_attempts,
        unreadable=unreadable,
    )
