"""An event's payload on one line."""

from __future__ import annotations

from typing import Any

from bide.cli.outside import safe_line
from bide.core.change import canonical, read_json
from bide.errors import AnswerError


def compact(payload: str, previous: str | None = None) -> str:
    """``"price 101.25 → 101.3, symbol OAK"``: each field, and what it was where ``previous`` says otherwise.

    Numbers are shown exactly as they are kept. A payload that is no JSON object is shown as it is. It is one
    line, with whatever else would move a terminal's cursor escaped.
    """
    new, old = _fields(payload), _fields(previous) if previous is not None else None
    if new is None:
        return safe_line(payload)
    return safe_line(", ".join(_field(name, value, old or {}) for name, value in new.items()))


def _field(name: str, value: Any, old: dict[str, Any]) -> str:
    if name not in old or old[name] == value:
        return f"{name} {_shown(value)}"
    return f"{name} {_shown(old[name])} → {_shown(value)}"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else canonical(value)


def _fields(payload: str) -> dict[str, Any] | None:
    try:
        value = read_json(payload)
    except AnswerError:
        return None
    return value if isinstance(value, dict) else None
