"""What good declarations compile to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from bide.config import BadReference, Compiled, resolve_function
from bide.core.declaration import Declarations, Function, Poll
from bide.core.fields import FieldType
from bide.core.http import Headers
from bide.core.template import Template

Check = Callable[..., Compiled]
OPERATION = "packages.shop.operations.price"


def declared(check: Check, changes: Mapping[str, object]) -> Declarations:
    declarations = check(changes).declarations
    assert declarations is not None
    return declarations


def poll(check: Check, changes: Mapping[str, object]) -> Poll:
    return declared(check, changes).polls["eu.price"]


def test_the_example(check: Check) -> None:
    declarations = declared(check, {})
    assert set(declarations.connections) == {"eu", "python_release"}
    eu = declarations.connections["eu"]
    assert (eu.package, eu.base_url, eu.max_concurrent) == ("shop", Template("http://127.0.0.1:9000"), 2)
    assert dict(eu.headers) == {"Authorization": Template("Bearer ${SHOP_TOKEN}")}
    assert (eu.paused, eu.quiet_after, eu.hint_clamp) == (False, None, timedelta(days=1))
    assert list(declarations.polls) == ["eu.price", "python_release.python_release"]
    price = declarations.polls["eu.price"]
    assert (price.connection, price.every, price.active) == ("eu", timedelta(minutes=5), True)
    assert price.operation.answer == {
        "symbol": FieldType("str"),
        "price": FieldType("number"),
        "fetched_at": FieldType("str"),
    }
    assert (price.operation.retries, price.operation.deadline) == (2, timedelta(seconds=30))
    assert price.event.name == "shop.PriceChanged"
    assert dict(price.event.fields) == {"symbol": FieldType("str"), "price": FieldType("number")}
    assert list(declarations.events) == ["python_release.Changed", "shop.PriceChanged"]
    assert declarations.events["shop.PriceChanged"] == price.event
    assert list(declarations.subscribers) == ["audit", "python_release-1"]


def test_the_reader_selects(check: Check) -> None:
    read = poll(check, {}).operation.reader.read
    answer = b'{"s": "EU", "data": {"price": 1.10}, "at": "now"}'
    assert read(answer, Headers()) == {"symbol": "EU", "price": Decimal("1.10"), "fetched_at": "now"}
    read = poll(check, {f"{OPERATION}.select": None}).operation.reader.read
    answer = b'{"symbol": "EU", "price": 1, "fetched_at": "now", "more": 2}'
    assert read(answer, Headers()) == {"symbol": "EU", "price": 1, "fetched_at": "now"}


def test_a_request_in_full(check: Check) -> None:
    request = {
        "method": "POST",
        "path": "/price",
        "query": {"limit": 5, "key": "${KEY}", "empty": ""},
        "headers": {"X-A": "b"},
        "body": {"list": [1, "x"]},
    }
    operation = poll(check, {f"{OPERATION}.get": None, f"{OPERATION}.request": request}).operation
    assert operation.request is not None
    assert operation.request.method == "POST"
    assert dict(operation.request.query) == {
        "limit": Template("5"),
        "key": Template("${KEY}"),
        "empty": Template(""),
    }
    assert dict(operation.request.headers) == {"X-A": Template("b")}
    assert operation.request.body == {"list": [1, "x"]}


def test_options_of_an_operation(check: Check) -> None:
    options = {f"{OPERATION}.retry": 0, f"{OPERATION}.deadline": "5s", f"{OPERATION}.public": True}
    operation = poll(check, options).operation
    assert (operation.retries, operation.deadline, operation.public) == (0, timedelta(seconds=5), True)


def test_when_an_event_occurred(check: Check) -> None:
    event = {"public": True, "fields": {"at": "datetime?"}, "occurred_at": "at"}
    compiled = poll(
        check, {f"{OPERATION}.answer.at": "datetime?", "packages.shop.events.PriceChanged": event}
    )
    assert compiled.event.occurred_at == "at"
    assert dict(compiled.event.fields) == {"at": FieldType("datetime", optional=True)}


@pytest.mark.parametrize(
    ("changes", "active", "reason"),
    [
        ({}, True, "heard by audit"),
        ({"subscribers": None}, False, "nobody hears shop.PriceChanged"),
        ({"subscribers.audit.on": "python_release.Changed"}, False, "nobody hears shop.PriceChanged"),
        ({"connections.eu.paused": True}, False, "connection eu is paused"),
        ({"subscribers": None, "connections.eu.paused": True}, False, "nobody hears shop.PriceChanged"),
        (
            {"subscribers.b": {"on": "shop.PriceChanged", "command": ["x"]}},
            True,
            "heard by audit, b",
        ),
    ],
)
def test_a_poll_is_active_while_somebody_hears_it(
    check: Check, changes: dict[str, object], active: bool, reason: str
) -> None:
    assert (poll(check, changes).active, poll(check, changes).reason) == (active, reason)


def test_each_connection_has_polls_of_its_own(check: Check) -> None:
    declarations = declared(
        check, {"connections.us": {"package": "shop", "base_url": "http://us.example.org"}}
    )
    assert {name: each.every for name, each in declarations.polls.items() if name.endswith(".price")} == {
        "eu.price": timedelta(minutes=5),
        "us.price": timedelta(minutes=1),
    }


async def ask(client: Any) -> dict[str, Any]:
    return {"symbol": "EU", "price": 1, "fetched_at": "now"}


@wraps(ask)
def ask_with_care(client: Any) -> Any:
    return ask(client)


@pytest.mark.parametrize("function", [ask, ask_with_care])
def test_an_operation_that_is_a_function(check: Check, function: Any) -> None:
    changes = {f"{OPERATION}.get": None, f"{OPERATION}.select": None, f"{OPERATION}.function": function}
    operation = poll(check, changes).operation
    assert operation.request is None
    assert operation.function is function


class TestFingerprint:
    """The text that validators are good for: it changes with what is asked and how the answer is read."""

    @pytest.mark.parametrize(
        "changes",
        [
            {f"{OPERATION}.get": "/prices"},
            {f"{OPERATION}.get": None, f"{OPERATION}.request": {"path": "/price", "query": {"a": "b"}}},
            {f"{OPERATION}.get": None, f"{OPERATION}.request": {"path": "/price", "body": [1]}},
            {f"{OPERATION}.get": None, f"{OPERATION}.request": {"path": "/price", "headers": {"A": "b"}}},
            {f"{OPERATION}.answer.more": "any"},
            {f"{OPERATION}.answer.fetched_at": "datetime"},
            {f"{OPERATION}.select.price": "price"},
            {"connections.eu.base_url": "http://127.0.0.1:9001"},
            {"connections.eu.headers": {"Authorization": "Bearer ${OTHER_TOKEN}"}},
        ],
    )
    def test_changes_with_the_declaration(self, check: Check, changes: dict[str, object]) -> None:
        assert poll(check, changes).operation.fingerprint != poll(check, {}).operation.fingerprint

    def test_is_the_same_for_what_means_the_same(self, check: Check) -> None:
        same = {
            f"{OPERATION}.get": None,
            f"{OPERATION}.request": {"path": "/price"},
            f"{OPERATION}.deadline": "9s",
        }
        assert poll(check, same).operation.fingerprint == poll(check, {}).operation.fingerprint
        renewed = check({}, environment={"SHOP_TOKEN": "another", "AUDIT_SECRET": "x"}).declarations
        assert renewed is not None
        assert renewed.polls["eu.price"].operation == poll(check, {}).operation

    def test_shows_no_secret(self, check: Check) -> None:
        written_out = {"connections.eu.headers": {"Authorization": "Bearer hunter2"}}
        assert "hunter2" not in poll(check, written_out).operation.fingerprint


def test_functions_are_resolved(tmp_path: Path) -> None:
    assert resolve_function(Function("anything", ask), tmp_path) is ask
    assert resolve_function(Function("math:sqrt"), tmp_path)(9) == 3
    with pytest.raises(BadReference, match="there is no module surely_not_there"):
        resolve_function(Function("surely_not_there:f"), tmp_path)
