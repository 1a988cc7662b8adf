"""Rows of texts as functions take and answer them: one string for many, since each string of a reply costs.

A row is the lengths of its fields, four bytes each and all ones for a field that there is not, and then the fields.
Nothing is escaped, so that every byte comes back as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from struct import Struct

from bide.errors import ProviderError

NOTHING = 0xFFFFFFFF
"""The length of a field that there is not."""

Row = list[bytes | None]


def packed(row: Sequence[bytes | None]) -> bytes:
    """One row."""
    if None in row:
        lengths = [NOTHING if field is None else len(field) for field in row]
        return _lengths(len(row)).pack(*lengths) + b"".join([field for field in row if field is not None])
    return _lengths(len(row)).pack(*map(len, row)) + b"".join(row)  # type: ignore[arg-type]  # None is not in it


def all_packed(rows: Iterable[Sequence[bytes | None]]) -> bytes:
    """Many rows."""
    return b"".join(map(packed, rows))


def texts(given: Iterable[str]) -> bytes:
    """Rows of one text each. Raises ``ProviderError`` for what cannot be stored."""
    return all_packed([(stored(text),) for text in given])


def unpacked(blob: bytes, width: int) -> Iterator[Row]:
    """The rows of ``width`` fields that ``blob`` is."""
    lengths_at = _lengths(width).unpack_from
    at = 0
    while at < len(blob):
        row: Row = []
        lengths = lengths_at(blob, at)
        at += 4 * width
        for length in lengths:
            if length == NOTHING:
                row.append(None)
            else:
                row.append(blob[at : at + length])
                at += length
        yield row


def names_of(blob: bytes) -> list[str]:
    """The texts of rows of one field each, in order."""
    return sorted(shown(row[0] or b"") for row in unpacked(blob, 1))


def stored(text: str) -> bytes:
    """``text`` as it is kept. Raises ``ProviderError`` for lone surrogates, which no store takes."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ProviderError(f"text with a lone surrogate cannot be stored ({error})") from error


def stored_if_any(text: str | None) -> bytes | None:
    """As :func:`stored`, where there is one."""
    return None if text is None else stored(text)


def number(value: int) -> bytes:
    """A whole number as it is kept."""
    return b"%d" % value


def shown(kept: bytes) -> str:
    """A kept text as well as it can be read."""
    return kept.decode(errors="replace")


def shown_if_any(kept: bytes | None) -> str | None:
    """As :func:`shown`, where there is one."""
    return None if kept is None else shown(kept)


def int_if_any(kept: bytes | None) -> int | None:
    """A kept number, where there is one."""
    return None if kept is None else int(kept)


@cache
def _lengths(width: int) -> Struct:
    return Struct(f">{width}I")
