"""Text with ``${VARIABLES}`` that are filled from the environment at the moment of use.

A template knows which variables it needs and never what they hold, so declarations, plans and
representations can be printed without giving a secret away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Template:
    """``text`` as it was declared, e.g. ``"Bearer ${SHOP_TOKEN}"``."""

    text: str

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the environment variables it needs, in order, each once."""
        return tuple(dict.fromkeys(_VARIABLE.findall(self.text)))

    def missing(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Variables that ``environment`` does not have."""
        return tuple(name for name in self.variables if name not in environment)

    def fill(self, environment: Mapping[str, str]) -> str:
        """The text with every variable filled. Raises ``KeyError`` with the name of one that is missing."""
        return _VARIABLE.sub(lambda match: environment[match[1]], self.text)

    def __str__(self) -> str:
        return self.text


SHORTEST_HIDDEN = 4
"""Characters below which a value is not hidden: it would be found in every other word."""


def hiding(variables: Iterable[str], environment: Mapping[str, str]) -> Callable[[str], str]:
    """A function that puts ``${NAME}`` for every value of ``variables`` that stands in a text.

    For texts that quote the other side, which may repeat what it was sent. Values are found whatever their case;
    those shorter than :data:`SHORTEST_HIDDEN` characters are left.
    """
    names = {
        environment[name].lower(): name
        for name in variables
        if len(environment.get(name, "")) >= SHORTEST_HIDDEN
    }
    if not names:
        return lambda text: text
    longest_first = sorted(names, key=len, reverse=True)
    values = re.compile("|".join(re.escape(value) for value in longest_first), re.IGNORECASE)
    return lambda text: values.sub(lambda found: f"${{{names.get(found[0].lower(), '…')}}}", text)
