"""JMESPath with exact numbers."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import jmespath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.core.canonical import read_json
from bide.core.selection import Selection
from bide.errors import AnswerError, SettingError

DATA = read_json(
    '{"price": 12.123456789012345678901234567890123456789, "text": "12.50", "none": null, "yes": true,'
    ' "items": [{"p": 1.10, "n": "b"}, {"p": 2, "n": "a"}, {"p": 0.3, "n": "c"}], "words": ["x", "y"]}'
)


def select(expression: str, data: Any = DATA) -> Any:
    with localcontext(prec=3):  # what the thread has set must not matter
        return Selection(expression).of(data)


def failing(expression: str, data: Any = DATA) -> str:
    with pytest.raises(AnswerError) as caught:
        Selection(expression).of(data)
    assert caught.value.where == ""
    assert len(caught.value.reason) < 400
    return caught.value.reason


def refused(expression: object) -> str:
    with pytest.raises(SettingError) as caught:
        Selection(expression, "select.price")
    assert caught.value.setting == "select.price"
    assert "\n" not in caught.value.reason
    assert len(caught.value.reason) < 400
    return caught.value.reason


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("price", Decimal("12.123456789012345678901234567890123456789")),
        ("items[0].p", Decimal("1.1")),
        ("items[-1].n", "c"),
        ("items[*].p", [Decimal("1.1"), 2, Decimal("0.3")]),
        ("items[1:].n", ["a", "c"]),
        ("items[::2].n", ["b", "c"]),
        ("{a: text, b: yes}", {"a": "12.50", "b": True}),
        ("[text, yes]", ["12.50", True]),
        ("nothing", None),
        ("none", None),
        ("@", DATA),
    ],
)
def test_paths(expression: str, found: object) -> None:
    assert select(expression) == found


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("items[?p == `1.1`].n", ["b"]),
        ("items[?p == `1.10`].n", ["b"]),
        ("items[?p != `1.1`].n", ["a", "c"]),
        ("items[?p > `0.5`].n", ["b", "a"]),
        ("items[?p >= `1.1` && p < `2`].n", ["b"]),
        ("items[?p == `2.0`].n", ["a"]),
        ("items[?contains(`[0.3, 2]`, p)].n", ["a", "c"]),
        ('items[?p == `{"a": 0.3}`.a].n', ["c"]),
        ("items[?n > `5`]", None),
    ],
)
def test_comparisons_with_literals_are_of_exact_numbers(expression: str, found: object) -> None:
    if found is None:
        assert "cannot be worked out" in failing(expression)
    else:
        assert select(expression) == found


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("sum(items[].p)", Decimal("3.40")),
        ("sum(`[]`)", 0),
        ("sum([price, price])", Decimal("24.246913578024691357802469135780246913578")),
        ("avg(items[1:].p)", Decimal("1.15")),
        ("avg(`[1, 1, 0]`)", Decimal("0." + "6" * 33 + "7")),
        ("avg(`[]`)", None),
        ("abs(price)", DATA["price"]),
        ("abs(`-1.5`)", Decimal("1.5")),
        ("abs(`-2`)", 2),
        ("ceil(price)", 13),
        ("floor(price)", 12),
        ("ceil(`-0.5`)", 0),
        ("floor(`-0.5`)", -1),
        ("floor(`3`)", 3),
        ("max(items[].p)", 2),
        ("min(items[].p)", Decimal("0.3")),
        ("max_by(items, &p).n", "a"),
        ("min_by(items, &p).n", "c"),
        ("sort(items[].p)", [Decimal("0.3"), Decimal("1.1"), 2]),
        ("sort_by(items, &p)[].n", ["c", "b", "a"]),
        ("sort_by(items, &n)[].n", ["a", "b", "c"]),
        ("sort(words)", ["x", "y"]),
        ("to_number(text)", Decimal("12.50")),
        ("to_number('7')", 7),
        ("to_number(' -1e3 ')", -1000),
        ("to_number(price)", DATA["price"]),
        ("to_number(`3`)", 3),
        ("to_string(price)", "12.123456789012345678901234567890123456789"),
        ("to_string(text)", "12.50"),
        ("to_string(items[0])", '{"n":"b","p":1.1}'),
        ("to_string(`1.50`)", "1.5"),
        ("type(price)", "number"),
        ("type(`1`)", "number"),
        ("type(`1.5`)", "number"),
        ("type(yes)", "boolean"),
        ("type(none)", "null"),
        ("type(words)", "array"),
        ("type(@)", "object"),
        ("type(text)", "string"),
        ("not_null(none, nothing, price)", DATA["price"]),
        ("length(items)", 3),
        ("join('-', words)", "x-y"),
        ("contains(items[].p, `0.3`)", True),
        ("map(&p, items)", [Decimal("1.1"), 2, Decimal("0.3")]),
        ('merge(items[0], `{"p": 9}`).p', 9),
    ],
)
def test_functions_do_not_round(expression: str, found: object) -> None:
    assert select(expression) == found


@pytest.mark.parametrize(
    "text", ["", "x", "1_000", "+5", "0x1", "inf", "nan", "1.", ".5", "01", "１２", "1 2"]
)
def test_to_number_takes_what_json_calls_a_number(text: str) -> None:
    assert select("to_number(@)", text) is None


@pytest.mark.parametrize("value", [None, True, [1], {"a": 1}])
def test_to_number_of_other_values_is_null(value: object) -> None:
    assert select("to_number(@)", value) is None


def test_floats_and_odd_values_from_functions() -> None:
    assert select("sum(@)", [0.1, 0.2, Decimal("0.3"), 1]) == Decimal("1.6")
    assert select("ceil(@)", 1.5) == 2
    assert select("abs(@)", -1.5) == 1.5
    assert select("type(@)", object()) is None


@pytest.mark.parametrize(
    "expression",
    [
        "sum(words)",
        "sum(text)",
        "abs(text)",
        "abs(yes)",
        "max([price, text])",
        "sort_by(items, &@)",
        "max_by(items, &@)",
        "join(',', items)",
        "contains(text, `1`)",
        "items[::0]",
        "length(price)",
        "to_number('1e9999999999999999999999')",
    ],
)
def test_what_cannot_be_worked_out_is_a_bad_answer(expression: str) -> None:
    failing(expression)


def test_a_sum_that_cannot_be_had_exactly_is_a_bad_answer() -> None:
    assert "more than 4300 digits" in failing("sum(@)", [Decimal("1e999999"), 1])


def test_a_bad_answer_names_the_expression_and_not_all_of_the_data() -> None:
    reason = failing("abs(@)", "x" * 10_000)
    assert reason.startswith("'abs(@)' cannot be worked out: ")


def test_an_error_without_words_is_named() -> None:
    class Silent(dict[str, object]):
        def get(self, *_: object) -> object:
            raise RuntimeError

    assert "RuntimeError" in failing("a", Silent())


@pytest.mark.parametrize(
    "expression",
    [
        "",
        " ",
        "a.",
        "a[",
        "a..b",
        "[?a >]",
        "foo(",
        "a b",
        "'unclosed",
        "`1",
        "#",
        "{a}",
        "(" * 5000,
        "a.b | ",
    ],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    refused(expression)


@pytest.mark.parametrize("expression", [None, 1, ["a"]])
def test_an_expression_is_text(expression: object) -> None:
    assert type(expression).__name__ in refused(expression)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("sums(a)", "no function sums()"),
        ("a[?b].c | {x: nope(@)}", "no function nope()"),
        ("map(&lower(@), a)", "no function lower()"),
        ("abs(a, b)", "abs() takes 1 argument, not 2"),
        ("join('x')", "join() takes 2 arguments, not 1"),
        ("not_null()", "not_null() takes at least 1 argument, not 0"),
        ("merge()", "merge() takes at least 1 argument"),
    ],
)
def test_function_calls_are_checked_at_once(expression: str, words: str) -> None:
    assert words in refused(expression)


def test_the_parser_of_others_is_left_alone() -> None:
    Selection("a == `1.5`").of({})
    literal = jmespath.compile("a == `1.5`").parsed["children"][1]["value"]
    assert isinstance(literal, float)
    assert jmespath.search("abs(`-1.5`)", {}) == 1.5
    with pytest.raises(jmespath.exceptions.JMESPathError):
        jmespath.search("abs(@)", Decimal(1))


def test_a_selection_shows_its_expression() -> None:
    assert repr(Selection("a.b")) == "Selection('a.b')"
    assert Selection("a.b").expression == "a.b"


@settings(deadline=None)
@given(st.lists(st.decimals(-(10**30), 10**30, allow_nan=False), min_size=1, max_size=8))
def test_sums_and_extremes_are_exact(numbers: list[Decimal]) -> None:
    with localcontext(prec=200):
        total = sum(numbers)
    assert select("sum(@)", numbers) == total
    assert select("max(@)", numbers) == max(numbers)
    assert select("sort(@)", numbers) == sorted(numbers)
