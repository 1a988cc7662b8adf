"""JSON read exactly and written in one canonical form, so that equal values have equal texts and digests.

The canonical form is that of RFC 8785 (no white space, members sorted by the UTF-16 code units of their
names, the same escapes) except for numbers, which are not rounded to doubles but kept as exact decimals. One
value has one text: ``1``, ``1.0`` and ``10e-1`` are ``1``, and ``-0`` is ``0``. A number that would need more
than 100 zeros to be written in full is written as ``1.5e+400`` instead. An instant is RFC 3339 text in UTC.

What cannot be kept exactly is refused with an ``AnswerError``: NaN and infinities, names given twice, half of
a surrogate pair, more than 128 levels, whole numbers of more than 4300 digits.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any, NoReturn

from bide.core.fields import LONGEST_NUMBER, as_object
from bide.core.shown import shown_text, shown_value
from bide.errors import AnswerError

DEEPEST = 128
"""Most levels of lists and objects within each other."""

_MOST_ZEROS = 100
"""Most zeros that only hold a place in a number written in full. Enough for any 256-bit integer."""


# --- reading -----------------------------------------------------------------------------------------------


def read_json(data: bytes | str) -> Any:
    """The value of a JSON text: whole numbers as ``int``, others as ``Decimal``, nothing rounded.

    Bytes are UTF-8, with or without a byte order mark. Raises ``AnswerError`` for whatever is not JSON
    (RFC 8259) and for what the canonical form refuses.
    """
    text = _decoded(data) if isinstance(data, bytes) else _checked(data)
    if _depth(text) > DEEPEST:
        raise AnswerError("", f"JSON nested deeper than {DEEPEST} levels")
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise AnswerError("", f"not JSON: {error.msg} (line {error.lineno} column {error.colno})") from None
    except ValueError:  # what int() says of too many digits
        raise _too_long() from None
    if _HALF_ESCAPE.search(text):
        _refuse_halves(value)
    return value


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AnswerError("", f"not UTF-8: {error.reason} at byte {error.start}") from None


_KEPT = b'"[]{}'
_NOT_KEPT = bytes(byte for byte in range(256) if byte not in _KEPT)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def _depth(text: str) -> int:
    """How deep lists and objects lie in each other: known before a parser recurses into them.

    Exact for JSON; other text gets some number. Texts with few brackets are not looked through.
    """
    most = text.count("[") + text.count("{")
    if most <= DEEPEST:
        return most
    data = text.encode("utf-8", "surrogatepass").replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(data.translate(None, delete=_NOT_KEPT).split(b'"')[::2])
    steps = memoryview(outside_strings.translate(_STEPS)).cast("b")  # signed: +1 opens, -1 closes
    return max(accumulate(steps), default=0)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
    raise AnswerError("", f"the name {shown_text(twice, 40)} stands twice in one JSON object")


def _decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if number.is_finite():
        return number
    raise AnswerError("", f"the exponent of the number {shown_text(text, 40)} is too large")


def _constant(word: str) -> NoReturn:
    raise AnswerError("", f"{word} is no JSON number; use null for none")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_decimal, parse_constant=_constant)

_HALF_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")


def _refuse_halves(value: object) -> None:
    match value:
        case str():
            _checked(value)
        case dict():
            for name, member in value.items():
                _refuse_halves(name)
                _refuse_halves(member)
        case list():
            for element in value:
                _refuse_halves(element)
        case _:
            return


def _checked(text: str) -> str:
    """``text``, unless it holds half of a surrogate pair, which is no character and has no UTF-8."""
    if not text.isascii() and (half := _HALF.search(text)):
        around = shown_text(text[max(half.start() - 10, 0) :], 20)
        raise AnswerError("", f"text holds half of a surrogate pair: {around}")
    return text


# --- writing -----------------------------------------------------------------------------------------------


def canonical(value: object, *, within: int = 0) -> str:
    """``value`` in canonical form; equal values have equal texts, different ones different texts.

    Takes what :func:`read_json` gives, and from Python functions also floats (each as the decimal that Python
    shows for it), aware datetimes, tuples, mappings, dataclasses and models. Raises ``AnswerError`` for
    anything else, with the place in ``value``. ``within``: levels of other JSON that will lie around it.
    """
    return _written(value, 1 + within)


def _written(value: object, depth: int) -> str:
    write = _WRITERS.get(type(value)) or _writer_of(value)
    return write(value, depth)


def _write_object(members: Mapping[Any, object], depth: int) -> str:
    _check_depth(depth)
    try:
        plain = "".join(members).isascii()
    except TypeError:
        odd = next(name for name in members if not isinstance(name, str))
        raise AnswerError("", f"the names in an object are text, not {shown_value(odd)}") from None
    name = ""
    written = []
    try:
        for name in sorted(members) if plain else sorted(members, key=_utf16):
            written.append(f"{_write_text(name)}:{_written(members[name], depth + 1)}")
    except AnswerError as error:
        raise _within(name, error) from None
    return "{" + ",".join(written) + "}"


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _write_list(elements: Iterable[object], depth: int) -> str:
    _check_depth(depth)
    written: list[str] = []
    try:
        written.extend(_written(element, depth + 1) for element in elements)
    except AnswerError as error:
        raise _within(f"[{len(written)}]", error) from None
    return "[" + ",".join(written) + "]"


def _within(step: str, error: AnswerError) -> AnswerError:
    """``error`` with its place seen from one level further out; the outer end of a long place is kept."""
    dot = "." if error.where and error.where[0] != "[" else ""
    return AnswerError(f"{step[:40]}{dot}{error.where}"[:120], error.reason)


def _write_text(value: str, depth: int = 0) -> str:
    return encode_basestring(_checked(value))


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise AnswerError("", f"nested deeper than {DEEPEST} levels")


def _write_int(value: int, depth: int) -> str:
    try:
        text = int.__repr__(value)
    except ValueError:
        raise _too_long() from None
    return text if len(text) <= _MOST_ZEROS else _number(text)


def _write_decimal(value: Decimal, depth: int) -> str:
    if value.is_finite():
        return _number(Decimal.__str__(value))
    raise _not_finite(value)


def _write_float(value: float, depth: int) -> str:
    if math.isfinite(value):
        return _number(float.__repr__(value))
    raise _not_finite(value)


def _not_finite(value: float | Decimal) -> AnswerError:
    return AnswerError("", f"got {shown_value(value)}, which is no finite number; use null for none")


def _number(text: str) -> str:
    """The canonical form of a finite number in Python's notation.

    Done on its digits, because arithmetic with ``Decimal`` rounds to the precision of a context.
    """
    mantissa, _, exponent = text.upper().removeprefix("-").partition("E")
    whole, _, fraction = mantissa.partition(".")
    padded = (whole + fraction).lstrip("0")
    digits = padded.rstrip("0")
    if not digits:
        return "0"
    sign = "-" if text[0] == "-" else ""
    zeros = int(exponent or 0) - len(fraction) + len(padded) - len(digits)
    point = len(digits) + zeros  # the value is 0.digits × 10^point, and digits × 10^zeros
    if zeros > _MOST_ZEROS or point < -_MOST_ZEROS:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{point - 1:+d}"
    if zeros >= 0:
        if point > LONGEST_NUMBER:
            raise _too_long()
        return f"{sign}{digits}{'0' * zeros}"
    if point > 0:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    return f"{sign}0.{'0' * -point}{digits}"


def _too_long() -> AnswerError:
    return AnswerError("", f"a whole number of more than {LONGEST_NUMBER} digits cannot be kept")


def _write_instant(value: datetime, depth: int) -> str:
    if value.utcoffset() is None:
        raise AnswerError("", "got a datetime without an offset; give it a tzinfo, or return its isoformat()")
    try:
        return f'"{value.astimezone(UTC).isoformat()[:-6]}Z"'
    except OverflowError:
        raise AnswerError("", f"the instant {value} is out of range in UTC") from None


_WRITERS: dict[type, Callable[[Any, int], str]] = {
    str: _write_text,
    bool: lambda value, depth: "true" if value else "false",
    type(None): lambda value, depth: "null",
    int: _write_int,
    float: _write_float,
    Decimal: _write_decimal,
    datetime: _write_instant,
    dict: _write_object,
    list: _write_list,
    tuple: _write_list,
}


def _writer_of(value: object) -> Callable[[Any, int], str]:
    """The writer for a value of a derived type, or of one that can be read as an object."""
    for base, write in _WRITERS.items():
        if isinstance(value, base):
            return write
    members = as_object(value)
    if members is None:
        raise AnswerError("", f"a value of the Python type {type(value).__name__} has no JSON form")
    return lambda value, depth: _write_object(members, depth)
