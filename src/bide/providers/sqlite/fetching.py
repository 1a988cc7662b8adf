"""Taking work: one transaction that puts the queues in order, chooses, and locks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bide.provider import Empty, Items, Limit, WorkItem
from bide.providers import reasons
from bide.providers.choosing import Turns, choose
from bide.providers.sqlite.candidates import Search, lanes_of
from bide.providers.sqlite.items import as_json, bury, line_up, readable
from bide.providers.sqlite.writer import Transaction

MOST_AT_ONCE = 1000
"""Rows that one fetch makes ready or buries, so that its transaction stays short; the next one goes on."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """What is asked for. ``queues`` are in this turn's order; ``limits`` are those that bound anything of them."""

    queues: tuple[str, ...]
    names: tuple[str, ...]
    limit: int
    most: Mapping[str, int]
    limits: Mapping[str, Limit]
    lock_ms: int
    fetch_token: str
    turns: Turns
    pairs: str
    """JSON of every queue with every name."""
    free_pairs: str
    """JSON of those whose queue has no limit."""


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
SELECT seq, queue, within_ms, error FROM work_items
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

_DOOMED = "SELECT attempts, max_attempts, queue, within_ms, error FROM work_items WHERE seq = ?"

_LOCK = """
UPDATE work_items
SET state = 'running', attempts = attempts + 1, token = seq || ':' || ?2, fetch_token = ?3,
    locked_until = ?4 + ?5, lock_ms = ?5
WHERE seq IN (SELECT value FROM json_each(?1))
"""

_TAKEN = """
SELECT CAST(json_group_array(json_array(
    seq, id, queue, name, payload, token, attempts, deaths, enqueued_at, expires_at, max_attempts, NULL, given_back,
    json(iif(keep_ms IS NULL, 'false', 'true')))) AS BLOB)
FROM work_items WHERE seq IN (SELECT value FROM json_each(?1))
"""
"""Everything in one row: at each row that a statement hands out, this thread and the event loop may have to wait for
each other. After the place the order is that of the fields of ``WorkItem``."""

_TAKEN_ONE_BY_ONE = """
SELECT rank, seq, id, queue, name, CAST(payload AS BLOB), token, attempts, deaths, enqueued_at, expires_at,
    max_attempts, given_back, keep_ms IS NOT NULL
FROM work_items WHERE seq IN (SELECT value FROM json_each(?1))
"""

_NEXT = """
SELECT
    EXISTS (
        SELECT 1 FROM json_each(?2) AS pair CROSS JOIN work_items AS w
        WHERE w.state = 'ready' AND w.limit_key IS NULL
            AND w.queue = pair.value ->> 0 AND w.name = pair.value ->> 1)
    OR EXISTS (
        SELECT 1 FROM json_each(?2) AS pair CROSS JOIN work_items AS w INDEXED BY work_ready_keyed
        WHERE w.state = 'ready' AND w.limit_key IS NOT NULL
            AND w.queue = pair.value ->> 0 AND w.name = pair.value ->> 1),
    (
        SELECT min((SELECT min(visible_at) FROM work_items
                    WHERE state = 'waiting' AND queue = pair.value ->> 0 AND name = pair.value ->> 1))
        FROM json_each(?1) AS pair),
    (
        SELECT min(locked_until) FROM work_items INDEXED BY work_running
        WHERE state = 'running' AND ((queue, name) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))
            OR queue IN (SELECT value FROM json_each(?3))))
"""


def fetch(transaction: Transaction, *, wanted: Fetch, nonce: str) -> Items | Empty:
    """Lock what is eligible under tokens made of ``nonce``, or say when something will be."""
    _free_expired_locks(transaction)
    bury_past_life(transaction, MOST_AT_ONCE)
    transaction.row(_BECOME_READY, (wanted.pairs, transaction.now, MOST_AT_ONCE))
    chosen = _chosen(transaction, wanted)
    if not chosen:
        return Empty(next_eligible_in(transaction, wanted))
    return _lock(transaction, wanted, nonce, chosen)


def next_eligible_in(transaction: Transaction, wanted: Fetch) -> timedelta | None:
    """How long until an item that is wanted will be eligible as things stand; zero: one is. Only reads.

    Of a queue with a limit every lock counts, whatever the item's name: the place that it frees is wanted.
    """
    limited = as_json(wanted.limits)
    ready, *instants = transaction.row(_NEXT, (wanted.pairs, wanted.free_pairs, limited))
    if ready or (wanted.limits and _has_room(transaction, wanted)):
        return timedelta()
    known = [instant for instant in instants if instant is not None]
    return timedelta(milliseconds=max(min(known) - transaction.now, 0)) if known else None


def bury_past_life(transaction: Transaction, limit: int) -> int:
    """Bury items whose whole life is over before anybody had them; how many."""
    over = transaction.rows(_PAST_LIFE, (transaction.now, limit))
    for seq, queue, within_ms, error in over:
        bury(transaction, seq, reasons.expired(queue, within_ms, error))
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
            bury(transaction, seq, reasons.killed_workers(deaths))
        elif max_attempts is not None and attempts >= max_attempts:
            bury(transaction, seq, reasons.gave_up(attempts, reasons.LOCK_EXPIRED))
        elif order_key is not None:
            line_up(transaction, {(queue, order_key)})


def _chosen(transaction: Transaction, wanted: Fetch) -> list[int]:
    """The places of what is to be taken, in order; what cannot be handed out any more is buried first."""
    effort = 1
    while True:
        lanes = lanes_of(transaction, wanted.limits, wanted.turns)
        found = Search(
            transaction,
            lanes,
            names=wanted.names,
            free_pairs=wanted.free_pairs,
            limit=wanted.limit,
            most=wanted.most,
            effort=effort,
        )
        if found.doomed:
            for seq in found.doomed:
                bury(transaction, seq, _reason_to_bury(transaction, seq))
            continue
        if not lanes and (first := found.simply_first(wanted.queues)) is not None:
            return first
        chosen = choose(found.candidates, wanted.queues, limit=wanted.limit, most=wanted.most, lanes=lanes)
        if found.is_too_narrow_for(chosen):
            effort *= 4
            continue
        wanted.turns.keep(lanes)
        return [candidate.seq for candidate in chosen]


def _has_room(transaction: Transaction, wanted: Fetch) -> bool:
    """Whether anything of the queues with a limit may run."""
    lanes = lanes_of(transaction, wanted.limits, Turns())
    found = Search(transaction, lanes, names=wanted.names, free_pairs="[]", limit=1, most={})
    return bool(found.doomed or choose(found.candidates, wanted.queues, limit=1, most={}, lanes=lanes))


def _reason_to_bury(transaction: Transaction, seq: int) -> str:
    """Why a candidate cannot be handed out."""
    attempts, max_attempts, queue, within_ms, error = transaction.row(_DOOMED, (seq,))
    if max_attempts is not None and attempts >= max_attempts:
        return reasons.gave_up(attempts, error)
    return reasons.expired(queue, within_ms, error)


def _lock(transaction: Transaction, wanted: Fetch, nonce: str, chosen: list[int]) -> Items:
    seqs = as_json(chosen)
    transaction.row(_LOCK, (seqs, nonce, wanted.fetch_token, transaction.now, wanted.lock_ms))
    (taken,) = transaction.row(_TAKEN, (seqs,))
    try:
        rows = json.loads(taken.decode())
    except UnicodeDecodeError:
        locked = sorted(transaction.rows(_TAKEN_ONE_BY_ONE, (seqs,)))
        return Items(tuple(_work_item(row) for row in locked))
    by_seq = {seq: fields for seq, *fields in rows}
    return Items(tuple(WorkItem(*by_seq[seq]) for seq in chosen))


def _work_item(row: tuple[Any, ...]) -> WorkItem:
    _, _, id, queue, name, stored, *rest, given_back, keeps_result = row
    payload, unreadable = readable(stored)
    fields = (id, queue, name, payload, *rest, unreadable, given_back, bool(keeps_result))
    return WorkItem(*fields)
