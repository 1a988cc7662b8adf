"""Values as error texts show them: what they are, and what they hold as far as that is short."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from itertools import islice

_NAMES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"),
    (bool, "bool"),
    ((int, float, Decimal), "number"),
    (str, "str"),
    (datetime, "datetime"),
    (Mapping, "object"),
    ((list, tuple), "list"),
)
"""The first that fits; ``bool`` comes before the numbers that Python counts it among."""


def kind_of(value: object) -> str:
    """What ``value`` is in the words of field types, ``"null"`` for None, else the name of its type."""
    return next((name for types, name in _NAMES if isinstance(value, types)), type(value).__name__)


def shown_value(value: object) -> str:
    """The kind of ``value``, and its content cut to 40 characters."""
    kind = kind_of(value)
    match value:
        case None:
            return kind
        case bool():
            return f"{kind} {str(value).lower()}"
        case str():
            return f"{kind} {shown_text(value, 40)}"
        case int() if value.bit_length() > 128:
            return f"{kind} of {value.bit_length()} bits"
        case int() | float() | Decimal():
            return f"{kind} {_cut(str(value), 40)}"
        case Mapping():
            return f"{kind} of {shown_names(value)}" if value else f"empty {kind}"
        case list() | tuple():
            return f"{kind} of {len(value)}"
        case _:
            return kind


def shown_text(text: str, limit: int) -> str:
    """``text`` in quotes, cut to ``limit`` characters, with what cannot be printed escaped."""
    return repr(str.__str__(text[:limit])) + ("…" if len(text) > limit else "")


def shown_names(names: Collection[object]) -> str:
    """The first eight of ``names``, each cut to 40 characters."""
    few = ", ".join(_cut(str(name), 40) for name in islice(names, 8))
    return f"{few}, …" if len(names) > 8 else few


def _cut(text: str, limit: int) -> str:
    return f"{text[:limit]}…" if len(text) > limit else text
