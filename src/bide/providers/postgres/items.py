"""New work items as the arguments of one statement, what came of them, and the tokens of what was fetched."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from bide.core.durations import to_ms
from bide.errors import KeyConflict
from bide.provider import ZERO, Enqueued, NewItem
from bide.providers.postgres.texts import all_stored, shown, stored

ENQUEUE = "SELECT place, id, conflict FROM bide.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"

MOST_ROWS = 1000
"""Items that one statement stores; more of them take several in one transaction."""

Rows = Callable[..., Awaitable[list[Any]]]
"""What runs a statement with its arguments."""

_SEQ_AND_FETCH = "[0-9]{1,18}+:[0-9A-Za-z_-]{1,64}+"

is_token = re.compile(_SEQ_AND_FETCH).fullmatch
"""Whether a text may be a token: the number of an item, and the fetch that has it."""

are_tokens = re.compile(f"{_SEQ_AND_FETCH}(?:,{_SEQ_AND_FETCH})*+").fullmatch
"""Whether a text may be tokens, with commas between."""


async def enqueue(rows: Rows, items: Sequence[NewItem], notify: Sequence[str] = ()) -> list[Enqueued]:
    """Store up to ``MOST_ROWS`` items with one statement, and tell the channel and sender of ``notify``.

    Raises ``KeyConflict``, whereupon nothing was stored, and ``ProviderError`` for what cannot be stored.
    """
    enqueued = [Enqueued(item.id, True) for item in items]
    for place, kept, conflict in await rows(ENQUEUE, *enqueue_arguments(items, notify)):
        item = items[place - 1]
        if conflict:
            raise KeyConflict(item.queue, item.name, item.key or "", shown(kept))
        enqueued[place - 1] = Enqueued(shown(kept), False)
    return enqueued


async def enqueue_all(rows: Rows, items: Sequence[NewItem]) -> list[Enqueued]:
    """Store any number of items, for within a transaction. Raises as :func:`enqueue`."""
    enqueued: list[Enqueued] = []
    for first in range(0, len(items), MOST_ROWS):
        enqueued += await enqueue(rows, items[first : first + MOST_ROWS])
    return enqueued


def enqueue_arguments(items: Sequence[NewItem], notify: Sequence[str] = ()) -> list[Sequence[Any]]:
    """What :data:`ENQUEUE` is given for at least one item. Raises ``ProviderError`` for what cannot be stored.

    What is the same for all is sent once: a batch nearly always has one queue and name, and little but defaults.
    """
    return [
        all_stored([item.id for item in items]),
        _once(all_stored([item.queue for item in items])),
        _once(all_stored([item.name for item in items])),
        all_stored([item.payload for item in items]),
        _unless(0, [item.priority for item in items]),
        _unless(0, [to_ms(item.delay) if item.delay is not ZERO else 0 for item in items]),
        _unless(None, [item.at for item in items]),
        _unless(None, [item.max_attempts for item in items]),
        _unless(None, [None if item.within is None else to_ms(item.within) for item in items]),
        _texts(items, "order_key"),
        _texts(items, "key"),
        _texts(items, "limit_key"),
        _unless(None, [None if item.keep_result is None else to_ms(item.keep_result) for item in items]),
        notify,
    ]


def as_json(item: NewItem) -> dict[str, Any]:
    """An item as the SQL function ``bide_enqueue`` takes it. Raises ``ProviderError`` for what cannot be stored."""
    fields = {
        "id": stored(item.id),
        "queue": stored(item.queue),
        "name": stored(item.name),
        "payload": stored(item.payload),
        "priority": item.priority or None,
        "delay_ms": to_ms(item.delay) or None,
        "at_ms": item.at,
        "max_attempts": item.max_attempts,
        "within_ms": None if item.within is None else to_ms(item.within),
        "order_key": None if item.order_key is None else stored(item.order_key),
        "key": None if item.key is None else stored(item.key),
        "limit_key": None if item.limit_key is None else stored(item.limit_key),
        "keep_result_ms": None if item.keep_result is None else to_ms(item.keep_result),
    }
    return {field: value for field, value in fields.items() if value is not None}


def columns_of(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as arrays, one for each column."""
    return [list(column) for column in zip(*rows, strict=True)]


def split(token: str) -> tuple[int, str]:
    """A token's item and fetch; it must be one (:data:`is_token`)."""
    seq, _, nonce = token.partition(":")
    return int(seq), nonce


def _once(column: list[str]) -> list[str]:
    """``column``, or its first value where all are the same."""
    return column[:1] if column.count(column[0]) == len(column) else column


def _unless(value: object, column: list[Any]) -> list[Any]:
    """``column``, or none of it where all of it is ``value``."""
    return [] if column.count(value) == len(column) else column


def _texts(items: Sequence[NewItem], field: str) -> list[str | None]:
    column = list(map(attrgetter(field), items))
    if column.count(None) == len(column):
        return []
    return [None if text is None else stored(text) for text in column]
