"""Everything that is refused in a connection, each at its place."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bide.config import Compiled

EU = "connections.eu"
KEY, VALUE = "connection.key_invalid", "connection.value_invalid"

REFUSED = {
    "block": ({"connections": [1]}, VALUE, "connections", "must be a table, not a list", "block"),
    "connection-is-no-table": ({EU: "shop"}, VALUE, EU, "must be a table, not text", "block"),
    "name": (
        {"connections.e u": {"package": "shop", "base_url": "http://x.org"}},
        KEY,
        'connections."e u"',
        "cannot be the name of a connection",
        "letter",
    ),
    "unknown-key": ({f"{EU}.base_ur": "x"}, KEY, f"{EU}.base_ur", "not known", "'base_url'"),
    "missing-package": ({f"{EU}.package": None}, KEY, f"{EU}.package", "is missing", 'package = "shop"'),
    "missing-base-url": ({f"{EU}.base_url": None}, KEY, f"{EU}.base_url", "is missing", "base_url ="),
    "unknown-package": ({f"{EU}.package": "shp"}, VALUE, f"{EU}.package", "no package 'shp'", "'shop'"),
    "package-no-text": ({f"{EU}.package": 1}, VALUE, f"{EU}.package", "must be text, not 1", "quotes"),
    "url-scheme": (
        {f"{EU}.base_url": "ftp://x.org"},
        VALUE,
        f"{EU}.base_url",
        "http:// or https://",
        "https://",
    ),
    "url-without-scheme": (
        {f"{EU}.base_url": "x.org:80"},
        VALUE,
        f"{EU}.base_url",
        "http:// or https://",
        "https",
    ),
    "url-without-host": ({f"{EU}.base_url": "http:///p"}, VALUE, f"{EU}.base_url", "has no host", "https://"),
    "url-port": (
        {f"{EU}.base_url": "http://x:99999"},
        VALUE,
        f"{EU}.base_url",
        "port out of range",
        "https://",
    ),
    "url-space": ({f"{EU}.base_url": "http://x .org"}, VALUE, f"{EU}.base_url", "a space", "https://"),
    "url-fragment": ({f"{EU}.base_url": "http://x.org/#a"}, VALUE, f"{EU}.base_url", "#", "before the #"),
    "url-no-text": ({f"{EU}.base_url": 8000}, VALUE, f"{EU}.base_url", "must be text, not 8000", "quotes"),
    "header-no-text": (
        {f"{EU}.headers": {"A": 1}},
        VALUE,
        f"{EU}.headers.A",
        "must be text, not 1",
        "quotes",
    ),
    "header-variable": ({f"{EU}.headers": {"A": "${}"}}, VALUE, f"{EU}.headers.A", "${", "${API_TOKEN}"),
    "headers-no-table": ({f"{EU}.headers": "A: b"}, VALUE, f"{EU}.headers", "must be a table", "block"),
    "cap-raised": (
        {f"{EU}.max_concurrent": 5},
        VALUE,
        f"{EU}.max_concurrent",
        "5 is more than the 4",
        "4 or less",
    ),
    "cap-zero": (
        {f"{EU}.max_concurrent": 0},
        VALUE,
        f"{EU}.max_concurrent",
        "at least 1, not 0",
        "1 or more",
    ),
    "cap-negative": ({f"{EU}.max_concurrent": -1}, VALUE, f"{EU}.max_concurrent", "at least 1", "1 or more"),
    "cap-not-whole": (
        {f"{EU}.max_concurrent": 1.5},
        VALUE,
        f"{EU}.max_concurrent",
        "whole number",
        "1 or more",
    ),
    "cap-true": ({f"{EU}.max_concurrent": True}, VALUE, f"{EU}.max_concurrent", "not true", "1 or more"),
    "cap-text": ({f"{EU}.max_concurrent": "2"}, VALUE, f"{EU}.max_concurrent", "not text", "1 or more"),
    "unknown-poll": (
        {f"{EU}.polls": {"pricee": "5m"}},
        KEY,
        f"{EU}.polls.pricee",
        "package shop has no poll 'pricee'",
        "'price'",
    ),
    "interval-below-the-tick": (
        {f"{EU}.polls.price": "30s"},
        VALUE,
        f"{EU}.polls.price",
        "30s is shorter than the tick, 1m",
        '"1m"',
    ),
    "interval-zero": ({f"{EU}.polls.price": 0}, VALUE, f"{EU}.polls.price", "zero", '"1m" or'),
    "interval-negative": ({f"{EU}.polls.price": "-5m"}, VALUE, f"{EU}.polls.price", "negative", "5s"),
    "interval-unreadable": ({f"{EU}.polls.price": "5 mins"}, VALUE, f"{EU}.polls.price", "'5 mins'", "5s"),
    "interval-not-a-number": ({f"{EU}.polls.price": math.nan}, VALUE, f"{EU}.polls.price", "nan", "5s"),
    "interval-true": ({f"{EU}.polls.price": True}, VALUE, f"{EU}.polls.price", "True", "5s"),
    "interval-as-a-block": (
        {f"{EU}.polls.price": {"every": "5m"}},
        VALUE,
        f"{EU}.polls.price",
        "duration",
        "5s",
    ),
    "polls-no-table": ({f"{EU}.polls": "5m"}, VALUE, f"{EU}.polls", "must be a table, not text", "block"),
    "quiet-after": ({f"{EU}.quiet_after": 0}, VALUE, f"{EU}.quiet_after", "zero", "1ms"),
    "paused": ({f"{EU}.paused": "yes"}, VALUE, f"{EU}.paused", "true or false, not text", "without quotes"),
    "hint-clamp": ({f"{EU}.hint_clamp": "-1d"}, VALUE, f"{EU}.hint_clamp", "negative", "5s"),
}

Check = Callable[..., Compiled]


def only(compiled: Compiled, code: str, where: str, says: str, suggests: str) -> None:
    """Assert that this one mistake was found, and nothing else."""
    assert compiled.declarations is None
    assert [(found.code, found.where) for found in compiled.mistakes] == [(code, where)]
    assert says in compiled.mistakes[0].message
    assert suggests in (compiled.mistakes[0].suggestion or "")


@pytest.mark.parametrize(("changes", "code", "where", "says", "suggests"), REFUSED.values(), ids=REFUSED)
def test_refused_in_a_connection(
    check: Check, *, changes: dict[str, object], code: str, where: str, says: str, suggests: str
) -> None:
    only(check(changes), code, where, says, suggests)


def test_polls_on_a_connection_to_a_package_with_none(check: Check) -> None:
    compiled = check({"packages.shop.polls": None})
    only(compiled, KEY, f"{EU}.polls", "package shop has no polls", "Remove polls")


def test_intervals_are_read_where_the_package_is_not_known(check: Check) -> None:
    compiled = check({f"{EU}.package": "nothing_like_it", f"{EU}.polls.price": "1s"})
    assert [found.where for found in compiled.mistakes] == [f"{EU}.package", f"{EU}.polls.price"]


@pytest.mark.parametrize(
    "url", ["${SHOP_URL}", "https://${HOST}:${PORT}/v1", "http://127.0.0.1/v1?key=${SHOP_TOKEN}"]
)
def test_addresses_may_hold_variables(check: Check, url: str) -> None:
    assert check({f"{EU}.base_url": url}).mistakes == ()


def test_a_connection_may_lower_the_cap_or_set_one_where_the_package_has_none(check: Check) -> None:
    def cap(changes: dict[str, object]) -> int | None:
        declarations = check(changes).declarations
        assert declarations is not None
        return declarations.connections["eu"].max_concurrent

    assert cap({}) == 2
    assert cap({f"{EU}.max_concurrent": 4}) == 4
    assert cap({f"{EU}.max_concurrent": None}) == 4
    assert cap({"packages.shop.max_concurrent": None, f"{EU}.max_concurrent": 9}) == 9
    assert cap({"packages.shop.max_concurrent": None, f"{EU}.max_concurrent": None}) is None


def test_hints_can_be_ignored_and_waits_of_no_length_cannot(check: Check) -> None:
    declarations = check(
        {f"{EU}.hint_clamp": 0, f"{EU}.quiet_after": "2d", f"{EU}.paused": True}
    ).declarations
    assert declarations is not None
    connection = declarations.connections["eu"]
    assert connection.hint_clamp.total_seconds() == 0
    assert connection.quiet_after is not None
    assert connection.quiet_after.days == 2
    assert connection.paused


PACKAGE_IN_PYTHON = """
from bide.package import Package

shop = Package("{name}", max_concurrent=3)
shop.operation("price", get="/price", answer={{"price": float}})
changed = shop.event("PriceChanged", {{"price": float}}, public={public})
shop.poll("price", call="price", every="1m", emits=changed)
number = 7
"""


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Writes a module of its own for each test, and forgets it afterwards."""
    name = f"shop_of_{abs(hash(request.node.nodeid))}"
    path = list(sys.path)

    def write(text: str = PACKAGE_IN_PYTHON, **words: object) -> str:
        (tmp_path / f"{name}.py").write_text(text.format(**{"name": "store", "public": True, **words}))
        return name

    yield write
    sys.modules.pop(name, None)
    sys.path[:] = path


def test_a_package_declared_in_python(check: Check, module: Callable[..., str]) -> None:
    reference = f"{module()}:shop"
    own = {"package": reference, "base_url": "http://x.org"}
    compiled = check(
        {
            "connections": {"one": own, "two": own},
            "packages": None,
            "subscribers.audit.on": "store.PriceChanged",
        }
    )
    assert compiled.mistakes == ()
    assert compiled.declarations is not None
    assert compiled.declarations.connections["one"].package == "store"
    assert compiled.declarations.connections["one"].max_concurrent == 3
    assert {"one.price", "two.price"} <= set(compiled.declarations.polls)


def test_mistakes_of_a_package_in_python_have_their_places_too(
    check: Check, module: Callable[..., str]
) -> None:
    own = {"package": f"{module(public=False)}:shop", "base_url": "http://x.org", "polls": {"prices": "5m"}}
    found = check({"connections": {"one": own}, "packages": None, "subscribers": None}).mistakes
    assert [(mistake.code, mistake.where) for mistake in found] == [
        ("connection.key_invalid", "connections.one.polls.prices"),
        ("package.provider_invalid", "packages.store.polls.price.emits"),
    ]


def test_two_packages_of_one_name(check: Check, module: Callable[..., str]) -> None:
    other = {"package": f"{module(name='shop')}:shop", "base_url": "http://x.org"}
    only(
        check({"connections.other": other}),
        VALUE,
        "connections.other.package",
        "another package named 'shop'",
        "name",
    )


@pytest.mark.parametrize(
    ("attribute", "says", "suggests"),
    [
        ("shpo", "has no shpo", "'shop'"),
        ("number", "is 7, not a package", "bide.Package"),
        ("1x", "is not module:name", "my.module"),
    ],
)
def test_references_to_no_package(
    check: Check, module: Callable[..., str], attribute: str, says: str, suggests: str
) -> None:
    compiled = check({f"{EU}.package": f"{module()}:{attribute}", f"{EU}.polls": None})
    only(compiled, VALUE, f"{EU}.package", says, suggests)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("raise RuntimeError('no luck')", "failed: RuntimeError: no luck"),
        ("import surely_not_there", "failed: ModuleNotFoundError: No module named 'surely_not_there'"),
        ("raise SystemExit(3)", "failed: SystemExit: 3"),
        ("def (", "failed: SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_imported(
    check: Check, module: Callable[..., str], text: str, says: str
) -> None:
    name = module(text)
    compiled = check({f"{EU}.package": f"{name}:shop"})
    only(compiled, VALUE, f"{EU}.package", f"importing module {name} {says}", f"import {name}")


def test_a_module_that_is_not_there(check: Check, tmp_path: Path) -> None:
    path = list(sys.path)
    compiled = check({f"{EU}.package": "surely.not_there:shop"})
    sys.path[:] = path
    only(compiled, VALUE, f"{EU}.package", "there is no module surely.not_there", str(tmp_path))
