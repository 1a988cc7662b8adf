"""Acceptors as they are declared: conditions, statuses and tables of parts, in a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bide.config.answers import expression
from bide.config.report import Place
from bide.config.shape import Reading, kind_of, read_entries, read_table, step_of
from bide.core.acceptors import PARTS, Acceptor, pattern, wanted_header
from bide.core.statuses import Statuses, statuses
from bide.errors import SettingError

Bounds = tuple[int, int, str]
"""The least and the greatest status, and what it is one of."""

HTTP_STATUSES: Bounds = (100, 599, "an HTTP status")
COMMAND_STATUSES: Bounds = (0, 255, "an exit status")


def acceptors(bounds: Bounds) -> Reading[tuple[Acceptor, ...]]:
    """A reading of a list of acceptors, or of one alone."""

    def read(place: Place, value: object) -> tuple[Acceptor, ...] | None:
        if isinstance(value, list | tuple):
            found = [_acceptor(place.item(index), item, bounds) for index, item in enumerate(value)]
        elif isinstance(value, str | int | Mapping):
            found = [_acceptor(place, value, bounds)]
        else:
            place.refuse(
                f"must be a list of acceptors, not {kind_of(value)}",
                """Write it as in ["state == 'done'"].""",
            )
            return None
        return tuple(acceptor for acceptor in found if acceptor is not None)

    return read


def _acceptor(place: Place, value: object, bounds: Bounds) -> Acceptor | None:
    """One acceptor: a table of parts, a condition as text, or a status as a number."""
    if isinstance(value, str):
        condition = expression(place, value)
        return Acceptor(condition=condition) if condition is not None else None
    if isinstance(value, int) and not isinstance(value, bool):
        status = _status(bounds)(place, value)
        return Acceptor(status=status) if status is not None else None
    table = read_table(place, value, PARTS)
    if table is None:
        return None
    parts: dict[str, Any] = {
        "status": table.find("status", _status(bounds)),
        "header": table.find("header", _header(bounds)),
        "condition": table.find("condition", expression),
        "output": table.find("output", _output),
    }
    if all(part not in table for part in PARTS):
        if not table.entries:
            place.refuse("names no part of an answer", f"Give one of {', '.join(PARTS)}.")
        return None
    if any(parts[part] is None for part in PARTS if part in table):
        return None
    return Acceptor(**parts)


def _status(bounds: Bounds) -> Callable[[Place, object], Statuses | None]:
    least, most, what = bounds

    def read(place: Place, value: object) -> Statuses | None:
        try:
            found = statuses(value, place.path)
        except SettingError as error:
            place.refuse(error.reason.partition("; ")[0], step_of(error))
            return None
        if found.outside(least, most):
            place.refuse(f"{found} is not {what}", f"They are from {least} to {most}.")
            return None
        return found

    return read


def _header(bounds: Bounds) -> Reading[dict[str, str | bool]]:
    def read(place: Place, value: object) -> dict[str, str | bool] | None:
        if bounds is COMMAND_STATUSES:
            place.refuse_key("is for an address, and a command answers no header", "Remove header.")
            return None
        entries = read_entries(place, value)
        if entries is None:
            return None
        found: dict[str, str | bool] = {}
        for name, text in entries.items():
            try:
                found |= wanted_header({name: text}, place.path)
            except SettingError as error:
                place.at(name).refuse(error.reason, 'Write its text, or true: { X-State = "ready" }.')
        if not entries:
            place.refuse("names no header", 'Name one, as in { X-State = "ready" }.')
        return found if len(found) == len(entries) and found else None

    return read


def _output(place: Place, value: object) -> str | None:
    try:
        return pattern(value, place.path).pattern
    except SettingError as error:
        place.refuse(
            error.reason.partition("; ")[0], step_of(error) or "Mend it, or write \\ before what it means."
        )
        return None
