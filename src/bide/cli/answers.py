"""What came of an attempt, in a few words: the status, and what was looked at of the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bide.core.acceptors import Acceptors
from bide.core.canonical import canonical
from bide.core.seen import CommandResult, Kind, Seen, seen
from bide.core.selection import Selection, parsed
from bide.errors import AnswerError, CallError

_MOST = 300
"""Characters that are told of an answer; a line of a terminal holds less."""

_LOOKED_THROUGH = 64 * 1024
"""Bytes of an answer that are looked through for its first or last line."""


class Teller:
    """Tells attempts of one wait. ``hide`` takes secrets out of what is told.

    Of JSON, the fields that the conditions of ``acceptors`` name are told, if any is there; else its beginning.
    """

    def __init__(self, acceptors: Acceptors, hide: Callable[[str], str]) -> None:
        self._hide = hide
        every = (*acceptors.success, *acceptors.failure, *acceptors.retry)
        names = [name for one in every if one.condition is not None for name in _fields(one.condition)]
        self._fields = [(name, Selection(name)) for name in dict.fromkeys(names)]

    def error(self, error: BaseException) -> str:
        """Why there is no answer."""
        text = str(error)
        if isinstance(error, CallError):  # the address is the same each time, and known
            text = text.partition(": ")[2] or text
        return self._line(text)

    def value(self, value: object) -> str:
        """An answer: its status and what was looked at of it."""
        answer = seen(value)
        said = self._said(answer)
        if isinstance(value, CommandResult):
            said = said or _last_line(value.errors)
            return self._line(f"exit status {value.status}" + (f": {said}" if said else ""))
        return self._line(f"{answer.status} {said}")

    def _said(self, answer: Seen) -> str:
        try:
            content = answer.json()
        except AnswerError:
            text = (answer.body or b"")[-_LOOKED_THROUGH:].decode("utf-8", "replace")
            return _last_line(text) if answer.kind is Kind.COMMAND else " ".join(text[:_MOST].split())
        named = {name: value for name, field in self._fields if (value := _of(field, content)) is not None}
        if named:
            return " ".join(f"{name}={canonical(value)}" for name, value in named.items())
        return canonical(content)[:_MOST]

    def _line(self, text: str) -> str:
        text = " ".join(self._hide(text).split())
        return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip()[:_MOST] if lines else ""


def _of(field: Selection, content: object) -> Any:
    try:
        return field.of(content)
    except AnswerError:
        return None


def _fields(condition: Selection) -> Iterator[str]:
    """Paths such as ``status.phase`` that ``condition`` begins with, as they would be written."""
    pending = [parsed(condition.expression)]
    while pending:
        node = pending.pop(0)
        path = _path(node)
        if path is not None:
            yield path
        elif node["type"] in ("comparator", "and_expression", "or_expression", "not_expression"):
            pending = [*node["children"], *pending]


def _path(node: Any) -> str | None:
    if node["type"] == "field":
        name = str(node["value"])
        return name if name.isidentifier() and name.isascii() else None
    if node["type"] == "subexpression":
        steps = [_path(child) for child in node["children"]]
        return None if None in steps else ".".join(step for step in steps if step is not None)
    return None
