"""Rows of ``work_items``: putting them in, ending them, and keeping those of one order key in line.

Of the items of an order key, one at most is not ``blocked``: the front. It is the first that was enqueued, and
when it ends the next one takes its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from bide.core.durations import to_ms
from bide.provider import NewItem
from bide.providers.choosing import rank_of
from bide.providers.sqlite.writer import Transaction

_INSERT = """
INSERT INTO work_items (id, queue, name, state, payload, priority, rank, visible_at, hold_ms,
                        max_attempts, within_ms, expires_at, order_key, enqueued_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING
"""

_END = """
UPDATE work_items
SET state = ?, ended_at = ?, error = ?, token = NULL, fetch_token = NULL, locked_until = NULL, lock_ms = NULL
WHERE seq = ?
RETURNING queue, order_key
"""

_FRONT = """
SELECT seq, state FROM work_items
WHERE queue = ? AND order_key = ? AND order_key IS NOT NULL AND state IN ('ready', 'waiting', 'running')
ORDER BY state = 'running' DESC, seq LIMIT 1
"""

_NEXT = """
SELECT seq, visible_at FROM work_items INDEXED BY work_blocked
WHERE queue = ? AND order_key = ? AND order_key IS NOT NULL AND state = 'blocked'
ORDER BY seq LIMIT 1
"""


def insert_items(transaction: Transaction, items: Sequence[NewItem]) -> None:
    """Put in those of ``items`` whose id is new."""
    now = transaction.now
    transaction.many(_INSERT, [_row(item, now) for item in items])
    line_up(transaction, {(item.queue, item.order_key) for item in items if item.order_key is not None})
    transaction.wakes = True


def end_item(transaction: Transaction, seq: int, state: Literal["done", "dead"], error: str | None) -> None:
    """The item is at an end, whatever it was before."""
    for queue, order_key in transaction.rows(_END, (state, transaction.now, error, seq)):
        if order_key is not None:
            line_up(transaction, {(queue, order_key)})


def line_up(transaction: Transaction, keys: Iterable[tuple[str, str]]) -> None:
    """Make the first unfinished item of each of ``keys`` the front, unless another one is running."""
    for key in keys:
        following = transaction.row(_NEXT, key)
        if following is None:
            continue
        seq, visible_at = following
        front = transaction.row(_FRONT, key)
        if front is not None:
            front_seq, front_state = front
            if front_state == "running" or front_seq < seq:
                continue
            transaction.row("UPDATE work_items SET state = 'blocked' WHERE seq = ?", (front_seq,))
        state = "waiting" if visible_at > transaction.now else "ready"
        transaction.row("UPDATE work_items SET state = ? WHERE seq = ?", (state, seq))
        transaction.wakes = True


def as_json(values: Iterable[Any]) -> str:
    """``values`` as one parameter of a statement that reads them with ``json_each``."""
    return json.dumps(list(values), separators=(",", ":"))


def readable(payload: bytes) -> tuple[str, str | None]:
    """A stored payload as text, and what is wrong with it where it cannot be read."""
    try:
        return payload.decode(), None
    except UnicodeDecodeError as error:
        return "", f"its payload is not UTF-8 ({error.reason} at byte {error.start})"


def _row(item: NewItem, now: int) -> tuple[Any, ...]:
    delay_ms = to_ms(item.delay)
    visible_at = now + delay_ms
    within_ms = None if item.within is None else to_ms(item.within)
    state = "waiting" if delay_ms > 0 else "ready"
    if item.order_key is not None:
        state = "blocked"  # until it is lined up
    return (
        item.id,
        item.queue,
        item.name,
        state,
        item.payload,
        item.priority,
        rank_of(visible_at, item.priority),
        visible_at,
        delay_ms,
        item.max_attempts,
        within_ms,
        None if within_ms is None else now + within_ms,
        item.order_key,
        now,
    )
