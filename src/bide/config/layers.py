"""Settings in layers: the command line, the environment, the file and code, each giving some of them.

A layer above replaces single settings of those below, never a whole block. Of each setting it is kept where it
came from, so that a conflict between two layers can name both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from bide.config.report import Place, Report, nearest_or_known
from bide.config.shape import Reading, Table, duration, duration_or_zero, kind_of, read_table, step_of, whole
from bide.core.durations import parse_ms
from bide.core.pacing import check_factor, strategy_kind
from bide.errors import SettingError

LayerName = Literal["flag", "environment", "file", "code", "default"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a setting came from: the layer, and the name that it has there."""

    layer: LayerName
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.layer})" if self.name else f"the {self.layer}"


@dataclass(frozen=True, slots=True)
class Given:
    """A setting's value and its origin."""

    value: Any
    origin: Origin


Layer = dict[str, Given]
"""What one layer gives, by the setting's name."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What values a setting takes. ``of_text`` makes one of what stands in a variable or behind a flag."""

    reading: Reading[Any]
    of_text: Callable[[str], object]
    in_ms: bool = False
    """Whether it is a duration, which may be given in whole milliseconds under another key."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting and what it is called in each layer. ``block`` is the table of the file that ``key`` is in."""

    name: str
    kind: Kind
    block: str
    key: str
    variable: str
    flag: str

    def spellings(self) -> tuple[str, ...]:
        """What may stand behind its name: nothing, or the mark of milliseconds."""
        return ("", "_ms") if self.kind.in_ms else ("",)


# --- kinds of values -----------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def _number(text: str) -> object:
    """A number where ``text`` is one, so that ``30`` means seconds as it does in the file; else the text."""
    bare = text.strip()
    if _WHOLE.fullmatch(bare):
        return int(bare)
    return float(bare) if _NUMBER.fullmatch(bare) else bare


def _any_number(text: str) -> object:
    try:
        return float(text)  # also nan and inf, so that they are refused as what they are
    except ValueError:
        return text.strip()


def _split(text: str) -> object:
    return [name.strip() for name in text.split(",")]


def _factor(place: Place, value: object) -> float | None:
    try:
        check_factor(place.path, value, more_than_one=True)
    except SettingError as error:
        place.refuse(error.reason.partition("; ")[0], step_of(error))
        return None
    return float(value) if isinstance(value, int | float) else None


def _strategy(place: Place, value: object) -> str | None:
    try:
        return strategy_kind(value.strip() if isinstance(value, str) else value, place.path)
    except SettingError as error:
        place.refuse(error.reason.partition("; ")[0], step_of(error))
        return None


def _names(place: Place, value: object) -> tuple[str, ...] | None:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        place.refuse(
            f"must be a list of names, not {kind_of(value)}", 'Write it as a list, such as ["mail"].'
        )
        return None
    wrong = [name for name in value if not isinstance(name, str) or not name.strip()]
    if wrong or not value:
        found = (
            "an empty name" if any(isinstance(name, str) for name in wrong) else kind_of((wrong or [None])[0])
        )
        place.refuse(f"must be a list of names, and has {found}", 'Write it as a list, such as ["mail"].')
        return None
    return tuple(dict.fromkeys(name.strip() for name in value))


def _milliseconds(place: Place, value: object, *, zero: bool) -> timedelta | None:
    try:
        return parse_ms(value, place.path, zero=zero)
    except SettingError as error:
        place.refuse(error.reason.partition("; ")[0], step_of(error))
        return None


DURATION = Kind(duration, _number, in_ms=True)
DURATION_OR_ZERO = Kind(duration_or_zero, _number, in_ms=True)
COUNT = Kind(whole(1), _number)
FACTOR = Kind(_factor, _any_number)
STRATEGY = Kind(_strategy, str)
NAMES = Kind(_names, _split)


# --- reading one layer ---------------------------------------------------------------------------------------


def file_layer(root: Table, settings: Iterable[Setting]) -> Layer:
    """What the blocks of the file give; unknown keys and bad values are reported at their places."""
    settings = tuple(settings)
    tables = _tables(root, settings)
    layer: Layer = {}
    for setting in settings:
        table = tables.get(setting.block)
        if table is not None:
            found = [
                (table.place.at(setting.key + mark), table.entries[setting.key + mark], mark)
                for mark in setting.spellings()
                if setting.key + mark in table
            ]
            _take(layer, "file", setting, found)
    return layer


def _tables(root: Table, settings: tuple[Setting, ...]) -> dict[str, Table]:
    """The blocks that are there, by dotted name; those within another come after it."""
    tables: dict[str, Table] = {"": root}
    blocks = sorted({setting.block for setting in settings})
    for block in blocks:
        outer, _, name = block.rpartition(".")
        if outer not in tables or name not in tables[outer]:
            continue
        known = [s.key + mark for s in settings if s.block == block for mark in s.spellings()]
        known += [inner.rpartition(".")[2] for inner in blocks if inner.rpartition(".")[0] == block]
        table = read_table(tables[outer].place.at(name), tables[outer].entries[name], known)
        if table is not None:
            tables[block] = table
    return tables


_SERVICE_LINK = re.compile(r".*_(?:SERVICE_HOST|SERVICE_PORT(?:_.*)?|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP).*)?)")
"""Variables that Kubernetes sets for each service of a namespace, also for one that is called bide-worker."""


def environment_layer(
    report: Report, environment: Mapping[str, str], settings: Iterable[Setting], prefixes: tuple[str, ...]
) -> Layer:
    """What variables give. An empty one counts as not set; unknown ones behind ``prefixes`` are reported."""
    settings = tuple(settings)
    layer: Layer = {}
    known = set[str]()
    for setting in settings:
        found = []
        for mark in setting.spellings():
            name = setting.variable + mark.upper()
            known.add(name)
            if text := environment.get(name, "").strip():
                found.append((_plain(report, name), setting.kind.of_text(text), mark))
        _take(layer, "environment", setting, found)
    for name in environment:
        if name.startswith(prefixes) and name not in known and not _SERVICE_LINK.fullmatch(name):
            _plain(report, name).refuse_key("is no variable that is known", nearest_or_known(name, known))
    return layer


def flag_layer(report: Report, flags: Mapping[str, str | None], settings: Iterable[Setting]) -> Layer:
    """What the command line gives: texts by the names of settings, None for a flag that was not given."""
    layer: Layer = {}
    for setting in settings:
        text = flags.get(setting.name)
        if text is not None:
            _take(layer, "flag", setting, [(_plain(report, setting.flag), setting.kind.of_text(text), "")])
    return layer


def _plain(report: Report, name: str) -> Place:
    return Place(report, name, "config.key_invalid", "config.value_invalid")


def _take(layer: Layer, name: LayerName, setting: Setting, found: list[tuple[Place, object, str]]) -> None:
    """Put the setting into ``layer`` from its one spelling; two are a mistake, as is a bad value."""
    if len(found) > 1:
        places = [place.path for place, _, _ in found]
        found[-1][0].refuse_key(f"is given twice, as {' and as '.join(places)}", "Leave one of them out.")
        return
    for place, value, mark in found:
        if mark:
            zero = setting.kind is DURATION_OR_ZERO
            meant = _milliseconds(place, value, zero=zero)
        else:
            meant = setting.kind.reading(place, value)
        if meant is not None:
            layer[setting.name] = Given(meant, Origin(name, place.path))
