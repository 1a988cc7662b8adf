"""Rows of ``work_items``: ending them, and keeping those of one order key in line.

Of the items of an order key, one at most is not ``blocked``: the front. It is the first that was enqueued, and
when it ends the next one takes its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from bide.providers.sqlite.writer import Transaction

_BURY = """
UPDATE work_items
SET state = 'dead', ended_at = ?, error = ?, token = NULL, fetch_token = NULL, locked_until = NULL, lock_ms = NULL
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


def bury(transaction: Transaction, seq: int, error: str | None) -> None:
    """The item is dead, whatever it was before."""
    for queue, order_key in transaction.rows(_BURY, (transaction.now, error, seq)):
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
