"""The connections: each one configured use of a package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from bide.config.addresses import base_url
from bide.config.packages import PackageShape, interval, package_place, read_package
from bide.config.references import BadReference, imported
from bide.config.report import Place, nearest_or_known
from bide.config.requests import headers
from bide.config.shape import (
    Table,
    duration,
    duration_or_zero,
    flag,
    kind_of,
    named_entries,
    read_entries,
    read_table,
    text,
    whole,
)
from bide.core.declaration import Connection

CONNECTION_KEYS = (
    "package",
    "base_url",
    "headers",
    "max_concurrent",
    "polls",
    "quiet_after",
    "paused",
    "hint_clamp",
)


@runtime_checkable
class DeclaredPackage(Protocol):
    """A package declared in Python (:class:`bide.package.Package`)."""

    name: str

    def raw(self) -> Mapping[str, Any]:
        """Its block, as it would stand in bide.toml."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectionShape:
    """A connection as far as it could be read.

    ``package`` and ``connection`` are None where they are wrong, and reported. ``intervals`` are its own.
    """

    name: str
    place: Place
    package: PackageShape | None
    connection: Connection | None
    intervals: Mapping[str, timedelta]


class Packages:
    """Every package known so far, by name, with those that connections find in Python modules."""

    def __init__(self, packages: Iterator[PackageShape], folder: Path, least_every: timedelta) -> None:
        self.by_name = {package.name: package for package in packages}
        self._folder = folder
        self._least_every = least_every
        self._declared: dict[str, DeclaredPackage] = {}

    def named(self, place: Place, name: str) -> PackageShape | None:
        """The package of that name, or the one declared in Python at ``"module:name"``."""
        if ":" in name:
            return self._imported(place, name)
        if name not in self.by_name:
            place.refuse(
                f"there is no package {name!r}",
                nearest_or_known(name, self.by_name, f"Declare it under [packages.{name}]."),
            )
        return self.by_name.get(name)

    def _imported(self, place: Place, reference: str) -> PackageShape | None:
        try:
            found = imported(reference, self._folder)
        except BadReference as error:
            place.refuse(error.reason, error.suggestion)
            return None
        if not isinstance(found, DeclaredPackage) or not isinstance(found.name, str):
            place.refuse(
                f"{reference} is {kind_of(found)}, not a package", "Name a bide.Package of that module."
            )
            return None
        name = found.name
        if self._declared.get(name) is found:
            return self.by_name[name]
        if name in self.by_name:
            place.refuse(f"there is another package named {name!r}", "Give one of them another name.")
            return None
        self._declared[name] = found
        at = package_place(place.report, name)
        self.by_name[name] = read_package(at, name, found.raw(), self._folder, self._least_every)
        return self.by_name[name]


def read_connections(root: Table, packages: Packages, least_every: timedelta) -> Iterator[ConnectionShape]:
    """Every connection of the ``connections`` block."""
    coded = Table(root.place.coded("connection.key_invalid", "connection.value_invalid"), root.entries)
    for name, place, value in named_entries(coded, "connections", "a connection"):
        table = read_table(place, value, CONNECTION_KEYS)
        if table is not None:
            yield _read_connection(table, name, packages, least_every)


def _read_connection(table: Table, name: str, packages: Packages, least_every: timedelta) -> ConnectionShape:
    package_name = table.need("package", text, f'package = "{next(iter(packages.by_name), "shop")}"')
    package = packages.named(table.place.at("package"), package_name) if package_name is not None else None
    url = table.need("base_url", base_url, 'base_url = "https://api.example.org"')
    header_fields = table.find("headers", headers) or {}
    own_cap = table.find("max_concurrent", whole(1))
    package_cap = package.max_concurrent if package is not None else None
    if own_cap is not None and package_cap is not None and own_cap > package_cap:
        table.place.at("max_concurrent").refuse(
            f"{own_cap} is more than the {package_cap} of package {package.name if package else ''}, "
            "and a connection may only lower it",
            f"Write {package_cap} or less, or leave it out.",
        )
    quiet_after = table.find("quiet_after", duration)
    paused = table.read("paused", flag, False)
    hint_clamp = table.read("hint_clamp", duration_or_zero, timedelta(days=1))
    connection = None
    if package is not None and url is not None:
        connection = Connection(
            name=name,
            package=package.name,
            base_url=url,
            headers=header_fields,
            max_concurrent=own_cap if own_cap is not None else package_cap,
            quiet_after=quiet_after,
            paused=paused,
            hint_clamp=hint_clamp,
        )
    intervals = _read_intervals(table, package, least_every) if "polls" in table else {}
    return ConnectionShape(name, table.place, package, connection, intervals)


def _read_intervals(
    table: Table, package: PackageShape | None, least_every: timedelta
) -> dict[str, timedelta]:
    """The connection's own intervals, by poll. Intervals are read even where it is not known of what."""
    place = table.place.at("polls")
    entries = read_entries(place, table.entries["polls"])
    if entries is None:
        return {}
    if package is not None and not package.polls:
        place.refuse_key(
            f"package {package.name} has no polls", "Remove polls here, or declare them in the package."
        )
        return {}
    intervals: dict[str, timedelta] = {}
    for name, value in entries.items():
        if package is not None and name not in package.polls:
            place.at(name).refuse_key(
                f"package {package.name} has no poll {name!r}", nearest_or_known(name, package.polls)
            )
        every = interval(least_every)(place.at(name), value)
        if every is not None:
            intervals[name] = every
    return intervals
