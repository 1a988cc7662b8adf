"""Types of the fields of answers and events, and how a value becomes one.

Eight kinds, each with ``?`` for a field that may be null or missing:

========== =============================================================================================
``str``      text
``int``      a whole number; ``1.0`` and ``1e3`` are whole, ``1.5`` is not
``number``   a number, kept exact: ``int`` or ``Decimal``
``bool``     true or false; never a number, and no number is a bool
``datetime`` an instant: RFC 3339 text with an offset, or an aware ``datetime``; kept in UTC
``object``   a mapping with text keys
``list``     a list
``any``      anything but null
========== =============================================================================================
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, cast, get_args

from bide.core.shown import kind_of, shown_text, shown_value
from bide.errors import AnswerError, SettingError

Kind = Literal["str", "int", "number", "bool", "datetime", "object", "list", "any"]

KINDS: tuple[str, ...] = get_args(Kind)

_ALSO_CALLED = {
    "string": "str",
    "text": "str",
    "integer": "int",
    "float": "number",
    "decimal": "number",
    "double": "number",
    "boolean": "bool",
    "date": "datetime",
    "time": "datetime",
    "timestamp": "datetime",
    "dict": "object",
    "map": "object",
    "mapping": "object",
    "array": "list",
    "tuple": "list",
}

LONGEST_NUMBER = 4300
"""Most digits of a whole number: what Python reads and writes by default (``sys.get_int_max_str_digits``)."""


@dataclass(frozen=True, slots=True)
class FieldType:
    """A kind, and whether null or missing will do."""

    kind: Kind
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.kind}?" if self.optional else self.kind


def parse_field_type(text: object, setting: str = "type") -> FieldType:
    """Read a field type such as ``"str"`` or ``"number?"``.

    Raises ``SettingError`` under the name ``setting`` with the kinds there are, and the one probably meant.
    """
    if not isinstance(text, str):
        raise SettingError(
            setting, f'a field type is text such as "str" or "number?", not {shown_value(text)}'
        )
    kind = text.removesuffix("?")
    if kind in KINDS:
        return FieldType(cast("Kind", kind), optional=kind != text)
    meant = _ALSO_CALLED.get(kind.strip().lower().removesuffix("?"))
    advice = f'"{meant}"' if meant else f"one of {', '.join(KINDS)}"
    raise SettingError(
        setting,
        f'{shown_text(text, 40)} is no field type; use {advice}, with "?" if it may be null or missing',
    )


def convert(value: object, field_type: FieldType, where: str) -> Any:
    """``value`` as a ``field_type``: the Python value that stands for it, exact.

    ``where`` names the field in the ``AnswerError`` that is raised where it is something else.
    """
    if value is None:
        if field_type.optional:
            return None
        raise _unexpected(value, field_type, where)
    return _CONVERTERS[field_type.kind](value, field_type, where)


def as_object(value: object) -> Mapping[str, Any] | None:
    """``value`` as a mapping, if it is one, a dataclass instance or a model with ``model_dump`` (pydantic).

    None where it is none of these. Raises ``AnswerError`` where such a value cannot be taken apart.
    """
    if isinstance(value, Mapping):
        return value
    try:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        dump = getattr(value, "model_dump", None)
        dumped = dump() if callable(dump) else None
    except Exception as error:  # a user's code: its failure is the failure of this answer
        raise AnswerError("", f"{type(value).__name__} cannot be read as an object: {error}") from error
    return dumped if isinstance(dumped, Mapping) else None


_EXPECTED: dict[str, str] = {
    "int": "a whole number",
    "number": "a number",
    "bool": "true or false",
    "datetime": "a date and time with an offset, such as 2026-11-30T18:00:00Z",
    "object": "an object",
    "list": "a list",
    "str": "text",
    "any": "a value",
}

_ADVICE: dict[tuple[str, str], str] = {
    ("number", "str"): "declare it str, or take to_number(…) of it in select",
    ("int", "str"): "declare it str, or take to_number(…) of it in select",
    ("int", "number"): "declare it number",
    ("str", "number"): "declare it number, or take to_string(…) of it in select",
    ("bool", "str"): "declare it str",
    ("bool", "number"): "declare it number",
    ("datetime", "number"): "declare it number",
    ("datetime", "str"): "declare it str",
    ("datetime", "datetime"): "give it an offset (a tzinfo), or declare it str and return its isoformat()",
    ("object", "list"): "declare it list",
    ("list", "object"): "declare it object",
}


def _unexpected(value: object, field_type: FieldType, where: str, came: str | None = None) -> AnswerError:
    """The error for a ``value`` that is no ``field_type``: what was expected, what came, a next step."""
    expected = f"{field_type} ({_EXPECTED[field_type.kind]})"
    if value is None:
        advice: str | None = f'declare it "{field_type}?" if it may be null'
    else:
        advice = _ADVICE.get((field_type.kind, kind_of(value)))
    step = f"; {advice}" if advice else ""
    return AnswerError(where, f"expected {expected}, got {came or shown_value(value)}{step}")


# --- one converter for each kind ---------------------------------------------------------------------------


def _text(value: object, field_type: FieldType, where: str) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise _unexpected(value, field_type, where)


def _boolean(value: object, field_type: FieldType, where: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _unexpected(value, field_type, where)


def _number(value: object, field_type: FieldType, where: str) -> int | Decimal:
    if isinstance(value, bool):
        raise _unexpected(value, field_type, where)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal):
        number = value
    elif isinstance(value, float):
        number = Decimal(float.__repr__(value))
    else:
        raise _unexpected(value, field_type, where)
    if number.is_finite():
        return number
    raise AnswerError(where, f"got {shown_value(value)}, which is no finite number; use null for none")


def _whole(value: object, field_type: FieldType, where: str) -> int:
    number = _number(value, field_type, where)
    if isinstance(number, int):
        return number
    if number != number.to_integral_value():
        raise _unexpected(value, field_type, where)
    if number.adjusted() >= LONGEST_NUMBER:
        reason = f"a whole number of more than {LONGEST_NUMBER} digits"
        raise AnswerError(where, f"got {reason}; declare it number, which keeps it as it is written")
    return int(number)


def _object(value: object, field_type: FieldType, where: str) -> dict[str, Any]:
    mapping = as_object(value)
    if mapping is None:
        raise _unexpected(value, field_type, where)
    for key in mapping:
        if not isinstance(key, str):
            raise _unexpected(value, field_type, where, f"one whose key {shown_value(key)} is not text")
    return dict(mapping)


def _list(value: object, field_type: FieldType, where: str) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    raise _unexpected(value, field_type, where)


def _any(value: object, field_type: FieldType, where: str) -> object:
    return value


_INSTANT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?"
    r"(?P<offset>[Zz]|(?P<sign>[+-])(?P<hours>[01]\d|2[0-3]):(?P<minutes>[0-5]\d))?",
    re.ASCII,
)
"""RFC 3339, 5.6, but the offset may be missing, so that it can be said that it is."""


def _instant(value: object, field_type: FieldType, where: str) -> datetime:
    """An instant in UTC, to the microsecond: further digits are cut off."""
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise _unexpected(value, field_type, where, "one without an offset")
        return _in_utc(lambda: value, value, field_type, where)
    match = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _unexpected(value, field_type, where)
    if match["offset"] is None:
        raise _unexpected(value, field_type, where, f"{shown_value(value)}, which has no offset")
    return _in_utc(lambda: _moment(match), value, field_type, where)


def _moment(match: re.Match[str]) -> datetime:
    """The instant that was written. Raises ``ValueError`` or ``OverflowError`` where there is none."""
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    zone = UTC
    if match["sign"]:
        offset = timedelta(hours=int(match["hours"]), minutes=int(match["minutes"]))
        zone = timezone(-offset if match["sign"] == "-" else offset)
    micros = int((match[7] or "")[:6].ljust(6, "0"))
    leap = (
        second == 60
    )  # RFC 3339 has leap seconds, Python has not: it is the first moment of the next minute
    written = datetime(year, month, day, hour, minute, 59 if leap else second, micros, zone)
    return written + timedelta(seconds=1) if leap else written


def _in_utc(make: Callable[[], datetime], value: object, field_type: FieldType, where: str) -> datetime:
    try:
        return make().astimezone(UTC)
    except (ValueError, OverflowError):
        raise _unexpected(value, field_type, where, f"{shown_value(value)}, which is no instant") from None


_CONVERTERS: dict[Kind, Callable[[object, FieldType, str], Any]] = {
    "str": _text,
    "int": _whole,
    "number": _number,
    "bool": _boolean,
    "datetime": _instant,
    "object": _object,
    "list": _list,
    "any": _any,
}
