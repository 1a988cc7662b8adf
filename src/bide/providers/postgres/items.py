"""New work items as the arguments of one statement, and tokens as it takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bide.core.durations import format_duration, to_ms
from bide.provider import NewItem
from bide.providers.postgres.texts import stored

ENQUEUE = "SELECT bide.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"

_MOST_SEQ = 2**63 - 1


def enqueue_arguments(items: Iterable[NewItem]) -> list[list[Any]]:
    """What :data:`ENQUEUE` is given for at least one item. Raises ``ProviderError`` for what cannot be stored."""
    return columns_of(row_of(item) for item in items)


def columns_of(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as arrays, one for each column."""
    return [list(column) for column in zip(*rows, strict=True)]


def row_of(item: NewItem) -> tuple[Any, ...]:
    """An item as a row. Raises ``ProviderError`` for what cannot be stored."""
    return (
        stored(item.id),
        stored(item.queue),
        stored(item.name),
        stored(item.payload),
        item.priority,
        to_ms(item.delay),
        item.max_attempts,
        None if item.within is None else to_ms(item.within),
        None if item.within is None else format_duration(item.within),
        None if item.order_key is None else stored(item.order_key),
    )


def seq_of(token: str) -> int | None:
    """The item that a token is of; None where it cannot be a token."""
    digits, separator, _ = token.partition(":")
    if not separator or not digits.isascii() or not digits.isdigit() or len(digits) > len(str(_MOST_SEQ)):
        return None
    seq = int(digits)
    return seq if seq <= _MOST_SEQ and "\0" not in token and token.isascii() else None
