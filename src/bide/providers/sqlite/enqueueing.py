"""Putting work items in: many with one statement, and those with a key one by one, each against who has the key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from bide.core.durations import to_ms
from bide.errors import KeyConflict
from bide.provider import KEY_KEPT, Enqueued, NewItem
from bide.providers.choosing import rank_of
from bide.providers.parting import parted
from bide.providers.sqlite.items import line_up
from bide.providers.sqlite.writer import Transaction

KEY_KEPT_MS = to_ms(KEY_KEPT)

_COLUMNS = (
    *("id", "payload", "queue", "name", "state", "priority", "rank", "visible_at", "hold_ms", "max_attempts"),
    *("within_ms", "expires_at", "order_key", "key", "limit_key", "keep_ms", "enqueued_at"),
)

_INSERT = "INSERT INTO work_items ({columns}) VALUES {rows} ON CONFLICT (id) DO NOTHING"


def _insert(rows: int) -> str:
    row = f"({', '.join('?' * len(_COLUMNS))})"
    return _INSERT.format(columns=", ".join(_COLUMNS), rows=", ".join([row] * rows))


INSERTS = {rows: _insert(rows) for rows in (64, 16, 4, 1)}
"""Statements by how many rows each puts in. At each run of a statement this thread and the event loop may have to
wait for each other: a batch takes few."""

_LAST = "SELECT coalesce(max(seq), 0) FROM work_items"

_WAS_THERE = "SELECT 1 FROM work_items WHERE id = ? AND seq <= ?"

_HOLDER = """
SELECT seq, id, CAST(payload AS BLOB), ended_at FROM work_items
WHERE queue = ? AND name = ? AND key = ? AND key IS NOT NULL
"""

_FREE_KEY = "UPDATE work_items SET key = NULL WHERE seq = ?"


def insert_items(transaction: Transaction, items: Sequence[NewItem]) -> list[Enqueued]:
    """Put in those of ``items`` that are new, and say what became of each. Raises ``KeyConflict``."""
    if not items:
        return []
    ids, payloads, patterns = parted(items)
    if any(item.key is not None for item in patterns):
        enqueued = [_insert_one(transaction, item) for item in items]
    else:
        rests = [_row(item, transaction.now) for item in patterns]
        enqueued = _insert_many(transaction, ids, payloads, rests * (len(ids) // len(rests)))
    ordered = {(item.queue, item.order_key) for item in patterns if item.order_key is not None}
    if ordered:
        line_up(transaction, ordered)
    transaction.wakes = True
    return enqueued


def _insert_many(
    transaction: Transaction, ids: Sequence[str], payloads: Sequence[str], rests: Sequence[tuple[Any, ...]]
) -> list[Enqueued]:
    """Put in items without keys: their ids, payloads, and columns beside."""
    connection = transaction.connection
    (last,) = transaction.row(_LAST)
    changes = connection.total_changes()
    for part in _parts(len(ids)):
        columns = zip(ids[part], payloads[part], rests[part], strict=True)
        values = tuple(chain.from_iterable((id, payload, *rest) for id, payload, rest in columns))
        connection.execute(INSERTS[part.stop - part.start], values)
    if connection.total_changes() - changes == len(ids):
        return [Enqueued(id, new=True) for id in ids]
    seen: set[str] = set()
    enqueued = []
    for id in ids:
        known = id in seen or transaction.row(_WAS_THERE, (id, last)) is not None
        enqueued.append(Enqueued(id, new=not known))
        seen.add(id)
    return enqueued


def _insert_one(transaction: Transaction, item: NewItem) -> Enqueued:
    """Put in an item, unless its id or key is known."""
    (last,) = transaction.row(_LAST)
    if transaction.row(_WAS_THERE, (item.id, last)) is not None:
        return Enqueued(item.id, new=False)
    if item.key is not None:
        payload = item.payload.encode()
        holder = transaction.row(_HOLDER, (item.queue, item.name, item.key))
        if holder is not None:
            seq, id, kept, ended_at = holder
            if ended_at is None or transaction.now < ended_at + KEY_KEPT_MS:
                if kept != payload:
                    raise KeyConflict(item.queue, item.name, item.key, id)
                return Enqueued(id, new=False)
            transaction.row(_FREE_KEY, (seq,))
    transaction.row(INSERTS[1], (item.id, item.payload, *_row(item, transaction.now)))
    return Enqueued(item.id, new=True)


def _parts(count: int) -> Iterator[slice]:
    """So many rows in parts that there is a statement for."""
    begin = 0
    for size in INSERTS:
        while count - begin >= size:
            yield slice(begin, begin + size)
            begin += size


def _row(item: NewItem, now: int) -> tuple[Any, ...]:
    """Its columns after id and payload."""
    delay_ms = to_ms(item.delay) if item.delay else 0
    visible_at, hold_ms = now + delay_ms, delay_ms
    if item.at is not None and item.at > visible_at:
        visible_at = hold_ms = item.at
    within_ms = None if item.within is None else to_ms(item.within)
    state = "ready" if visible_at <= now else "waiting"
    if item.order_key is not None:
        state = "blocked"  # until it is lined up
    return (
        item.queue,
        item.name,
        state,
        item.priority,
        rank_of(visible_at, item.priority),
        visible_at,
        hold_ms,
        item.max_attempts,
        within_ms,
        None if within_ms is None else now + within_ms,
        item.order_key,
        item.key,
        item.limit_key,
        None if item.keep_result is None else to_ms(item.keep_result),
        now,
    )
