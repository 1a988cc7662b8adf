"""Answers of every kind as acceptors look at them: a status, header fields, a text, and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from bide.core.canonical import canonical, read_json
from bide.core.http import Headers, Response
from bide.errors import AnswerError

_NO_HEADERS = Headers()


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended: its exit ``status`` (128 and the signal's number where one ended it) and its ``output``.

    ``errors`` is the end of what it wrote on standard error.
    """

    status: int
    output: bytes
    errors: str = ""

    def __repr__(self) -> str:
        return f"CommandResult({self.status}, {len(self.output)} bytes)"


class Kind(Enum):
    """Where an answer came from."""

    HTTP = "http"
    COMMAND = "command"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer. ``value`` is what a probe answered that is neither a response nor of a command."""

    kind: Kind
    status: int | None = None
    headers: Headers = _NO_HEADERS
    body: bytes | None = None
    value: Any = None

    def json(self) -> Any:
        """The JSON of it, numbers exact. Raises ``AnswerError`` for what is none."""
        return read_json(canonical(self.value) if self.body is None else self.body)

    def text(self) -> str:
        """The text of it; bytes that are no UTF-8 are replaced."""
        if self.body is not None:
            return self.body.decode("utf-8", "replace")
        if isinstance(self.value, str):
            return self.value
        try:
            return canonical(self.value)
        except AnswerError:
            return str(self.value)


def seen(answer: object) -> Seen:
    """``answer`` as it is looked at: a response by its parts, whichever client it is of, and all else as a value."""
    match answer:
        case Response():
            return Seen(Kind.HTTP, answer.status, answer.headers, answer.body)
        case CommandResult():
            return Seen(Kind.COMMAND, answer.status, body=answer.output)
    status, body = getattr(answer, "status_code", None), getattr(answer, "content", None)
    if isinstance(status, int) and isinstance(body, bytes):
        return Seen(Kind.HTTP, int(status), Headers(dict(getattr(answer, "headers", ())).items()), body)
    return Seen(Kind.VALUE, value=answer)
