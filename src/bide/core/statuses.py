"""Statuses as people name them: ``200``, ``"2xx"``, ``"200-204"``, or several of these."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bide.core.shown import shown_value
from bide.errors import SettingError

MOST = 999
_CLASS = re.compile(r"([0-9])xx", re.IGNORECASE)
_RANGE = re.compile(r"([0-9]{1,3})(?:\s*-\s*([0-9]{1,3}))?")
_RIGHT = 'write for example 200, "2xx" or "200-204"'


@dataclass(frozen=True, slots=True)
class Statuses:
    """Ranges of statuses, each from its first to its last, and their ``text`` as people read it."""

    ranges: tuple[tuple[int, int], ...]
    text: str

    def __contains__(self, status: object) -> bool:
        return isinstance(status, int) and any(first <= status <= last for first, last in self.ranges)

    def outside(self, least: int, most: int) -> bool:
        """Whether any of them lies beyond these bounds."""
        return any(first < least or last > most for first, last in self.ranges)

    def __str__(self) -> str:
        return self.text


def statuses(value: object, setting: str) -> Statuses:
    """The statuses that ``value`` names. Raises :class:`~bide.errors.SettingError` for what names none."""
    match value:
        case Statuses():
            return value
        case str():
            found = [_read(word.strip(), value, setting) for word in value.split(",")]
        case int() if not isinstance(value, bool) and 0 <= value <= MOST:
            found = [Statuses(((value, value),), str(value))]
        case list() | tuple() if value:
            found = [statuses(item, setting) for item in value]
        case _:
            raise SettingError(setting, f"{shown_value(value)} is not a status; {_RIGHT}")
    return _together(found)


def _read(word: str, whole: str, setting: str) -> Statuses:
    if found := _CLASS.fullmatch(word):
        first = int(found[1]) * 100
        return Statuses(((first, first + 99),), f"{found[1]}xx")
    if found := _RANGE.fullmatch(word):
        first, last = int(found[1]), int(found[2] or found[1])
        if first <= last:
            return Statuses(((first, last),), str(first) if first == last else f"{first}-{last}")
        raise SettingError(setting, f"{word} ends before it begins; {_RIGHT}")
    raise SettingError(setting, f"{shown_value(whole)} is not a status; {_RIGHT}")


def _together(found: Sequence[Statuses]) -> Statuses:
    ranges = tuple(each for one in found for each in one.ranges)
    return Statuses(ranges, " or ".join(dict.fromkeys(one.text for one in found)))
