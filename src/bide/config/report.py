"""Where mistakes are collected, and the places that they are reported at.

A check never stops at the first mistake: whoever reads a value reports what is wrong with it at its
:class:`Place` and goes on with what can be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bide.core.declaration import Code, Declarations, Mistake
from bide.core.names import did_you_mean

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LISTED = 12
"""More names than this are not listed in a suggestion."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What came of a check: the ``declarations``, or every one of the ``mistakes`` by place.

    ``warnings`` are environment variables that are used and not set: no mistake of the declaration, since
    a check needs no secrets.
    """

    declarations: Declarations | None
    mistakes: tuple[Mistake, ...]
    warnings: tuple[Mistake, ...] = ()

    def strictly(self) -> Compiled:
        """The same with every warning counted as a mistake."""
        if not self.warnings:
            return self
        return Compiled(None, _in_order((*self.mistakes, *self.warnings)))


class Report:
    """Collects mistakes, and which place uses which environment variable."""

    def __init__(self) -> None:
        self._mistakes: list[Mistake] = []
        self._uses: dict[str, list[str]] = {}

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """Every mistake by place, each once."""
        return _in_order(self._mistakes)

    def add(self, mistake: Mistake) -> None:
        """Report one mistake."""
        self._mistakes.append(mistake)

    def use(self, variable: str, where: str) -> None:
        """Note that the environment variable is needed at ``where``."""
        self._uses.setdefault(variable, []).append(where)

    def warnings(self, environment: Mapping[str, str]) -> tuple[Mistake, ...]:
        """One for each variable that ``environment`` lacks, naming every place that uses it."""
        return _in_order(
            _missing_variable(name, sorted(set(places)))
            for name, places in self._uses.items()
            if name not in environment
        )


@dataclass(frozen=True, slots=True)
class Place:
    """A place in what was declared, such as ``connections.eu.polls.price``, and the codes of its block."""

    report: Report
    path: str
    key_code: Code
    value_code: Code

    def at(self, key: object) -> Place:
        """The place of an entry of this table; a key that needs quotes in TOML has them here."""
        text = str(key)
        shown = text if _BARE_KEY.fullmatch(text) else '"' + text.replace('"', '\\"') + '"'
        return Place(
            self.report, f"{self.path}.{shown}" if self.path else shown, self.key_code, self.value_code
        )

    def item(self, index: int) -> Place:
        """The place of an item of this list, counted from 0 as in JSON."""
        return Place(self.report, f"{self.path}[{index}]", self.key_code, self.value_code)

    def coded(self, key_code: Code, value_code: Code) -> Place:
        """The same place under the codes of another block."""
        return Place(self.report, self.path, key_code, value_code)

    def refuse_key(self, message: str, suggestion: str | None = None) -> None:
        """Report that this key should not be here, or is missing."""
        self.report.add(Mistake(self.key_code, self.path, message, suggestion))

    def refuse(self, message: str, suggestion: str | None = None, *, code: Code | None = None) -> None:
        """Report that the value here is wrong."""
        self.report.add(Mistake(code or self.value_code, self.path, message, suggestion))

    def use(self, variables: Iterable[str]) -> None:
        """Note the environment variables that are needed here."""
        for variable in variables:
            self.report.use(variable, self.path)


def nearest_or_known(name: str, known: Iterable[str], none: str | None = None) -> str | None:
    """The nearest of ``known`` in a sentence; where none is near, those that are known; else ``none``."""
    names = sorted(known)
    if not names:
        return none
    if near := did_you_mean(name, names):
        return near
    more = "" if len(names) <= _LISTED else f" and {len(names) - _LISTED} more"
    return f"Known here: {', '.join(names[:_LISTED])}{more}."


def _missing_variable(name: str, places: list[str]) -> Mistake:
    listed = places[0] if len(places) == 1 else f"{', '.join(places[:-1])} and {places[-1]}"
    return Mistake(
        "environment.variable_missing",
        places[0],
        f"the environment variable {name} is not set; it is used at {listed}",
        f"Set {name} before the program starts.",
    )


def _in_order(mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
    return tuple(sorted(set(mistakes), key=lambda mistake: (mistake.where, mistake.code, mistake.message)))
