"""The check as a whole: every mistake at once, in order, without secrets, network or store."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bide.config import Compiled, compile_declarations
from bide.core.declaration import Twice

Check = Callable[..., Compiled]

FIFTEEN = """
surprise = true

[app]
tick = "1m"
retentoin = "7d"

[packages.shop]
max_concurrent = 2.5
[packages.shop.operations.price]
get = "price"
answer = { symbol = "str", price = "number" }
select = { price = "data..price" }
[packages.shop.events.PriceChanged]
public = true
fields = { symbol = "int", price = "number" }
[packages.shop.polls.price]
call = "prise"
every = "10s"
emits = "PriceChanged"
[packages.shop.polls.more]
call = "price"
every = "1m"
emits = "PriceChanged"

[connections.eu]
package = "shop"
base_url = "127.0.0.1:9000"
max_concurrent = true
polls = { prices = "5m", price = "soon" }

[subscribers.audit]
on = "shop.PriceChange"
webhook = "http://127.0.0.1:9001/hook"
within = nan

[subscribers.log]
on = "shop.PriceChanged"
command = "python3 log.py"

[watches.release]
every = "5m"
to = [{ webhook = "https://x.org", command = ["x"] }]
"""

FOUND = [
    ("config.key_invalid", "app.retentoin"),
    ("connection.value_invalid", "connections.eu.base_url"),
    ("connection.value_invalid", "connections.eu.max_concurrent"),
    ("connection.value_invalid", "connections.eu.polls.price"),
    ("connection.key_invalid", "connections.eu.polls.prices"),
    ("package.provider_invalid", "packages.shop.max_concurrent"),
    ("package.provider_invalid", "packages.shop.operations.price.get"),
    ("package.provider_invalid", "packages.shop.operations.price.select.price"),
    ("package.provider_invalid", "packages.shop.polls.more.emits"),
    ("package.provider_invalid", "packages.shop.polls.price.call"),
    ("package.provider_invalid", "packages.shop.polls.price.every"),
    ("subscriber.value_invalid", "subscribers.audit.on"),
    ("subscriber.value_invalid", "subscribers.audit.within"),
    ("subscriber.value_invalid", "subscribers.log.command"),
    ("config.key_invalid", "surprise"),
    ("watch.key_invalid", "watches.release.to[0]"),
    ("watch.key_invalid", "watches.release.url"),
]


def test_every_mistake_at_once(tmp_path: Path) -> None:
    compiled = compile_declarations(tomllib.loads(FIFTEEN), folder=tmp_path, environment={})
    assert compiled.declarations is None
    assert [(found.code, found.where) for found in compiled.mistakes] == FOUND
    assert all(found.suggestion for found in compiled.mistakes)


def test_the_order_does_not_depend_on_the_order_of_the_file(tmp_path: Path) -> None:
    def reversed_tables(table: Any) -> Any:
        return {k: reversed_tables(table[k]) for k in reversed(table)} if isinstance(table, dict) else table

    tables = tomllib.loads(FIFTEEN)
    there = compile_declarations(tables, folder=tmp_path).mistakes
    back = compile_declarations(reversed_tables(tables), folder=tmp_path).mistakes
    assert [(found.code, found.where) for found in there] == [(found.code, found.where) for found in back]


def test_a_good_file_has_no_mistakes(check: Check) -> None:
    compiled = check({})
    assert compiled.mistakes == ()
    assert compiled.warnings == ()
    assert compiled.declarations is not None


def test_nothing_declared_is_no_mistake(tmp_path: Path) -> None:
    compiled = compile_declarations({}, folder=tmp_path)
    assert compiled.declarations is not None
    assert dict(compiled.declarations.polls) == {}


def test_a_missing_variable_is_a_warning_with_every_place_that_uses_it(check: Check) -> None:
    use = {
        "subscribers.audit.headers": {"X-Token": "${SHOP_TOKEN}"},
        "watches.python_release.url": "${SHOP_TOKEN}",
    }
    compiled = check(use, environment={"AUDIT_SECRET": ""})
    assert compiled.declarations is not None
    (warning,) = compiled.warnings
    assert warning.code == "environment.variable_missing"
    assert warning.where == "connections.eu.headers.Authorization"
    assert warning.message == (
        "the environment variable SHOP_TOKEN is not set; it is used at connections.eu.headers.Authorization, "
        "subscribers.audit.headers.X-Token and watches.python_release.url"
    )
    assert "Set SHOP_TOKEN" in (warning.suggestion or "")


def test_variables_of_requests_are_looked_for_too(check: Check) -> None:
    request = {
        "method": "POST",
        "path": "/${PATH_PART}",
        "query": {"key": "${QUERY_KEY}"},
        "headers": {"X-Key": "${HEADER_KEY}"},
        "body": {"text": "first\n${BODY_TEXT}", "list": ["${BODY_ITEM}", 1, 1.5, True, None, ""]},
    }
    change = {"packages.shop.operations.price.get": None, "packages.shop.operations.price.request": request}
    missing = [warning.message.split()[3] for warning in check(change).warnings]
    assert sorted(missing) == ["BODY_ITEM", "BODY_TEXT", "HEADER_KEY", "PATH_PART", "QUERY_KEY"]


def test_warnings_count_as_mistakes_where_the_check_is_strict(check: Check) -> None:
    strict = check({}, environment={}).strictly()
    assert strict.declarations is None
    assert [found.code for found in strict.mistakes] == ["environment.variable_missing"] * 2
    assert strict.warnings == ()
    assert check({}).strictly().declarations is not None
    both = check({"app.tick": 0}, environment={}).strictly().mistakes
    assert [found.where.partition(".")[0] for found in both] == ["app", "connections", "subscribers"]


def test_the_environment_of_the_process_is_looked_at(
    good: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "1")
    monkeypatch.delenv("AUDIT_SECRET", raising=False)
    warnings = compile_declarations(good, folder=tmp_path).warnings
    assert [warning.where for warning in warnings] == ["subscribers.audit.secret"]


def test_no_mistake_shows_what_may_be_a_secret(check: Check) -> None:
    secret = "hunter2"
    changes: dict[str, object] = {
        "connections.eu.headers": {"Authorization": f"{secret}\n", "X": [secret]},
        "connections.eu.base_url": f"user:{secret}@x.org",
        "connections.eu.max_concurrent": secret,
        "subscribers.audit.secret": f"whsec_{secret}!",
        "subscribers.audit.webhook": f"https://x y/{secret}",
        "app.provider": f"postgresql://bide:{secret}@db:port/bide",
    }
    compiled = check(changes)
    assert len(compiled.mistakes) == len(changes) + 1
    assert not any(secret in str(found) for found in compiled.mistakes)


def test_names_given_twice_and_names_that_are_no_text(check: Check) -> None:
    block = {"on": "shop.PriceChanged", "command": ["x"]}
    compiled = check({"subscribers": {"audit": Twice(block, block), 7: block}})
    assert [(found.code, found.where) for found in compiled.mistakes] == [
        ("subscriber.key_invalid", "subscribers.7"),
        ("subscriber.key_invalid", "subscribers.audit"),
    ]
    assert "more than once" in compiled.mistakes[1].message


def test_keys_that_toml_would_quote_are_quoted(check: Check) -> None:
    compiled = check({"connections.eu.polls": {'a "b".c': "5m"}})
    assert [found.where for found in compiled.mistakes] == ['connections.eu.polls."a \\"b\\".c"']


@pytest.mark.parametrize("value", [3, [], "text"])
def test_what_is_no_table_at_all(value: Any, tmp_path: Path) -> None:
    compiled = compile_declarations(value, folder=tmp_path)
    assert [found.code for found in compiled.mistakes] == ["config.value_invalid"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "nothing"),
        (object(), "a value of type object"),
        (print, "a function or class"),
        (b"x", "of type bytes"),
    ],
)
def test_what_python_can_say_and_toml_cannot(value: object, shown: str, tmp_path: Path) -> None:
    (found,) = compile_declarations({"app": {"provider": value}}, folder=tmp_path).mistakes
    assert found.message.endswith(shown)
