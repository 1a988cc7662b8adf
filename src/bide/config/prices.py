"""Price lists: those that come with bide, and files of the same shape that replace or extend them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from bide.config.file import read_file
from bide.config.report import Place, Report, nearest_or_known
from bide.config.shape import Table, kind_of, named_entries, read_table, text, whole
from bide.core.declaration import Mistake
from bide.core.prices import PriceList, Tariff
from bide.core.requests import MODELS
from bide.errors import DeclarationError

LIST_KEYS = ("kind", "title", "region", "as_of", "source", "note", "tariffs")
TARIFF_KEYS = ("classes", "per_million", "per_thousand", "free")

PriceLists = Mapping[str, PriceList]


def price_lists(path: Path | None = None) -> PriceLists:
    """The price lists by name: bide's own, with those of the file at ``path`` over them.

    Of a list that bide has, a file may give some keys only. Raises :class:`~bide.errors.DeclarationError` with every
    mistake in the file, each with its place and one next step.
    """
    own = _own()
    if path is None:
        return own
    if not path.exists():
        step = "Name a file of prices, or leave it out for bide's own."
        raise DeclarationError([Mistake("config.file_unreadable", str(path), "there is no such file", step)])
    return {**own, **_read(path, read_file(path), own)}


@cache
def _own() -> PriceLists:
    from importlib import resources  # which nobody else needs who checks an app

    with resources.as_file(resources.files("bide.config") / "prices.toml") as path:
        return _read(path, read_file(path), {})


def _read(path: Path, tables: Mapping[str, Any], known: PriceLists) -> PriceLists:
    report = Report()
    place = Place(report, "", "config.key_invalid", "config.value_invalid")
    found: dict[str, PriceList] = {}
    root = read_table(place, tables, ("lists",))
    if root is not None:
        if "lists" not in root:
            place.at("lists").refuse_key("is missing", "Add a block [lists.NAME] with kind and tariffs.")
        for name, at, value in named_entries(root, "lists", "a price list"):
            if (read := _list(at, name, value, known.get(name))) is not None:
                found[name] = read
    if report.mistakes:
        raise DeclarationError(
            [replace(mistake, where=f"{path}: {mistake.where}") for mistake in report.mistakes]
        )
    return found


def _list(place: Place, name: str, value: object, known: PriceList | None) -> PriceList | None:
    table = read_table(place, value, LIST_KEYS)
    if table is None:
        return None
    kind = table.read("kind", _kind, known.kind) if known else table.need("kind", _kind, 'kind = "s3"')
    if kind is None:
        return None
    if known is None and "tariffs" not in table:
        example = 'tariffs = [{ classes = ["PUT"], per_million = 5 }]'
        place.at("tariffs").refuse_key("is missing", f"Add {example}.")
        return None
    base = known or PriceList(name, kind, name, ())
    given = _tariffs(table, kind) if "tariffs" in table else None
    return PriceList(
        name=name,
        kind=kind,
        title=table.read("title", text, base.title),
        tariffs=base.tariffs if given is None else given,
        region=table.read("region", text, base.region),
        as_of=table.find("as_of", _day) if given is not None else table.find("as_of", _day) or base.as_of,
        source=table.read("source", text, base.source if given is None else ""),
        note=table.read("note", text, base.note),
    )


def _tariffs(table: Table, kind: str) -> tuple[Tariff, ...]:
    place, value = table.place.at("tariffs"), table.entries["tariffs"]
    if not isinstance(value, list):
        place.refuse(f"must be a list of tables, not {kind_of(value)}", "Write one table for each price.")
        return ()
    taken: set[str] = set()
    tariffs = (_tariff(place.item(at), entry, kind, taken) for at, entry in enumerate(value))
    return tuple(tariff for tariff in tariffs if tariff is not None)


def _tariff(place: Place, value: object, kind: str, taken: set[str]) -> Tariff | None:
    table = read_table(place, value, TARIFF_KEYS)
    if table is None:
        return None
    unit = table.exactly_one(("per_million", "per_thousand"), "per_million = 0.40")
    price = table.find(unit, _dollars) if unit is not None else None
    classes = table.need("classes", _names, 'classes = ["PUT", "LIST"]')
    free = table.read("free", whole(0), 0)
    known = MODELS[kind].classes
    for at, name in enumerate(classes or ()):
        if name not in known:
            place.at("classes").item(at).refuse(
                f"{name!r} is no class of requests to {MODELS[kind].title}", nearest_or_known(name, known)
            )
        elif name in taken:
            place.at("classes").item(at).refuse(f"{name!r} has a price already", "Give each class one price.")
        taken.add(name)
    if price is None or classes is None:
        return None
    return Tariff(classes, price * 1000 if unit == "per_thousand" else price, free)


def _kind(place: Place, value: object) -> str | None:
    found = text(place, value)
    if found is not None and found not in MODELS:
        place.refuse(f"{found!r} is no kind of store", nearest_or_known(found, MODELS))
        return None
    return found


def _names(place: Place, value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        place.refuse("must be a list of classes of requests", 'Write it as a list, such as ["PUT", "LIST"].')
        return None
    return tuple(value)


def _dollars(place: Place, value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        place.refuse(f"must be dollars, not {kind_of(value)}", "Write a number, such as 0.40.")
        return None
    dollars = Decimal(repr(value))  # of a float the shortest text that means it, which is what was written
    if not dollars.is_finite() or dollars < 0:
        place.refuse(f"must be dollars of nothing or more, not {value}", "Write a number, such as 0.40.")
        return None
    return dollars


def _day(place: Place, value: object) -> date | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    place.refuse(f"must be a day, not {kind_of(value)}", "Write it without quotes, such as 2026-11-30.")
    return None
