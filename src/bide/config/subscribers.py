"""The subscribers: who hears an event, and how it is brought to them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bide.config.addresses import http_url
from bide.config.operations import function_at
from bide.config.packages import EventShape
from bide.config.references import reference_to
from bide.config.report import Place, nearest_or_known
from bide.config.requests import headers
from bide.config.shape import (
    Table,
    duration,
    flag,
    named_entries,
    read_table,
    template,
    text,
    texts,
    whole,
)
from bide.core.declaration import Command, Function, Subscriber, Target, Webhook
from bide.core.names import nearest
from bide.core.template import Template

WAYS = ("webhook", "command", "function")
WEBHOOK_ONLY = ("secret", "headers")
OPTIONS = ("within", "ordered", "max_attempts", "max_concurrent", "timeout")
SUBSCRIBER_KEYS = ("on", *WAYS, *WEBHOOK_ONLY, *OPTIONS)


@dataclass(frozen=True, slots=True)
class SubscriberShape:
    """A subscriber as far as it could be read; ``subscriber`` is None where something of it is wrong."""

    name: str
    event: str | None
    subscriber: Subscriber | None


def read_subscribers(
    root: Table, events: Mapping[str, EventShape], folder: Path
) -> Iterator[SubscriberShape]:
    """Every subscriber of the ``subscribers`` block. ``events`` are all that are declared, by full name."""
    coded = Table(root.place.coded("subscriber.key_invalid", "subscriber.value_invalid"), root.entries)
    for name, place, value in named_entries(coded, "subscribers", "a subscriber"):
        table = read_table(place, value, SUBSCRIBER_KEYS)
        if table is None:
            continue
        on = table.need("on", text, f'on = "{min(_heard_by_anyone(events), default="shop.PriceChanged")}"')
        event = _heard(place.at("on"), on, events) if on is not None else None
        yield read_subscriber(table, name, event, folder)


def read_subscriber(table: Table, name: str, event: str | None, folder: Path) -> SubscriberShape:
    """Target and options of one subscriber to ``event`` (None: which one is wrong, and reported)."""
    target = _read_target(table, folder)
    within = table.read("within", duration, timedelta(days=3))
    ordered = table.read("ordered", flag, False)
    max_attempts = table.find("max_attempts", whole(1))
    max_concurrent = table.read("max_concurrent", whole(1), 1)
    if target is None or event is None:
        return SubscriberShape(name, event, None)
    return SubscriberShape(
        name, event, Subscriber(name, event, target, within, ordered, max_attempts, max_concurrent)
    )


def _heard(place: Place, on: str, events: Mapping[str, EventShape]) -> str | None:
    """The full name of the event that is heard."""
    event = events.get(on)
    if event is None:
        place.refuse(f"there is no event {on!r}", _nearest_event(on, _heard_by_anyone(events)))
        return None
    if not event.public:
        package, _, short = on.rpartition(".")
        place.refuse(f"{on} is not public", f"Set public = true at packages.{package}.events.{short}.")
        return None
    return on


def _heard_by_anyone(events: Mapping[str, EventShape]) -> list[str]:
    """The events that a subscriber can get: public ones that polls may emit."""
    return [name for name, event in events.items() if event.public and not event.wire_name]


def _nearest_event(on: str, events: Collection[str]) -> str | None:
    """The nearest of ``events``; without a package's name, also the one that is nearest without it."""
    short = {name.rpartition(".")[2]: name for name in events}
    if "." not in on and (near := nearest(on, short)) is not None:
        return f"Did you mean {short[near]!r}?"
    return nearest_or_known(on, events, "Declare it under events of a package, with public = true.")


def _read_target(table: Table, folder: Path) -> Target | None:
    way = table.exactly_one(WAYS, 'webhook = "https://example.org/hook"')
    secret = table.find("secret", _secret)
    header_fields = table.find("headers", headers) or {}
    timeout = table.find("timeout", duration)
    if way is not None and way != "webhook":
        for key in WEBHOOK_ONLY:
            if key in table:
                table.place.at(key).refuse_key(f"is for webhooks, and this is a {way}", f"Remove {key}.")
    limit = timeout or timedelta(seconds=30)
    # All that are there are read, so that every mistake is found also where there are too many.
    url = table.find("webhook", http_url)
    argv = table.find("command", texts)
    function = table.find("function", function_at(folder))
    match way:
        case "webhook" if url is not None:
            return Webhook(url, header_fields, secret, limit)
        case "command" if argv is not None:
            return Command(argv, limit)
        case "function" if function is not None:
            value = table.entries["function"]
            reference = value if isinstance(value, str) else reference_to(function)
            return Function(reference, function, timeout)
        case _:
            return None


def _secret(place: Place, value: object) -> Template | None:
    """Text; behind ``whsec_`` the Base64 of Standard Webhooks, where it is not in a variable."""
    made = template(place, value)
    if made is None or made.variables or not made.text.startswith("whsec_"):
        return made
    try:
        base64.b64decode(made.text.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        place.refuse("is not Base64 behind whsec_", "Copy the whole secret, or write one without whsec_.")
        return None
    return made
