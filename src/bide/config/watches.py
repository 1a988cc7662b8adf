"""The watches: one block that makes a package, a connection, a poll, an event and its subscribers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bide.config.addresses import http_url, split_url
from bide.config.answers import Fields, Selections, check_names, selections, some_fields
from bide.config.connections import ConnectionShape
from bide.config.operations import OperationShape
from bide.config.packages import EventShape, PackageShape, PollShape, interval
from bide.config.report import Place
from bide.config.requests import headers
from bide.config.shape import (
    Table,
    check_name,
    kind_of,
    named_entries,
    read_table,
    text,
    whole,
)
from bide.config.subscribers import OPTIONS, WAYS, WEBHOOK_ONLY, SubscriberShape, read_subscriber
from bide.core.declaration import Connection, RequestTemplate
from bide.core.fields import FieldType
from bide.core.template import Template

WATCH_KEYS = ("url", "every", "select", "fields", "headers", "to", "max_concurrent")
TARGET_KEYS = ("name", *WAYS, *WEBHOOK_ONLY, *OPTIONS)
EVENT = "Changed"
"""Name of the event of every watch: ``"<watch>.Changed"``."""
WHOLE = "value"
"""The one field of a watch that neither selects nor declares any: the whole JSON."""


@dataclass(frozen=True, slots=True)
class WatchShape:
    """A watch as the blocks that it stands for."""

    event: EventShape
    connection: ConnectionShape
    subscribers: tuple[SubscriberShape, ...]


def read_watches(
    root: Table, taken: Collection[str], subscribers: Collection[str], folder: Path, least_every: timedelta
) -> Iterator[WatchShape]:
    """Every watch of the ``watches`` block. ``taken`` are the names of packages and connections."""
    coded = Table(root.place.coded("watch.key_invalid", "watch.value_invalid"), root.entries)
    names = set(subscribers)
    for name, place, value in named_entries(coded, "watches", "a watch"):
        if name in taken:
            place.refuse_key(
                f"there is a package or connection named {name!r} already", "Give it another name."
            )
        table = read_table(place, value, WATCH_KEYS)
        if table is not None:
            yield _read_watch(table, name, names, folder, least_every)


def _read_watch(table: Table, name: str, names: set[str], folder: Path, least_every: timedelta) -> WatchShape:
    url = table.need("url", http_url, 'url = "https://api.example.org/releases/latest"')
    every = table.need("every", interval(least_every), 'every = "5m"')
    cap = table.find("max_concurrent", whole(1))
    header_fields = table.find("headers", headers) or {}
    answer, select = _read_answer(table)
    event = EventShape(f"{name}.{EVENT}", answer, public=True, wire_name=False, occurred_at=None)
    operation = _operation(name, url, answer, select) if url is not None else None
    package = PackageShape(name, cap, {EVENT: event}, {name: PollShape(name, operation, every, event)})
    connection = None
    if url is not None:
        connection = Connection(name, name, split_url(url)[0], header_fields, cap)
    subscribers = tuple(_read_targets(table, name, event.name, names, folder))
    return WatchShape(event, ConnectionShape(name, table.place, package, connection, {}), subscribers)


def _read_answer(table: Table) -> tuple[Fields, Selections]:
    """The fields of the answer, which are those of the event, and how they are selected."""
    select = table.find("select", selections)
    declared = table.find("fields", some_fields)
    if "select" in table:
        if not table.entries["select"]:
            table.place.at("select").refuse("selects nothing", 'Select a field, as in { tag = "tag_name" }.')
        if select is None:
            return declared or {}, {}
        check_names(table.place.at("fields"), declared or {}, select, "a field that is selected")
        return {field: (declared or {}).get(field, FieldType("any")) for field in select}, select
    if "fields" in table:
        return declared or {}, {}
    return {WHOLE: FieldType("any")}, {WHOLE: "@"}


def _operation(name: str, url: Template, answer: Fields, select: Selections) -> OperationShape:
    return OperationShape(
        name=name,
        answer=answer,
        answer_wrong=False,
        select=select,
        takes_input=False,
        changes=False,
        public=False,
        retries=2,
        deadline=timedelta(seconds=30),
        request=RequestTemplate("GET", split_url(url)[1]),
        function=None,
        reference=None,
    )


def _read_targets(
    table: Table, watch: str, event: str, names: set[str], folder: Path
) -> Iterator[SubscriberShape]:
    """The subscribers in ``to``, named ``<watch>-1`` and so on where they have no name of their own."""
    if "to" not in table:
        return
    value, place = table.entries["to"], table.place.at("to")
    if not isinstance(value, list | tuple):
        place.refuse(f"must be a list of targets, not {kind_of(value)}", 'Write [{ command = ["…"] }].')
        return
    for index, entry in enumerate(value):
        at = place.item(index)
        target = read_table(at, entry, TARGET_KEYS)
        if target is None:
            continue
        name = target.read("name", text, f"{watch}-{index + 1}")
        if "name" in target:
            check_name(at.at("name"), name, "a subscriber")
        _claim_name(at.at("name"), name, names)
        yield read_subscriber(target, name, event, folder)


def _claim_name(place: Place, name: str, names: set[str]) -> None:
    if name in names:
        place.refuse(f"there is a subscriber named {name!r} already", "Give it another name.")
    names.add(name)
