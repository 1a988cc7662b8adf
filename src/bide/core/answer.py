"""Reading an answer: from the bytes of a response, or from what a function returned, to the declared fields.

Three steps, each its own: bytes to text (``text_of``), text to a value (JSON), value to fields (``Reader``).
Another way to read an answer is another middle step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bide.core.canonical import read_json
from bide.core.fields import FieldType, as_object, convert
from bide.core.http import Headers
from bide.core.shown import shown_names, shown_text, shown_value
from bide.errors import AnswerError, SettingError

if TYPE_CHECKING:
    from bide.core.selection import Selection


class Reader:
    """Reads the declared ``fields`` out of answers.

    ``select`` gives a JMESPath expression for a field's place in the answer; a field without one is the member
    of the same name. Raises ``SettingError``, under ``select.<field>``, for a bad expression or one for a field
    that is not declared.
    """

    __slots__ = ("_places",)

    def __init__(self, fields: Mapping[str, FieldType], select: Mapping[str, str] | None = None) -> None:
        selections = _selections(select, fields) if select else {}
        self._places = tuple((name, kind, selections.get(name)) for name, kind in fields.items())

    def read(self, body: bytes, headers: Headers) -> dict[str, Any]:
        """The declared fields of a response, in the order of their declaration.

        ``body`` is whole and its content coding undone. Raises ``AnswerError`` for a body that is empty, not
        text, not JSON (saying what came), or not what was declared (naming the field).
        """
        text = text_of(body, headers)
        if not text.strip():
            raise AnswerError("", f"the body is empty ({_media_type(headers)}); expected JSON")
        try:
            value = read_json(text)
        except AnswerError as error:
            raise _not_json(text, headers, error) from None
        return self._fields(value)

    def read_value(self, value: object) -> dict[str, Any]:
        """The declared fields of what a function answered: a mapping, a dataclass or a model (``model_dump``).

        Raises ``AnswerError`` for anything else, and where a field is not what was declared.
        """
        members = as_object(value)
        if members is None:
            came = shown_value(value)
            raise AnswerError("", f"expected a mapping, a dataclass or a model from the function, got {came}")
        return self._fields(dict(members))

    def _fields(self, value: object) -> dict[str, Any]:
        return {name: _field(value, name, kind, selection) for name, kind, selection in self._places}


def _selections(select: Mapping[str, str], fields: Mapping[str, FieldType]) -> dict[str, Selection]:
    from bide.core.selection import Selection  # loaded only where it is used: it costs each start 10 ms

    for name in select:
        if name not in fields:
            raise SettingError(
                f"select.{name}", f"the answer declares no field {name}; it has {shown_names(fields)}"
            )
    return {name: Selection(expression, f"select.{name}") for name, expression in select.items()}


def _field(value: object, name: str, field_type: FieldType, selection: Selection | None) -> Any:
    """One field of ``value``, converted. Null and missing are the same, but not in the error that says so."""
    if selection is not None:
        return _selected(value, name, field_type, selection)
    if not isinstance(value, dict):
        raise AnswerError(name, f"expected an object with this field, got {shown_value(value)}")
    if name not in value and not field_type.optional:
        came = f"it has {shown_names(value)}" if value else "it is empty"
        step = f'declare it "{field_type}?" if it may be missing'
        raise AnswerError(name, f"expected {field_type}, but the answer has no such field; {came}; {step}")
    return convert(value.get(name), field_type, name)


def _selected(value: object, name: str, field_type: FieldType, selection: Selection) -> Any:
    expression = shown_text(selection.expression, 80)
    try:
        found = selection.of(value)
    except AnswerError as error:
        raise AnswerError(name, error.reason) from None
    if found is None and not field_type.optional:
        step = f'declare it "{field_type}?" if it may be missing'
        raise AnswerError(name, f"expected {field_type}, but {expression} selects nothing; {step}")
    try:
        return convert(found, field_type, name)
    except AnswerError as error:
        raise AnswerError(name, f"{error.reason} (selected by {expression})") from None


# --- bytes to text -----------------------------------------------------------------------------------------

_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
"""Byte order marks; the longer ones first, where one begins like another."""

_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)

_CODECS = {
    "utf16": "utf-16-le",
    "utf16le": "utf-16-le",
    "utf16be": "utf-16-be",
    "iso88591": "cp1252",
    "latin1": "cp1252",
    "l1": "cp1252",
    "iso88599": "cp1254",
    "iso885911": "cp874",
    **{f"iso8859{part}": f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **{f"windows125{page}": f"cp125{page}" for page in range(9)},
    **{f"cp125{page}": f"cp125{page}" for page in range(9)},
    "windows874": "cp874",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "macintosh": "mac-roman",
    "shiftjis": "cp932",
    "sjis": "cp932",
    "windows31j": "cp932",
    "eucjp": "euc-jp",
    "iso2022jp": "iso2022-jp",
    "euckr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "gb18030": "gb18030",
    "big5": "big5",
}
"""Charset names without their punctuation, and Python's codec for what the WHATWG Encoding Standard means by
them. ASCII is read as UTF-8, which it is. No other name is looked up: Python has codecs that are no character
encodings, and remembers each unknown name for ever."""


def text_of(body: bytes, headers: Headers) -> str:
    """``body`` as text, without a byte order mark.

    The encoding is told by the byte order mark, else by the ``charset`` of Content-Type, else it is UTF-8, as where
    the charset is unknown (the order of the WHATWG Encoding Standard; JSON itself is UTF-8, RFC 8259, 8.1).
    Raises ``AnswerError`` for a byte that the encoding does not have: nothing is replaced or left out.
    """
    for mark, codec in _MARKS:
        if body.startswith(mark):
            return _decoded(body[len(mark) :], codec)
    return _decoded(body, _declared_codec(headers))


def _declared_codec(headers: Headers) -> str:
    match = _CHARSET.search(headers.get("Content-Type") or "")
    if match is None:
        return "utf-8"
    return _CODECS.get(re.sub(r"[^a-z0-9]", "", match[1].lower()), "utf-8")


def _decoded(data: bytes, codec: str) -> str:
    try:
        return data.decode(codec)
    except UnicodeDecodeError as error:
        reason = f"the body is not {codec}: {error.reason} at byte {error.start}"
        raise AnswerError("", reason) from None


# --- what came instead -------------------------------------------------------------------------------------


def _media_type(headers: Headers) -> str:
    declared = (headers.get("Content-Type") or "").partition(";")[0].strip().lower()
    return declared[:80] or "no content type"


def _not_json(text: str, headers: Headers, error: AnswerError) -> AnswerError:
    """``error``, or where something else came than JSON, what it was: its type and first words."""
    start = text.lstrip()[:400]
    media_type = _media_type(headers)
    if start.startswith(("{", "[")) or (media_type.endswith("json") and not start.startswith("<")):
        return error
    words = shown_text(" ".join(start.split()), 80)
    return AnswerError("", f"expected JSON, got {media_type} that begins {words}")
