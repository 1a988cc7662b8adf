"""Settling fetched work: done, again later or dead; and keeping or giving back its lock."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from bide.core.durations import to_ms
from bide.provider import DELIVERIES, Abandon, Ack, Bury, Settled, Settlement
from bide.providers import reasons
from bide.providers.choosing import rank_of
from bide.providers.sqlite.enqueueing import KEY_KEPT_MS, insert_items
from bide.providers.sqlite.items import as_json, bury, line_up
from bide.providers.sqlite.writer import Transaction

_HELD = """
SELECT
    json_group_array(position) FILTER (WHERE leaves_nothing),
    json_group_array(seq) FILTER (WHERE leaves_nothing),
    json_group_array(json_array(position, seq, queue, order_key, keep_ms, has_key)) FILTER (WHERE NOT leaves_nothing),
    json_group_array(queue) FILTER (WHERE queue IN (SELECT value FROM json_each(?3)))
FROM (
    SELECT given.key AS position, seq, queue, order_key, keep_ms, work_items.key IS NOT NULL AS has_key,
        keep_ms IS NULL AND work_items.key IS NULL AND order_key IS NULL AND queue <> 'deliveries' AS leaves_nothing
    FROM json_each(?1) AS given CROSS JOIN work_items
    WHERE seq = CAST(given.value AS INTEGER) AND token = given.value AND state = 'running' AND locked_until > ?2)
"""
"""Everything in one row: at each row that a statement hands out, this thread and the event loop may have to wait for
each other."""

_GONE = "DELETE FROM work_items WHERE seq IN (SELECT value FROM json_each(?))"

_DONE = """
UPDATE work_items
SET state = 'done', ended_at = ?2, error = NULL, result = done.value ->> 1, kept_until = done.value ->> 2,
    fetch_token = NULL, locked_until = NULL, lock_ms = NULL
FROM json_each(?1) AS done
WHERE work_items.seq = done.value ->> 0
"""

_IS_WAITED_FOR = """
SELECT EXISTS (SELECT 1 FROM work_items WHERE queue = ?1 AND state = 'ready' AND limit_key IS NULL)
    OR EXISTS (SELECT 1 FROM work_items WHERE queue = ?1 AND state = 'ready' AND limit_key IS NOT NULL)
"""

_LIVE = """
SELECT seq, queue, name, order_key, attempts, max_attempts, priority, error FROM work_items
WHERE seq = CAST(?1 AS INTEGER) AND token = ?1 AND state = 'running' AND locked_until > ?2
"""

_ABANDON = """
UPDATE work_items
SET state = ?, attempts = ?, given_back = given_back + ?, visible_at = ?, hold_ms = ?, rank = ?, error = ?,
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


@dataclass(frozen=True, slots=True)
class Batch:
    """Settlements, and the queues of which somebody here fetches within a limit."""

    settlements: Sequence[Settlement]
    limited: Collection[str]


@dataclass(frozen=True, slots=True)
class _Held:
    """An item that an ack holds, and that may stay for its result or key, or has others waiting behind it."""

    seq: int
    queue: str
    order_key: str | None
    keep_ms: int | None
    has_key: bool

    @property
    def stays(self) -> bool:
        return self.keep_ms is not None or self.has_key or self.queue == DELIVERIES

    def done(self, ack: Ack, now: int) -> tuple[int, str | None, int | None]:
        """Its place, the result that is kept, and until when it is; None: as long as the retention says."""
        result = None if self.keep_ms is None else ack.result
        if result is not None:
            result.encode()  # raises where it cannot be stored
        if self.queue == DELIVERIES:
            return self.seq, result, None
        return self.seq, result, now + max(self.keep_ms or 0, KEY_KEPT_MS if self.has_key else 0)


def settle(transaction: Transaction, batches: list[Batch]) -> list[list[Settled]]:
    """Settle every batch, each settlement by its token; all that acks are in one statement, and come first."""
    acks: dict[str, Ack] = {}
    for batch in batches:
        for settlement in batch.settlements:
            if isinstance(settlement, Ack):
                acks.setdefault(settlement.token, settlement)
    limited = {queue for batch in batches for queue in batch.limited}
    freed: set[str] = set()
    acked = _ack(transaction, acks, limited, freed) if acks else set()
    settled = [
        [_settle(transaction, settlement, acked, freed) for settlement in batch.settlements]
        for batch in batches
    ]
    for queue in freed & limited:
        (is_waited_for,) = transaction.row(_IS_WAITED_FOR, (queue,))
        transaction.wakes = transaction.wakes or bool(is_waited_for)
    return settled


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


def _ack(transaction: Transaction, acks: dict[str, Ack], limited: set[str], freed: set[str]) -> set[str]:
    """Settle acks; the tokens that lived. What they enqueue is part of it, and comes first."""
    tokens = list(acks)
    held = transaction.row(_HELD, (as_json(tokens), transaction.now, as_json(limited)))
    positions, places, others, queues = held
    lived = [tokens[at] for at in json.loads(positions)]
    staying = {tokens[at]: _Held(*columns) for at, *columns in json.loads(others)}
    freed.update(json.loads(queues))
    held_tokens = {*lived, *staying}
    new = [
        item for token, ack in acks.items() if ack.enqueue and token in held_tokens for item in ack.enqueue
    ]
    if new:
        insert_items(transaction, new)
    if lived:
        transaction.row(_GONE, (places,))
    if staying:
        _end(transaction, staying, acks)
    return held_tokens


def _end(transaction: Transaction, held: dict[str, _Held], acks: dict[str, Ack]) -> None:
    """End what stays for its result or key, and let those behind move on."""
    gone = [item.seq for item in held.values() if not item.stays]
    if gone:
        transaction.row(_GONE, (as_json(gone),))
    done = [item.done(acks[token], transaction.now) for token, item in held.items() if item.stays]
    if done:
        transaction.row(_DONE, (as_json(done), transaction.now))
    line_up(transaction, {(i.queue, i.order_key) for i in held.values() if i.order_key is not None})


def _settle(transaction: Transaction, settlement: Settlement, acked: set[str], freed: set[str]) -> Settled:
    if isinstance(settlement, Ack):
        if settlement.token not in acked:
            return "stale"
        acked.discard(settlement.token)  # given twice, the second is stale
        return "settled"
    live = transaction.row(_LIVE, (settlement.token, transaction.now))
    if live is None:
        return "stale"
    freed.add(live[1])
    match settlement:
        case Abandon():
            _abandon(transaction, settlement, live)
        case Bury(_, error):
            bury(transaction, live[0], reasons.storable(error))
        case _:
            assert_never(settlement)
    return "settled"


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
    given_back = int(not settlement.count_attempt)
    transaction.row(_ABANDON, (state, attempts, given_back, visible_at, delay_ms, rank, error, seq))
    if settlement.count_attempt and max_attempts is not None and attempts >= max_attempts:
        bury(transaction, seq, reasons.gave_up(attempts, error))
        return
    if queue == DELIVERIES and (ended := _ended_subscription(transaction, name)):
        bury(transaction, seq, reasons.subscription_ended(ended[0]))
        return
    transaction.wakes = True
    if order_key is not None:
        line_up(transaction, {(queue, order_key)})


def _ended_subscription(transaction: Transaction, name: str) -> tuple[str | None] | None:
    found: tuple[str | None] | None = transaction.row(
        "SELECT ended_reason FROM subscriptions WHERE name = ? AND ended_at IS NOT NULL", (name,)
    )
    return found
