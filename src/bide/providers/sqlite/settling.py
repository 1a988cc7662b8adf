"""Settling fetched work: done, again later or dead; and keeping or giving back its lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from bide.core.durations import to_ms
from bide.provider import DELIVERIES, Abandon, Ack, Bury, Settled, Settlement
from bide.providers import reasons
from bide.providers.choosing import rank_of
from bide.providers.sqlite.items import as_json, end_item, insert_items, line_up
from bide.providers.sqlite.writer import Transaction

_ACK = """
UPDATE work_items
SET state = 'done', ended_at = ?2, error = NULL, fetch_token = NULL, locked_until = NULL, lock_ms = NULL
FROM (SELECT CAST(value AS INTEGER) AS seq, value AS token FROM json_each(?1)) AS acked
WHERE work_items.seq = acked.seq AND work_items.token = acked.token
    AND work_items.state = 'running' AND work_items.locked_until > ?2
RETURNING work_items.token, queue, order_key
"""

_LIVE = """
SELECT seq, queue, name, order_key, attempts, max_attempts, priority, error FROM work_items
WHERE seq = CAST(?1 AS INTEGER) AND token = ?1 AND state = 'running' AND locked_until > ?2
"""

_ABANDON = """
UPDATE work_items
SET state = ?, attempts = ?, visible_at = ?, hold_ms = ?, rank = ?, error = ?,
    token = NULL, fetch_token = NULL, locked_until = NULL, lock_ms = NULL
WHERE seq = ?
"""

_RENEW = """
UPDATE work_items SET locked_until = ?2 + ?3, lock_ms = ?3
FROM (SELECT CAST(value AS INTEGER) AS seq, value AS token FROM json_each(?1)) AS kept
WHERE work_items.seq = kept.seq AND work_items.token = kept.token
    AND work_items.state = 'running' AND work_items.locked_until > ?2
RETURNING work_items.token
"""

_RELEASE = """
UPDATE work_items
SET state = 'ready', attempts = attempts - 1, token = NULL, fetch_token = NULL, locked_until = NULL, lock_ms = NULL
WHERE state = 'running' AND fetch_token = ?1 AND locked_until > ?2
RETURNING queue, order_key
"""


def settle(transaction: Transaction, batches: list[Sequence[Settlement]]) -> list[list[Settled]]:
    """Settle every batch, each settlement by its token; all that acks are in one statement."""
    acks = {
        settlement.token: settlement
        for batch in batches
        for settlement in batch
        if isinstance(settlement, Ack)
    }
    acked = _ack(transaction, acks) if acks else set()
    return [[_settle(transaction, settlement, acked) for settlement in batch] for batch in batches]


def renew(transaction: Transaction, request: tuple[Sequence[str], int]) -> list[bool]:
    """Prolong the locks of tokens that live to so many milliseconds from now."""
    tokens, lock_ms = request
    rows = transaction.rows(_RENEW, (as_json(tokens), transaction.now, lock_ms))
    renewed = {token for (token,) in rows}
    return [token in renewed for token in tokens]


def release(transaction: Transaction, fetch_token: str) -> int:
    """Give back what a fetch took and still holds, as if it had not been fetched."""
    released = transaction.rows(_RELEASE, (fetch_token, transaction.now))
    line_up(transaction, {(queue, key) for queue, key in released if key is not None})
    transaction.wakes = transaction.wakes or bool(released)
    return len(released)


def _ack(transaction: Transaction, acks: dict[str, Ack]) -> set[str]:
    """Settle acks; the tokens that lived. What they enqueue is part of it."""
    rows = transaction.rows(_ACK, (as_json(acks), transaction.now))
    acked = {token for token, _, _ in rows}
    for token, ack in acks.items():
        if token in acked and ack.enqueue:
            insert_items(transaction, ack.enqueue)
    line_up(transaction, {(queue, key) for _, queue, key in rows if key is not None})
    return acked


def _settle(transaction: Transaction, settlement: Settlement, acked: set[str]) -> Settled:
    match settlement:
        case Ack(token):
            if token not in acked:
                return "stale"
            acked.discard(token)  # given twice, the second is stale
            return "settled"
        case Abandon(token):
            live = transaction.row(_LIVE, (token, transaction.now))
            if live is None:
                return "stale"
            _abandon(transaction, settlement, live)
            return "settled"
        case Bury(token, error):
            live = transaction.row(_LIVE, (token, transaction.now))
            if live is None:
                return "stale"
            end_item(transaction, live[0], "dead", reasons.storable(error))
            return "settled"
        case _:
            assert_never(settlement)


def _abandon(transaction: Transaction, settlement: Abandon, live: tuple[Any, ...]) -> None:
    """Back in its queue; or dead at once where no attempt is left, or nobody wants the delivery any more."""
    seq, queue, name, order_key, attempts, max_attempts, priority, last_error = live
    error = last_error if settlement.error is None else reasons.storable(settlement.error)
    if not settlement.count_attempt:
        attempts -= 1
    delay_ms = to_ms(settlement.delay)
    visible_at = transaction.now + delay_ms
    state = "waiting" if delay_ms > 0 else "ready"
    rank = rank_of(visible_at, priority)
    transaction.row(_ABANDON, (state, attempts, visible_at, delay_ms, rank, error, seq))
    if settlement.count_attempt and max_attempts is not None and attempts >= max_attempts:
        end_item(transaction, seq, "dead", reasons.gave_up(attempts, error))
        return
    if queue == DELIVERIES and (ended := _ended_subscription(transaction, name)):
        end_item(transaction, seq, "dead", reasons.subscription_ended(ended[0]))
        return
    transaction.wakes = True
    if order_key is not None:
        line_up(transaction, {(queue, order_key)})


def _ended_subscription(transaction: Transaction, name: str) -> tuple[str | None] | None:
    found: tuple[str | None] | None = transaction.row(
        "SELECT ended_reason FROM subscriptions WHERE name = ? AND ended_at IS NOT NULL", (name,)
    )
    return found
