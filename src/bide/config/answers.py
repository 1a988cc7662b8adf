"""Declared fields and their types, and the expressions that select them from an answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from jmespath.exceptions import EmptyExpressionError, LexerError, ParseError
from jmespath.functions import Functions

from bide.config.report import Place, nearest_or_known
from bide.config.shape import kind_of, read_entries, step_of, text
from bide.core.fields import KINDS, FieldType, parse_field_type
from bide.core.names import did_you_mean
from bide.core.selection import Selection, parsed
from bide.errors import SettingError

Fields = Mapping[str, FieldType | None]
"""Declared fields by name; None for one whose type is wrong and was reported."""

Selections = Mapping[str, str | None]
"""JMESPath expressions by field; None for one that is wrong and was reported."""

T = TypeVar("T")
_ANY_TYPE = f"Use one of {', '.join(KINDS)}, each with ? if it may be missing."


def fields(place: Place, value: object) -> Fields | None:
    """A table of field types."""
    entries = read_entries(place, value)
    if entries is None:
        return None
    return {name: field_type(place.at(name), entry) for name, entry in entries.items()}


def some_fields(place: Place, value: object) -> Fields | None:
    """A table of at least one field type."""
    found = fields(place, value)
    if found is not None and not found and value == {}:
        place.refuse("names no field", 'Name at least one, such as { price = "number" }.')
        return None
    return found


def field_type(place: Place, value: object) -> FieldType | None:
    """One type by its word, such as ``"number"`` or, where it may be missing, ``"number?"``."""
    shown = repr(value) if isinstance(value, str) else kind_of(value)
    try:
        return parse_field_type(value)
    except SettingError as error:
        near = did_you_mean(value.rstrip("?"), KINDS) if isinstance(value, str) else None
        place.refuse(f"{shown} is not a type", near or step_of(error) or _ANY_TYPE)
        return None


def complete(declared: Mapping[str, T | None]) -> dict[str, T]:
    """The entries that could be read."""
    return {name: entry for name, entry in declared.items() if entry is not None}


def selections(place: Place, value: object) -> Selections | None:
    """A table of JMESPath expressions."""
    entries = read_entries(place, value)
    if entries is None:
        return None
    return {name: expression(place.at(name), entry) for name, entry in entries.items()}


def expression(place: Place, value: object) -> str | None:
    """A JMESPath expression that can be read, calling functions that there are."""
    source = text(place, value)
    if source is None:
        return None
    try:
        tree = parsed(source)
    except (EmptyExpressionError, LexerError, ParseError, RecursionError) as error:
        position = getattr(error, "lex_position", None) or 0
        place.refuse(
            f"is not a JMESPath expression: it cannot be read at character {position + 1} of {source!r}",
            'Write a path such as "data.price" or "items[0].id".',
        )
        return None
    for name in sorted(_functions_called(tree)):
        if name not in Functions.FUNCTION_TABLE:
            place.refuse(
                f"calls {name}(), which JMESPath does not have",
                nearest_or_known(name, Functions.FUNCTION_TABLE),
            )
            return None
    try:
        Selection(source)
    except SettingError as error:
        place.refuse(error.reason, "Mend the expression; jmespath.org has its rules.")
        return None
    return source


def check_names(place: Place, names: Iterable[str], known: Collection[str], what: str) -> None:
    """Report each of ``names`` that is not ``known``; ``what`` says what it would have to be."""
    for name in names:
        if name not in known:
            place.at(name).refuse_key(
                f"is not {what}", nearest_or_known(name, known, "Remove it: there is none.")
            )


def _functions_called(node: object) -> set[str]:
    found: set[str] = set()
    pending = [node]
    while pending:
        match pending.pop():
            case {"type": "function_expression", "value": str() as name, "children": list() as children}:
                found.add(name)
                pending.extend(children)
            case {"children": list() as children}:
                pending.extend(children)
            case _:
                pass
    return found
