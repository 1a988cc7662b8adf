"""Tables, and how the values in them are read.

A *reading* takes a place and a value and answers what the value means, or reports what is wrong with it and
answers None. Readings are made from smaller ones, so that a block is a list of keys with a reading for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TypeVar

from bide.config.report import Place, nearest_or_known
from bide.core.declaration import Twice
from bide.core.durations import parse_duration
from bide.core.names import NAME_RULE, is_name
from bide.core.template import Template
from bide.errors import SettingError

T = TypeVar("T")
Reading = Callable[[Place, object], T | None]

_BAD_VARIABLE = re.compile(r"\$\{(?![A-Za-z_][A-Za-z0-9_]*\})")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Table:
    """One table of the declaration: keys that are not known were reported when it was made."""

    def __init__(self, place: Place, entries: Mapping[str, object]) -> None:
        self.place = place
        self.entries = entries

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def find(self, key: str, reading: Reading[T]) -> T | None:
        """What ``key`` means; None where it is left out, or wrong (reported)."""
        return reading(self.place.at(key), self.entries[key]) if key in self.entries else None

    def read(self, key: str, reading: Reading[T], default: T) -> T:
        """What ``key`` means; ``default`` where it is left out, or wrong (reported)."""
        value = self.find(key, reading)
        return default if value is None else value

    def need(self, key: str, reading: Reading[T], example: str) -> T | None:
        """As ``find``, but a key left out is a mistake; ``example`` is a line that would be right."""
        if key not in self.entries:
            self.place.at(key).refuse_key("is missing", f"Add {example}.")
            return None
        return self.find(key, reading)

    def exactly_one(self, keys: Collection[str], example: str) -> str | None:
        """The one of ``keys`` that is here; none or several are a mistake at this table."""
        present = [key for key in keys if key in self.entries]
        if len(present) == 1:
            return present[0]
        listed = f"{', '.join(list(keys)[:-1])} or {list(keys)[-1]}"
        if not present:
            self.place.refuse_key(f"needs exactly one of {listed}, and has none", f"Add {example}.")
        else:
            self.place.refuse_key(
                f"needs exactly one of {listed}, and has {' and '.join(present)}",
                f"Keep one of them and remove the other{'s' if len(present) > 2 else ''}.",
            )
        return None


def read_table(place: Place, value: object, known: Collection[str]) -> Table | None:
    """A table that may have the ``known`` keys and no others."""
    entries = read_entries(place, value)
    if entries is None:
        return None
    for key in entries:
        if key not in known:
            place.at(key).refuse_key("is not known here", nearest_or_known(key, known))
    return Table(place, entries)


def read_entries(place: Place, value: object) -> dict[str, object] | None:
    """A table with whatever keys, as long as they are text; each entry given once."""
    if not isinstance(value, Mapping):
        place.refuse(f"must be a table, not {kind_of(value)}", "Write it as a block of keys and values.")
        return None
    entries: dict[str, object] = {}
    for key, entry in value.items():
        if not isinstance(key, str):
            place.at(key).refuse_key(f"is {kind_of(key)} where a name belongs", "Use text for names.")
            continue
        if isinstance(entry, Twice):
            place.at(key).refuse_key("is declared more than once", "Give each its own name.")
        entries[key] = entry.first if isinstance(entry, Twice) else entry
    return entries


def named_entries(parent: Table, key: str, kind: str) -> Iterator[tuple[str, Place, object]]:
    """The entries of the table at ``key``, each under a name: its name, place and value."""
    if key not in parent:
        return
    place = parent.place.at(key)
    for name, value in (read_entries(place, parent.entries[key]) or {}).items():
        check_name(place.at(name), name, kind)
        yield name, place.at(name), value


def check_name(place: Place, name: str, kind: str) -> None:
    """Report a name that no ``kind`` can have."""
    if not is_name(name):
        place.refuse_key(
            f"{name!r} cannot be the name of {kind}",
            f"Use {NAME_RULE}.",
        )


# --- single values -----------------------------------------------------------------------------------------


def text(place: Place, value: object) -> str | None:
    """Text that is not empty."""
    if not isinstance(value, str):
        place.refuse(f"must be text, not {kind_of(value)}", "Write it in quotes.")
        return None
    if not value.strip():
        place.refuse("is empty", "Fill it in, or leave the key out.")
        return None
    return value


def flag(place: Place, value: object) -> bool | None:
    """``true`` or ``false``."""
    if isinstance(value, bool):
        return value
    place.refuse(f"must be true or false, not {kind_of(value)}", "Write true or false, without quotes.")
    return None


def whole(minimum: int) -> Reading[int]:
    """A whole number of at least ``minimum``."""

    def read(place: Place, value: object) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool) and value >= minimum:
            return value
        place.refuse(
            f"must be a whole number of at least {minimum}, not {kind_of(value)}", f"Write {minimum} or more."
        )
        return None

    return read


def duration(place: Place, value: object) -> timedelta | None:
    """A duration longer than nothing."""
    return _duration(place, value, zero=False)


def duration_or_zero(place: Place, value: object) -> timedelta | None:
    """A duration that may be 0."""
    return _duration(place, value, zero=True)


def _duration(place: Place, value: object, *, zero: bool) -> timedelta | None:
    try:
        return parse_duration(value, place.path, zero=zero)
    except SettingError as error:
        place.refuse(error.reason.partition("; ")[0], step_of(error))
        return None


def template(place: Place, value: object) -> Template | None:
    """Text on one line that may hold ``${VARIABLES}``."""
    found = text(place, value)
    if found is None:
        return None
    if _CONTROL.search(found):
        place.refuse("holds a line break or another control character", "Write it on one line.")
        return None
    return with_variables(place, found)


def with_variables(place: Place, found: str) -> Template | None:
    """Any text that may hold ``${VARIABLES}``; notes that they are used here."""
    if _BAD_VARIABLE.search(found):
        place.refuse(
            "has a ${ that no variable's name follows",
            "Write ${NAME} with letters, digits and _, as in ${API_TOKEN}.",
        )
        return None
    made = Template(found)
    place.use(made.variables)
    return made


def texts(place: Place, value: object) -> tuple[str, ...] | None:
    """A list of texts, at least one."""
    if isinstance(value, str) or not isinstance(value, list | tuple):
        place.refuse(f"must be a list of texts, not {kind_of(value)}", _as_list(value))
        return None
    if not value:
        place.refuse("is an empty list", "Begin it with what to run.")
        return None
    found = [text(place.item(index), item) for index, item in enumerate(value)]
    whole_list = [item for item in found if item is not None]
    return tuple(whole_list) if len(whole_list) == len(found) else None


def _as_list(value: object) -> str:
    if isinstance(value, str) and value.strip():
        parts = ", ".join(f'"{part}"' for part in value.split())
        return f"Write it as a list, [{parts}], since no shell reads it."
    return 'Write it as a list, such as ["python3", "audit.py"].'


def step_of(error: SettingError) -> str | None:
    """The next step that a setting's error names behind its semicolon, as a sentence."""
    _, _, step = error.reason.partition("; ")
    return f"{step[:1].upper()}{step[1:]}{'' if step.endswith('?') else '.'}" if step else None


def kind_of(value: object) -> str:
    """What a value is, for a message. Numbers are shown; texts are not, since they may be secrets."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return str(value)
        case str():
            return "text"
        case Mapping():
            return "a table"
        case list() | tuple():
            return "a list"
        case datetime() | date() | time():
            return "a date or time"
        case None:
            return "nothing"
        case _ if callable(value):
            return "a function or class"
        case _:
            return f"a value of type {type(value).__name__}"
