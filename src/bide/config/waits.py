"""The ``waits`` block: what is asked until it holds, for ``bide until NAME``.

The command line says the same with flags: it makes a table of them, which is read here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from bide.config.acceptors import COMMAND_STATUSES, HTTP_STATUSES, acceptors
from bide.config.addresses import http_url, split_url
from bide.config.cadence import read_strategy
from bide.config.operations import METHODS
from bide.config.report import Place, nearest_or_known
from bide.config.requests import headers, json_data
from bide.config.shape import (
    Table,
    duration,
    duration_or_zero,
    kind_of,
    named_entries,
    read_table,
    text,
    texts,
    whole,
    with_variables,
)
from bide.core.acceptors import Acceptors
from bide.core.declaration import Connection, RequestTemplate
from bide.core.durations import format_duration
from bide.core.template import Template
from bide.core.wait_declaration import FAILURES, PASSING, Address, Program, WaitDeclaration

WAIT_KEYS = (
    "url",
    "command",
    "method",
    "headers",
    "body",
    "success",
    "failure",
    "retry",
    "timeout",
    "attempt_timeout",
    "every",
    "polling",
    "times_in_row",
    "stable_for",
    "retry_on",
    "hint_clamp",
)
ADDRESS_ONLY = ("method", "headers", "body", "retry_on", "hint_clamp")
FOREVER = "forever"
"""The timeout of a wait without an end."""


def read_waits(root: Table) -> Iterator[WaitDeclaration]:
    """Every wait of the ``waits`` block that could be read."""
    coded = Table(root.place.coded("wait.key_invalid", "wait.value_invalid"), root.entries)
    for name, place, value in named_entries(coded, "waits", "a wait"):
        wait = read_wait(place, name, value)
        if wait is not None:
            yield wait


def read_wait(place: Place, name: str, value: object) -> WaitDeclaration | None:
    """One wait; None where something of it is wrong, and reported."""
    table = read_table(place, value, WAIT_KEYS)
    if table is None:
        return None
    way = table.exactly_one(("url", "command"), 'url = "https://api.example.org/jobs/7"')
    target = _read_target(table, name, way)
    bounds = COMMAND_STATUSES if way == "command" else HTTP_STATUSES
    listed = {key: table.find(key, acceptors(bounds)) or () for key in ("success", "failure", "retry")}
    timeout = table.need("timeout", _timeout, 'timeout = "10m"')
    strategy = read_strategy(table)
    attempt_timeout = table.find("attempt_timeout", duration)
    if isinstance(timeout, timedelta) and attempt_timeout is not None and attempt_timeout > timeout:
        table.place.at("attempt_timeout").refuse(
            f"is longer than the timeout of the whole wait, {format_duration(timeout)}", "Make it shorter."
        )
    times_in_row = table.read("times_in_row", whole(1), 1)
    stable_for = table.find("stable_for", duration)
    retry_on = table.read("retry_on", _failures, frozenset(PASSING))
    hint_clamp = table.read("hint_clamp", duration_or_zero, timedelta(days=1))
    if target is None or timeout is None or strategy is None:
        return None
    return WaitDeclaration(
        name=name,
        target=target,
        acceptors=Acceptors(**listed),
        timeout=None if timeout == FOREVER else timeout,
        strategy=strategy,
        attempt_timeout=attempt_timeout,
        times_in_row=times_in_row,
        stable_for=stable_for,
        retry_on=retry_on,
        hint_clamp=hint_clamp,
    )


def _read_target(table: Table, name: str, way: str | None) -> Address | Program | None:
    """What is asked. All that is there is read, so that every mistake is found also where there is too much."""
    url = table.find("url", http_url)
    argv = table.find("command", texts)
    method = table.find("method", _method)
    header_fields = table.find("headers", headers) or {}
    body = table.find("body", _body)
    if way == "command":
        for key in ADDRESS_ONLY:
            if key in table:
                table.place.at(key).refuse_key("is for an address, and this is a command", f"Remove {key}.")
        return Program(argv) if argv is not None else None
    if url is None:
        return None
    base, path = split_url(url)
    request = RequestTemplate(
        method or ("GET" if body is None else "POST"), path, body=None if isinstance(body, Template) else body
    )
    connection = Connection(name, "", base, header_fields)
    return Address(connection, request, body if isinstance(body, Template) else None)


def _body(place: Place, value: object) -> Any:
    """Text, which is sent as it is, or data, which is sent as JSON."""
    if isinstance(value, str):
        return with_variables(place, value)
    return json_data(place, value)


def _timeout(place: Place, value: object) -> Any:
    return FOREVER if value == FOREVER else duration(place, value)


def _method(place: Place, value: object) -> str | None:
    word = text(place, value)
    if word is None or word.upper() in METHODS:
        return word.upper() if word else None
    place.refuse(f"{word!r} is not a method", nearest_or_known(word.upper(), METHODS))
    return None


def _failures(place: Place, value: object) -> frozenset[str] | None:
    """Kinds of failed calls: a list of words, which may be empty."""
    if isinstance(value, str) or not isinstance(value, list | tuple):
        place.refuse(
            f"must be a list of kinds of failures, not {kind_of(value)}",
            f'Write it as a list: ["{FAILURES[0]}"].',
        )
        return None
    for index, word in enumerate(value):
        if word not in FAILURES:
            shown = repr(word) if isinstance(word, str) else kind_of(word)
            place.item(index).refuse(f"{shown} is no kind of failure", nearest_or_known(str(word), FAILURES))
    return frozenset(word for word in value if word in FAILURES)
