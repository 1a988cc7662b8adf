"""Requests and responses of outside APIs as plain values, so that deciding about them needs no client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

READS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing on the other side, so that asking once more is safe (RFC 9110, 9.2.1)."""


class Headers:
    """Header fields of a response: names are matched without regard to case, repeated ones are all kept."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        self._fields = kept = dict[str, list[str]]()
        for given, value in fields:
            name = given.lower()
            if name in kept:
                kept[name].append(value)
            else:
                kept[name] = [value]

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._fields

    def get(self, name: str) -> str | None:
        """The first value of ``name``, or None."""
        values = self._fields.get(name.lower())
        return values[0] if values else None

    def all(self, name: str) -> list[str]:
        """Every value of ``name`` in the order they came; empty where there is none."""
        return list(self._fields.get(name.lower(), ()))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((name, value) for name, values in self._fields.items() for value in values)

    def __repr__(self) -> str:
        return f"Headers({list(self._fields)})"  # names only: values may be secrets


@dataclass(frozen=True, slots=True)
class Request:
    """One request, ready to send: an absolute ``url``, and the header fields as pairs."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None

    def __repr__(self) -> str:
        return f"Request({self.method} {shown_url(self.url)})"


@dataclass(frozen=True, slots=True)
class Response:
    """What came back: ``body`` is decoded (content coding undone) and whole.

    ``url`` is where the last hop went, query and all; ``hops`` are the statuses of the redirects that led there.
    """

    status: int
    headers: Headers
    body: bytes
    url: str
    hops: tuple[int, ...] = ()

    def json(self) -> Any:
        """The body read as JSON: exact numbers, nothing given twice. Raises ``AnswerError`` for whatever is not."""
        from bide.core.canonical import read_json  # only a caller that reads it needs the reader loaded

        return read_json(self.body)

    def __repr__(self) -> str:
        return f"Response({self.status} {shown_url(self.url)}, {len(self.body)} bytes)"


def shown_url(url: str) -> str:
    """``url`` as it may be shown in logs and errors: no user, no password, no query, no fragment."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url.split("?", 1)[0].split("#", 1)[0]
    rest = rest.split("?", 1)[0].split("#", 1)[0]
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"
