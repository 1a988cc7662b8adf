"""The ``[app]`` block: the store, and how often to look."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import parse_qsl

from bide.config.report import Place, nearest_or_known
from bide.config.shape import Table, duration, read_table, step_of, text, whole, with_variables
from bide.core.abilities import BY_SCHEME, StoreKind
from bide.core.server_addresses import SERVERS
from bide.errors import SettingError

APP_KEYS = ("provider", "tick", "retention", "failure_retry", "concurrency", "max_calls")
DEFAULT_PROVIDER = "sqlite:///bide.db"
LEAST_TICK = timedelta(seconds=1)
SYNCHRONOUS = ("full", "normal")
_VARIABLE = re.compile(r"\$\{[^}]*\}")
_VARIABLE_OPTION = re.compile(r"(?<=[?&])[^?&=]*=[^?&]*\$\{[^}]*\}[^?&]*")


@dataclass(frozen=True, slots=True)
class Settings:
    """``[app]`` as read.

    ``least_every`` is the shortest interval a poll may have: the tick, and where that is wrong and was
    reported, the shortest tick, so that no poll is refused for it. ``kind`` is the kind of store, where its
    address says it.
    """

    provider: str
    tick: timedelta
    least_every: timedelta
    retention: timedelta
    failure_retry: timedelta
    concurrency: int
    max_calls: int
    kind: StoreKind | None


def read_settings(root: Table) -> Settings:
    """The ``[app]`` block, with its defaults."""
    place = root.place.at("app")
    app = (read_table(place, root.entries["app"], APP_KEYS) if "app" in root else None) or Table(place, {})
    read_tick = app.find("tick", _tick) if "tick" in app else timedelta(minutes=1)
    provider = app.read("provider", text, DEFAULT_PROVIDER)
    return Settings(
        provider=provider,
        tick=read_tick or timedelta(minutes=1),
        least_every=read_tick or LEAST_TICK,
        retention=app.read("retention", duration, timedelta(days=30)),
        failure_retry=app.read("failure_retry", duration, timedelta(minutes=1)),
        concurrency=app.read("concurrency", whole(1), 20),
        max_calls=app.read("max_calls", whole(1), 200),
        kind=_check_address(app.place.at("provider"), provider),
    )


def _tick(place: Place, value: object) -> timedelta | None:
    found = duration(place, value)
    if found is not None and found < LEAST_TICK:
        place.refuse("is shorter than a second", 'Write "1s" or longer.')
        return None
    return found


def _check_address(place: Place, declared: str) -> StoreKind | None:
    """Report what is wrong with an address; the kind of store that it names. Variables are filled later."""
    if with_variables(place, declared) is None:
        return None
    address = _VARIABLE.sub(
        "1", _VARIABLE_OPTION.sub("", declared)
    )  # 1 is right as a host, a port and a name
    scheme, separator, rest = address.partition("://")
    if scheme != declared.partition("://")[0]:  # the kind of store is in a variable too
        return None
    kind = BY_SCHEME.get(scheme)
    if not separator or kind is None:
        word = scheme if separator else scheme.split(":")[0]
        place.refuse(
            "is not the address of a store that is known",
            nearest_or_known(word, BY_SCHEME)
            if separator
            else f'Write an address such as "{DEFAULT_PROVIDER}".',
        )
        return None
    if scheme == "sqlite":
        _check_file(place, rest)
    elif scheme in SERVERS:
        _check_server(place, scheme, address)
    elif rest:
        place.refuse("the store in memory has nothing behind memory://", 'Write "memory://".')
    return kind


def _check_server(place: Place, scheme: str, address: str) -> None:
    try:
        SERVERS[scheme](address)
    except SettingError as error:
        place.refuse(error.reason.partition("; ")[0], step_of(error))


def _check_file(place: Place, rest: str) -> None:
    path, _, options = rest.partition("?")
    if not path.startswith("/"):
        place.refuse(
            "has too few slashes: what follows sqlite:// is a host, and there is none",
            f'Write three for a file beside bide.toml, as in "{DEFAULT_PROVIDER}", or four for a whole path.',
        )
    elif path[1:] in {"", ":memory:"}:
        place.refuse("names no file", f'Write "{DEFAULT_PROVIDER}", or "memory://" to keep nothing.')
    for option, value in parse_qsl(options, keep_blank_values=True):
        if option != "synchronous":
            place.refuse(f"SQLite has no option {option!r}", nearest_or_known(option, ["synchronous"]))
        elif value not in SYNCHRONOUS:
            place.refuse(f"synchronous cannot be {value!r}", nearest_or_known(value, SYNCHRONOUS))
