"""New work items as the arguments of one statement, what came of them, and the tokens of what was fetched."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from bide.core.durations import to_ms
from bide.errors import KeyConflict
from bide.provider import Enqueued, NewItem
from bide.providers.parting import parted
from bide.providers.postgres.texts import packed, shown, stored, stored_if_any

ENQUEUE = """
SELECT place, id, conflict FROM bide.enqueue(
    bide.unpacked($1), $2, $3, bide.unpacked($4), $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
"""

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
    arguments = enqueue_arguments(items, notify)
    ids, *_ = parted(items)
    enqueued = [Enqueued(id, True) for id in ids]
    for place, kept, conflict in await rows(ENQUEUE, *arguments):
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


def enqueue_arguments(items: Sequence[NewItem], notify: Sequence[str] = ()) -> list[Any]:
    """What :data:`ENQUEUE` is given for at least one item. Raises ``ProviderError`` for what cannot be stored.

    What is the same for all is sent once: a batch nearly always differs in ids and payloads alone.
    """
    ids, payloads, patterns = parted(items)
    return [
        packed(ids),
        _once([stored(item.queue) for item in patterns]),
        _once([stored(item.name) for item in patterns]),
        packed(payloads),
        _once([item.priority for item in patterns]),
        _once([to_ms(item.delay) for item in patterns]),
        _once([item.at for item in patterns]),
        _once([item.max_attempts for item in patterns]),
        _once([_ms_if_any(item.within) for item in patterns]),
        _once([stored_if_any(item.order_key) for item in patterns]),
        _once([stored_if_any(item.key) for item in patterns]),
        _once([stored_if_any(item.limit_key) for item in patterns]),
        _once([_ms_if_any(item.keep_result) for item in patterns]),
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
        "within_ms": _ms_if_any(item.within),
        "order_key": stored_if_any(item.order_key),
        "key": stored_if_any(item.key),
        "limit_key": stored_if_any(item.limit_key),
        "keep_result_ms": _ms_if_any(item.keep_result),
    }
    return {field: value for field, value in fields.items() if value is not None}


def columns_of(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as arrays, one for each column."""
    return [list(column) for column in zip(*rows, strict=True)]


def split(token: str) -> tuple[int, str]:
    """A token's item and fetch; it must be one (:data:`is_token`)."""
    seq, _, nonce = token.partition(":")
    return int(seq), nonce


def _once(column: list[Any]) -> list[Any]:
    """``column``, or its first value where all are the same."""
    return column[:1] if column.count(column[0]) == len(column) else column


def _ms_if_any(duration: timedelta | None) -> int | None:
    return None if duration is None else to_ms(duration)
