"""Everything that is refused in a package, each at its place."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from bide.config import Compiled

SHOP = "packages.shop"
PRICE = f"{SHOP}.polls.price"
OPERATION = f"{SHOP}.operations.price"
EVENT = f"{SHOP}.events.PriceChanged"

ANSWER = {"symbol": "str", "price": "number"}


async def ask(client: object) -> dict[str, object]:
    return {"symbol": "EU", "price": 1}


def ask_at_once(client: object) -> dict[str, object]:
    return {}


def operation(**changes: object) -> dict[str, object]:
    """An operation that a poll may call, with ``changes``; None takes an entry away."""
    block: dict[str, object] = {"get": "/price", "answer": ANSWER, **changes}
    return {key: value for key, value in block.items() if value is not None}


POLLS = {
    "missing-call": ({f"{PRICE}.call": None}, f"{PRICE}.call", "is missing", 'call = "price"'),
    "missing-every": ({f"{PRICE}.every": None}, f"{PRICE}.every", "is missing", 'every = "1m"'),
    "missing-emits": ({f"{PRICE}.emits": None}, f"{PRICE}.emits", "is missing", 'emits = "PriceChanged"'),
    "extra-key": ({f"{PRICE}.evry": "5m"}, f"{PRICE}.evry", "not known", "'every'"),
    "max-concurrent-is-not-a-poll's": (
        {f"{PRICE}.max_concurrent": 1},
        f"{PRICE}.max_concurrent",
        "not known",
        "call",
    ),
    "unknown-call": ({f"{PRICE}.call": "pric"}, f"{PRICE}.call", "no operation 'pric'", "'price'"),
    "call-of-another-package": ({f"{PRICE}.call": "other.price"}, f"{PRICE}.call", "no operation", "'price'"),
    "call-is-no-text": ({f"{PRICE}.call": 1}, f"{PRICE}.call", "must be text, not 1", "quotes"),
    "call-takes-input": (
        {OPERATION: operation(input={"id": "str"})},
        f"{PRICE}.call",
        "takes input",
        "without input",
    ),
    "call-changes-things": (
        {OPERATION: operation(changes=True)},
        f"{PRICE}.call",
        "changes things",
        "only reads",
    ),
    "call-answers-a-list": (
        {OPERATION: operation(answer="list")},
        f"{PRICE}.call",
        "object of declared fields",
        "answer",
    ),
    "call-answers-an-open-object": (
        {OPERATION: operation(answer="object")},
        f"{PRICE}.call",
        "declared fields",
        "answer",
    ),
    "call-answers-nothing": (
        {OPERATION: operation(answer=None)},
        f"{PRICE}.call",
        "declared fields",
        "answer",
    ),
    "call-answers-no-field": (
        {OPERATION: operation(answer={})},
        f"{PRICE}.call",
        "declared fields",
        "answer",
    ),
    "every-below-the-tick": (
        {f"{PRICE}.every": "59s"},
        f"{PRICE}.every",
        "59s is shorter than the tick, 1m",
        '"1m"',
    ),
    "every-zero": ({f"{PRICE}.every": 0}, f"{PRICE}.every", "zero", '"1m" or longer'),
    "every-below-a-millisecond": (
        {f"{PRICE}.every": 0.0001},
        f"{PRICE}.every",
        "shorter than a millisecond",
        '"1m" or longer',
    ),
    "every-negative": ({f"{PRICE}.every": -60}, f"{PRICE}.every", "negative", "5s"),
    "every-not-a-number": ({f"{PRICE}.every": math.nan}, f"{PRICE}.every", "nan", "5s"),
    "every-infinite": ({f"{PRICE}.every": math.inf}, f"{PRICE}.every", "inf", "5s"),
    "every-true": ({f"{PRICE}.every": True}, f"{PRICE}.every", "True", "5s"),
    "every-unreadable": ({f"{PRICE}.every": "often"}, f"{PRICE}.every", "'often'", "5s"),
    "every-a-date": ({f"{PRICE}.every": datetime(2026, 1, 1)}, f"{PRICE}.every", "not a duration", "5s"),  # noqa: DTZ001
    "every-a-table": ({f"{PRICE}.every": {"minutes": 1}}, f"{PRICE}.every", "not a duration", "5s"),
    "unknown-event": (
        {f"{PRICE}.emits": "PriceChangd"},
        f"{PRICE}.emits",
        "no event 'PriceChangd'",
        "'PriceChanged'",
    ),
    "event-by-its-full-name": (
        {f"{PRICE}.emits": "shop.PriceChanged"},
        f"{PRICE}.emits",
        "no event",
        "'PriceChanged'",
    ),
    "poll-is-no-table": ({PRICE: "price"}, PRICE, "must be a table, not text", "block"),
    "polls-is-no-table": (
        {f"{SHOP}.polls": ["price"], "connections.eu.polls": None},
        f"{SHOP}.polls",
        "a list",
        "block",
    ),
}

EMITS = {
    "wire-name": ({f"{EVENT}.wire_name": "price.changed"}, "wire_name", "Remove wire_name"),
    "field-not-answered": ({f"{EVENT}.fields": {"prise": "number"}}, "no field 'prise'", "'price'"),
    "field-of-another-type": (
        {f"{EVENT}.fields": {"price": "int"}},
        "'price' is int, and",
        'price = "number"',
    ),
    "optional-is-another-type": (
        {f"{EVENT}.fields": {"price": "number?"}},
        "'price' is number?",
        'price = "number"',
    ),
}

BLOCKS = {
    "packages-is-no-table": ({"packages": 3}, "packages", "must be a table, not 3", "block"),
    "package-is-no-table": ({"packages.other": "x"}, "packages.other", "must be a table, not text", "block"),
    "package-key": ({f"{SHOP}.max_concurent": 1}, f"{SHOP}.max_concurent", "not known", "'max_concurrent'"),
    "package-name": ({"packages": {"my shop": {}}}, 'packages."my shop"', "cannot be the name", "letters"),
    "operation-name": (
        {f"{SHOP}.operations.1st": operation()},
        f"{SHOP}.operations.1st",
        "cannot be the name",
        "letter",
    ),
    "cap-below-one": (
        {f"{SHOP}.max_concurrent": 0},
        f"{SHOP}.max_concurrent",
        "at least 1, not 0",
        "1 or more",
    ),
    "cap-negative": ({f"{SHOP}.max_concurrent": -3}, f"{SHOP}.max_concurrent", "not -3", "1 or more"),
    "cap-not-whole": ({f"{SHOP}.max_concurrent": 2.5}, f"{SHOP}.max_concurrent", "whole number", "1 or more"),
    "cap-whole-but-written-as-fraction": (
        {f"{SHOP}.max_concurrent": 4.0},
        f"{SHOP}.max_concurrent",
        "not 4.0",
        "1",
    ),
    "cap-true": ({f"{SHOP}.max_concurrent": True}, f"{SHOP}.max_concurrent", "not true", "1 or more"),
    "cap-text": ({f"{SHOP}.max_concurrent": "4"}, f"{SHOP}.max_concurrent", "not text", "1 or more"),
    "cap-not-a-number": (
        {f"{SHOP}.max_concurrent": math.nan},
        f"{SHOP}.max_concurrent",
        "not nan",
        "1 or more",
    ),
    "event-not-a-table": ({f"{SHOP}.events.Other": 1}, f"{SHOP}.events.Other", "must be a table", "block"),
    "event-key": ({f"{EVENT}.feilds": {}}, f"{EVENT}.feilds", "not known", "'fields'"),
    "event-without-fields": (
        {f"{SHOP}.events.Other": {}},
        f"{SHOP}.events.Other.fields",
        "is missing",
        "fields =",
    ),
    "event-of-no-fields": (
        {f"{SHOP}.events.Other": {"fields": {}}},
        f"{SHOP}.events.Other.fields",
        "no field",
        "price",
    ),
    "event-type": (
        {f"{EVENT}.fields.symbol": "srt"},
        f"{EVENT}.fields.symbol",
        "'srt' is not a type",
        "'str'",
    ),
    "event-public": (
        {f"{EVENT}.public": "yes"},
        f"{EVENT}.public",
        "true or false, not text",
        "without quotes",
    ),
    "occurred-at-unknown": (
        {f"{EVENT}.occurred_at": "simbol"},
        f"{EVENT}.occurred_at",
        "not a field",
        "'symbol'",
    ),
    "occurred-at-no-time": (
        {f"{EVENT}.occurred_at": "symbol"},
        f"{EVENT}.occurred_at",
        "is str",
        '"datetime"',
    ),
    "wire-name-empty": (
        {f"{SHOP}.events.Other": {"fields": {"a": "any"}, "wire_name": " "}},
        f"{SHOP}.events.Other.wire_name",
        "is empty",
        "leave the key out",
    ),
}

OPERATIONS = {
    "no-table": ("/price", "", "must be a table, not text", "block"),
    "query-no-table": (
        operation(get=None, request={"path": "/p", "query": "a=b"}),
        "request.query",
        "a table",
        "block",
    ),
    "key": (operation(selct={}), "selct", "not known", "'select'"),
    "no-way-to-ask": (
        operation(get=None),
        "",
        "needs exactly one of get, request or function",
        'get = "/path"',
    ),
    "two-ways-to-ask": (operation(request={"path": "/p"}), "", "has get and request", "remove the other"),
    "path-of-another-host": (operation(get="https://x.org/p"), "get", "begins with /", "base_url"),
    "path-relative": (operation(get="price"), "get", "begins with /", '"/price"'),
    "path-with-a-space": (operation(get="/a b"), "get", "a space", "%20"),
    "path-empty": (operation(get=""), "get", "is empty", "Fill it in"),
    "path-bad-variable": (operation(get="/${a b}"), "get", "${", "${API_TOKEN}"),
    "request-no-table": (operation(get=None, request="/p"), "request", "must be a table", "block"),
    "request-key": (
        operation(get=None, request={"path": "/p", "querry": {}}),
        "request.querry",
        "not known",
        "'query'",
    ),
    "request-without-path": (operation(get=None, request={}), "request.path", "is missing", 'path = "/path"'),
    "method": (
        operation(get=None, request={"path": "/p", "method": "PSOT"}),
        "request.method",
        "'PSOT'",
        "'POST'",
    ),
    "method-case": (
        operation(get=None, request={"path": "/p", "method": "get"}),
        "request.method",
        "'get'",
        "'GET'",
    ),
    "query-truth": (
        operation(get=None, request={"path": "/p", "query": {"a": True}}),
        "request.query.a",
        "true",
        "quotes",
    ),
    "header-name": (
        operation(get=None, request={"path": "/p", "headers": {"A b": "1"}}),
        'request.headers."A b"',
        "not the name of a header",
        "X-Api-Key",
    ),
    "header-twice": (
        operation(get=None, request={"path": "/p", "headers": {"Accept": "a", "accept": "b"}}),
        "request.headers.accept",
        "the same header as Accept",
        "Keep one",
    ),
    "header-with-a-line-break": (
        operation(get=None, request={"path": "/p", "headers": {"A": "b\nC: d"}}),
        "request.headers.A",
        "line break",
        "one line",
    ),
    "body-not-a-number": (
        operation(get=None, request={"path": "/p", "body": {"a": [1, math.nan]}}),
        "request.body.a[1]",
        "JSON does not have",
        "finite",
    ),
    "body-date": (
        operation(get=None, request={"path": "/p", "body": {"a": timedelta(1)}}),
        "request.body.a",
        "JSON does not have",
        "as text",
    ),
    "function-no-reference": (
        operation(get=None, function="price"),
        "function",
        "not module:name",
        "my.module:name",
    ),
    "function-no-function": (
        operation(get=None, function=3),
        "function",
        "must be a function, not 3",
        "my.module",
    ),
    "function-not-async": (
        operation(get=None, function=ask_at_once),
        "function",
        "not an async",
        "async def",
    ),
    "function-with-select": (
        operation(get=None, function=ask, select={"price": "p"}),
        "select",
        "a function answers the fields",
        "Remove select",
    ),
    "answer-type": (
        operation(answer={**ANSWER, "x": "nubmer"}),
        "answer.x",
        "'nubmer' is not a type",
        "'number'",
    ),
    "answer-type-by-another-name": (
        operation(answer={**ANSWER, "x": "float"}),
        "answer.x",
        "'float'",
        "number",
    ),
    "answer-no-type": (
        operation(answer={**ANSWER, "x": "zzz"}),
        "answer.x",
        "'zzz'",
        "str, int, number, bool",
    ),
    "answer-nested": (
        operation(answer={**ANSWER, "x": {"y": "int"}}),
        "answer.x",
        "a table is not a type",
        "object",
    ),
    "answer-number": (operation(answer=3), "answer", "must be a table, not 3", "block"),
    "select-unknown": (
        operation(select={"prise": "p"}),
        "select.prise",
        "not a field of the answer",
        "'price'",
    ),
    "select-syntax": (
        operation(select={"price": "data..price"}),
        "select.price",
        "at character 6",
        "data.price",
    ),
    "select-unfinished": (
        operation(select={"price": "items["}),
        "select.price",
        "at character 7",
        "items[0]",
    ),
    "select-empty": (operation(select={"price": ""}), "select.price", "is empty", "Fill it in"),
    "select-function": (operation(select={"price": "summ(a)"}), "select.price", "calls summ()", "'sum'"),
    "select-arguments": (
        operation(select={"price": "sum(a, b)"}),
        "select.price",
        "takes 1 argument",
        "Mend",
    ),
    "select-no-table": (operation(select="price"), "select", "must be a table", "block"),
    "public": (operation(public=1), "public", "true or false, not 1", "without quotes"),
    "changes": (operation(changes="no"), "changes", "true or false", "without quotes"),
    "retry-negative": (operation(retry=-1), "retry", "at least 0, not -1", "0 or more"),
    "retry-true": (operation(retry=True), "retry", "not true", "0 or more"),
    "deadline-zero": (operation(deadline=0), "deadline", "zero", "1ms"),
    "deadline-text": (operation(deadline="soon"), "deadline", "'soon'", "5s"),
}

Check = Callable[..., Compiled]
NOTHING_ELSE = {"connections": None, "subscribers": None}
"""Takes away what would be wrong as well where there is no package shop any more."""


def only(compiled: Compiled, where: str, says: str, suggests: str) -> None:
    """Assert that this one mistake was found, and nothing else."""
    assert compiled.declarations is None
    assert [(found.code, found.where) for found in compiled.mistakes] == [("package.provider_invalid", where)]
    assert says in compiled.mistakes[0].message
    assert suggests in (compiled.mistakes[0].suggestion or "")


@pytest.mark.parametrize(("changes", "where", "says", "suggests"), POLLS.values(), ids=POLLS)
def test_refused_in_a_poll(
    check: Check, changes: dict[str, object], where: str, says: str, suggests: str
) -> None:
    only(check(changes), where, says, suggests)


@pytest.mark.parametrize(("changes", "says", "suggests"), EMITS.values(), ids=EMITS)
def test_refused_at_emits(check: Check, changes: dict[str, object], says: str, suggests: str) -> None:
    only(check(changes), f"{PRICE}.emits", says, suggests)


def test_an_event_that_is_not_public_is_refused_at_emits(check: Check) -> None:
    for public in (None, False):
        compiled = check({f"{EVENT}.public": public, "subscribers": None})
        only(compiled, f"{PRICE}.emits", "PriceChanged is not public", "public = true at events.PriceChanged")


@pytest.mark.parametrize(("changes", "where", "says", "suggests"), BLOCKS.values(), ids=BLOCKS)
def test_refused_in_a_package(
    check: Check, changes: dict[str, object], where: str, says: str, suggests: str
) -> None:
    only(check({**changes, **NOTHING_ELSE} if "packages" in changes else changes), where, says, suggests)


@pytest.mark.parametrize(("block", "key", "says", "suggests"), OPERATIONS.values(), ids=OPERATIONS)
def test_refused_in_an_operation(check: Check, block: object, key: str, says: str, suggests: str) -> None:
    only(check({OPERATION: block}), f"{OPERATION}.{key}" if key else OPERATION, says, suggests)


def test_every_field_that_the_answer_lacks_is_named(check: Check) -> None:
    compiled = check({f"{EVENT}.fields": {"prise": "number", "simbol": "str"}})
    assert [found.where for found in compiled.mistakes] == [f"{PRICE}.emits"] * 2
    assert [found.suggestion for found in compiled.mistakes] == [
        "Did you mean 'price'?",
        "Did you mean 'symbol'?",
    ]


def test_what_is_wrong_already_is_not_held_against_others(check: Check) -> None:
    """A type that cannot be read is one mistake: not one more at each poll and event that meets it."""
    compiled = check({f"{OPERATION}.answer.price": "nmber", f"{PRICE}.every": "1x"})
    assert [found.where for found in compiled.mistakes] == [f"{OPERATION}.answer.price", f"{PRICE}.every"]


def test_a_poll_may_call_a_private_operation_and_one_that_posts(check: Check) -> None:
    request = {"method": "POST", "path": "/graphql", "body": {"query": "{ price }", "first": 3}}
    assert check({OPERATION: operation(get=None, request=request, public=False)}).mistakes == ()


def test_an_operation_that_is_not_polled_may_be_of_any_shape(check: Check) -> None:
    block = operation(
        get=None, request={"path": "/p", "method": "PUT"}, changes=True, input="any", answer="list?"
    )
    assert check({f"{SHOP}.operations.put": block}).mistakes == ()


@pytest.mark.parametrize(
    "expression", ["items[0:2].price | [0]", "max_by(items, &price).price", "@", "a || `1`"]
)
def test_expressions(check: Check, expression: str) -> None:
    assert check({OPERATION: operation(select={"price": expression})}).mistakes == ()


def test_an_input_is_checked_as_fields_are(check: Check) -> None:
    other = f"{SHOP}.operations.other"
    only(check({other: operation(input={"id": "strr"})}), f"{other}.input.id", "'strr'", "'str'")
    only(check({other: operation(input="strr")}), f"{other}.input", "'strr'", "'str'")
    only(check({other: operation(input=3)}), f"{other}.input", "a table of fields, not 3", "type")


def test_an_input_of_no_fields_is_no_input(check: Check) -> None:
    assert check({OPERATION: operation(input={})}).mistakes == ()
