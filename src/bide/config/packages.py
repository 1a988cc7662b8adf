"""The packages: what an outside API offers, each with its operations, events and polls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from bide.config.answers import Fields, complete, some_fields
from bide.config.operations import OperationShape, read_operation
from bide.config.report import Place, Report, nearest_or_known
from bide.config.shape import Reading, Table, flag, named_entries, read_table, step_of, text, whole
from bide.core.declaration import EventType
from bide.core.durations import format_duration, parse_duration
from bide.errors import SettingError

WRONG: Final = "package.provider_invalid"
"""The code of every mistake in a package."""

PACKAGE_KEYS = ("max_concurrent", "operations", "events", "polls")
EVENT_KEYS = ("public", "fields", "wire_name", "occurred_at")
POLL_KEYS = ("call", "every", "emits")


@dataclass(frozen=True, slots=True)
class EventShape:
    """An event as far as it could be read; ``name`` is full. ``fields`` None: wrong, and reported."""

    name: str
    fields: Fields | None
    public: bool
    wire_name: bool
    occurred_at: str | None

    def event_type(self) -> EventType:
        """The event itself, with the fields that could be read."""
        return EventType(self.name, complete(self.fields or {}), self.public, self.occurred_at)


@dataclass(frozen=True, slots=True)
class PollShape:
    """A poll of a package: ``call`` and ``emits`` None where they are wrong, and reported."""

    name: str
    call: OperationShape | None
    every: timedelta | None
    emits: EventShape | None


@dataclass(frozen=True, slots=True)
class PackageShape:
    """A package as far as it could be read."""

    name: str
    max_concurrent: int | None = None
    events: Mapping[str, EventShape] = field(default_factory=dict)
    polls: Mapping[str, PollShape] = field(default_factory=dict)


def package_place(report: Report, name: str) -> Place:
    """Where a package is declared, and the code of everything that is wrong in it."""
    return Place(report, "packages", WRONG, WRONG).at(name)


def read_packages(root: Table, folder: Path, least_every: timedelta) -> Iterator[PackageShape]:
    """Every package of the ``packages`` block."""
    coded = Table(root.place.coded(WRONG, WRONG), root.entries)
    for name, place, value in named_entries(coded, "packages", "a package"):
        yield read_package(place, name, value, folder, least_every)


def read_package(
    place: Place, name: str, value: object, folder: Path, least_every: timedelta
) -> PackageShape:
    """One package; what cannot be read of it is left out and reported."""
    table = read_table(place, value, PACKAGE_KEYS)
    if table is None:
        return PackageShape(name)
    operations = {
        key: read_operation(at, key, entry, folder)
        for key, at, entry in named_entries(table, "operations", "an operation")
    }
    events = {
        key: _read_event(at, f"{name}.{key}", entry)
        for key, at, entry in named_entries(table, "events", "an event")
    }
    polls = {
        key: _read_poll(at, key, entry, operations, events, least_every=least_every)
        for key, at, entry in named_entries(table, "polls", "a poll")
    }
    return PackageShape(name, table.find("max_concurrent", whole(1)), events, polls)


def _read_event(place: Place, name: str, value: object) -> EventShape:
    table = read_table(place, value, EVENT_KEYS)
    if table is None:
        return EventShape(name, None, public=True, wire_name=False, occurred_at=None)
    fields = table.need("fields", some_fields, 'fields = { price = "number" }')
    table.find("wire_name", text)
    occurred_at = table.find("occurred_at", text)
    if occurred_at is not None and fields is not None:
        _check_occurred_at(place.at("occurred_at"), occurred_at, fields)
    return EventShape(
        name=name,
        fields=fields,
        public=_public(table),
        wire_name="wire_name" in table,
        occurred_at=occurred_at,
    )


def _public(table: Table) -> bool:
    """Whether the event is public. One whose ``public`` is wrong is not refused for being private as well."""
    return table.read("public", flag, True) if "public" in table else False


def _check_occurred_at(place: Place, name: str, fields: Fields) -> None:
    if name not in fields:
        place.refuse(f"{name!r} is not a field of the event", nearest_or_known(name, fields))
    elif (kind := fields[name]) is not None and kind.kind != "datetime":
        place.refuse(f"{name!r} is not a time: its type is {kind.kind}", f'Declare {name} = "datetime".')


def _read_poll(
    place: Place,
    name: str,
    value: object,
    operations: Mapping[str, OperationShape | None],
    events: Mapping[str, EventShape],
    *,
    least_every: timedelta,
) -> PollShape:
    table = read_table(place, value, POLL_KEYS)
    if table is None:
        return PollShape(name, None, None, None)
    example = next(iter(operations), "price")
    called = table.need("call", text, f'call = "{example}"')
    every = table.need("every", interval(least_every), f'every = "{format_duration(least_every)}"')
    emitted = table.need("emits", text, f'emits = "{next(iter(events), "PriceChanged")}"')
    call = _called(place.at("call"), called, operations)
    emits = _emitted(place.at("emits"), emitted, events)
    if emits is not None and call is not None and call.answer:
        _check_fields(place.at("emits"), emits, call.name, call.answer)
    return PollShape(name, call, every, emits)


def interval(least: timedelta) -> Reading[timedelta]:
    """A reading of a poll's interval: a duration of at least the tick, which is ``least``."""

    def read(place: Place, value: object) -> timedelta | None:
        try:
            every = parse_duration(value, place.path)
        except SettingError as error:
            reason, _, step = error.reason.partition("; ")
            place.refuse(reason, _least(least) if step.startswith("the least is") else step_of(error))
            return None
        if every < least:
            tick = format_duration(least)
            place.refuse(f"{format_duration(every)} is shorter than the tick, {tick}", _least(least))
            return None
        return every

    return read


def _least(tick: timedelta) -> str:
    lower = ', or lower tick under [app] (to "1s" at least)' if tick > timedelta(seconds=1) else ""
    return f'Write "{format_duration(tick)}" or longer{lower}.'


def _called(
    place: Place, name: str | None, operations: Mapping[str, OperationShape | None]
) -> OperationShape | None:
    """The operation a poll calls, if a poll can call it."""
    if name is None:
        return None
    if name not in operations:
        place.refuse(
            f"the package has no operation {name!r}",
            nearest_or_known(name, operations, "Declare it under operations."),
        )
        return None
    operation = operations[name]
    if operation is None:
        return None
    if operation.takes_input:
        place.refuse(f"{name} takes input, and a poll has none to give", "Call an operation without input.")
    if operation.changes:
        place.refuse(
            f"{name} changes things on the other side (changes = true)", "Call an operation that only reads."
        )
    if not operation.answer and not operation.answer_wrong:
        place.refuse(
            f"{name} does not answer an object of declared fields",
            f'Declare them at operations.{name}.answer, as in {{ price = "number" }}.',
        )
    return operation


def _emitted(place: Place, name: str | None, events: Mapping[str, EventShape]) -> EventShape | None:
    """The event a poll emits, if a poll can emit it."""
    if name is None:
        return None
    if name not in events:
        short = name.rpartition(".")[2]
        place.refuse(
            f"the package has no event {name!r}",
            f"Did you mean {short!r}?"
            if short in events
            else nearest_or_known(name, events, "Declare it under events."),
        )
        return None
    event = events[name]
    if not event.public:
        place.refuse(f"{name} is not public, so nobody could hear it", f"Set public = true at events.{name}.")
    if event.wire_name:
        place.refuse(
            f"{name} has a wire_name, which marks an event that the API sends itself",
            f"Remove wire_name at events.{name}, or emit another event.",
        )
    return event


def _check_fields(place: Place, event: EventShape, operation: str, answer: Fields) -> None:
    for name, kind in (event.fields or {}).items():
        if name not in answer:
            place.refuse(
                f"the answer of {operation} has no field {name!r}, which the event has",
                nearest_or_known(name, answer, f"Declare it at operations.{operation}.answer."),
            )
            continue
        answered = answer[name]
        if kind is not None and answered is not None and kind != answered:
            place.refuse(
                f"the event's field {name!r} is {kind}, and the answer of {operation} has it as {answered}",
                f'Write {name} = "{answered}" in the event.',
            )
