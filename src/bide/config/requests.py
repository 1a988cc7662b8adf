"""The parts of a request: header fields, query parameters and the body."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from bide.config.report import Place
from bide.config.shape import kind_of, read_entries, template, with_variables
from bide.core.template import Template

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110, 5.6.2."""


def headers(place: Place, value: object) -> dict[str, Template] | None:
    """Header fields: names of RFC 9110, values that may hold ``${VARIABLES}``."""
    entries = read_entries(place, value)
    if entries is None:
        return None
    found: dict[str, Template] = {}
    seen: dict[str, str] = {}
    for name, entry in entries.items():
        if not _HEADER_NAME.fullmatch(name):
            place.at(name).refuse_key(
                "is not the name of a header", "Use letters, digits and -, as in X-Api-Key."
            )
        if (other := seen.setdefault(name.lower(), name)) != name:
            place.at(name).refuse_key(f"is the same header as {other}", "Keep one of them.")
        made = template(place.at(name), entry)
        if made is not None:
            found[name] = made
    return found


def query(place: Place, value: object) -> dict[str, Template] | None:
    """Query parameters: text that may hold ``${VARIABLES}``, or whole numbers."""
    entries = read_entries(place, value)
    if entries is None:
        return None
    found: dict[str, Template] = {}
    for name, entry in entries.items():
        whole_number = isinstance(entry, int) and not isinstance(entry, bool)
        made = Template(str(entry)) if whole_number or entry == "" else template(place.at(name), entry)
        if made is not None:
            found[name] = made
    return found


def json_data(place: Place, value: object) -> Any:
    """JSON data whose texts may hold ``${VARIABLES}``; answers it as it is."""
    match value:
        case str():
            with_variables(place, value)
        case Mapping():
            for key, entry in (read_entries(place, value) or {}).items():
                json_data(place.at(key), entry)
        case list() | tuple():
            for index, entry in enumerate(value):
                json_data(place.item(index), entry)
        case float() | Decimal() if not math.isfinite(value):
            place.refuse("is a number that JSON does not have", "Write a finite number.")
        case None | bool() | int() | float() | Decimal():
            pass
        case _:
            place.refuse(f"is {kind_of(value)}, which JSON does not have", "Write it as text.")
    return value
