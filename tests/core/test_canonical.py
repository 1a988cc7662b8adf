"""JSON read exactly and written in one form: the same value the same text, another value another text."""

from __future__ import annotations

import json
import random
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation, localcontext
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.core.canonical import DEEPEST, canonical, read_json
from bide.errors import AnswerError


def again(text: str) -> str:
    """The canonical form of a JSON text."""
    return canonical(read_json(text))


def unreadable(data: bytes | str) -> str:
    with pytest.raises(AnswerError) as caught:
        read_json(data)
    assert len(str(caught.value)) < 300
    return caught.value.reason


def unwritable(value: object) -> AnswerError:
    with pytest.raises(AnswerError) as caught:
        canonical(value)
    assert len(str(caught.value)) < 300
    return caught.value


# --- the order of JSON keys, white space, escapes ----------------------------------------------------------


def test_json_key_order_white_space_and_escapes_are_no_change() -> None:
    written = '{"a":"é/","b":[1,{"c":null,"d":true}]}'
    for text in (
        written,
        '{"b":[1,{"d":true,"c":null}],"a":"é/"}',
        ' {\n"a" :\t"\\u00e9\\/" , "b": [ 1 , {"c":null,"d":true} ]}\r\n',
        '{"\\u0061":"\\u00E9\\u002f","b":[1.0,{"c":null,"d":true}]}',
    ):
        assert again(text) == written


def test_json_key_order_the_order_of_a_list_is_a_change() -> None:
    assert again("[1,2]") != again("[2,1]")


def test_names_are_sorted_by_utf_16_code_units() -> None:
    # The example of RFC 8785, 3.2.3: the emoji is two code units from U+D83D, and comes before U+FB33.
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    written = list(json.loads(canonical(dict.fromkeys(names))))
    assert written == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


def test_names_are_sorted_at_every_level() -> None:
    assert canonical({"b": {"z": 1, "y": 2}, "B": 0, "a": []}) == '{"B":0,"a":[],"b":{"y":2,"z":1}}'


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", '""'),
        ('"\\/', '"\\"\\\\/"'),
        ("\b\t\n\f\r", '"\\b\\t\\n\\f\\r"'),
        ("\x00\x0b\x1f", '"\\u0000\\u000b\\u001f"'),
        ("\x7f\u2028é\U0001f600", '"\x7f\u2028é\U0001f600"'),
    ],
)
def test_escapes_are_those_of_rfc_8785(text: str, written: str) -> None:
    assert canonical(text) == written
    assert read_json(written) == text


def test_small_values() -> None:
    assert canonical([None, True, False, {}, [], ()]) == "[null,true,false,{},[],[]]"


# --- numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spellings", "written"),
    [
        (["1", "1.0", "1e0", "10e-1", "0.1e1", "1.000", "0.01E+2"], "1"),
        (["0", "-0", "0.0", "-0.0", "0e5", "-0e-5", "0e999999999999999999"], "0"),
        (["1e6", "1000000", "1000000.0", "1E+6", "0.001e9"], "1000000"),
        (["-1.50", "-15e-1", "-1.5"], "-1.5"),
        (["12345678901234567890", "1234567890123456789e1"], "12345678901234567890"),
        (["12345678901234567891"], "12345678901234567891"),
        (["1.01010101010101010101"], "1.01010101010101010101"),
        (["1.0101010101010102"], "1.0101010101010102"),
        (["0.001", "1e-3"], "0.001"),
        (["123.456", "123456e-3", "0.123456E3"], "123.456"),
        (["1e100", "1" + "0" * 100], "1" + "0" * 100),
        (["1e101", "1" + "0" * 101, "10e100", "0.1e102"], "1e+101"),
        (["-12e400", "-1.2e401"], "-1.2e+401"),
        (["1e-101"], "0." + "0" * 100 + "1"),
        (["1e-102", "10e-103"], "1e-102"),
        (["1e400"], "1e+400"),
        (["1e999999", "0.1e1000000"], "1e+999999"),
        (["1e-999999999999999999"], "1e-999999999999999999"),
        (["1e999999999999999999"], "1e+999999999999999999"),
    ],
)
def test_json_numbers_of_one_value_are_one_text(spellings: list[str], written: str) -> None:
    for spelling in spellings:
        with localcontext(prec=3, capitals=0):
            assert again(spelling) == written
    assert again(written) == written


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("12345678901234567890", "12345678901234567891"),
        ("1.01010101010101010101", "1.0101010101010102"),
        ("1e400", "1e401"),
        ("0.1", "0.10000000000000001"),
        ("9007199254740993", "9007199254740992"),
        ("1", "true"),
        ("0", "false"),
        ("1", '"1"'),
        ("0", "null"),
        ('{"a":null}', "{}"),
        ("1e-999999999999999999", "0"),
    ],
)
def test_json_numbers_and_their_like_are_never_silently_equal(one: str, other: str) -> None:
    assert again(one) != again(other)


def test_json_numbers_long_ones_stay_exact() -> None:
    digits = "".join(str(number % 9 + 1) for number in range(4300))
    assert again(digits) == digits
    assert again(f"{digits}.{digits}") == f"{digits}.{digits}"
    assert again(f"-{digits}e-1") == f"-{digits[:-1]}.{digits[-1]}"


@pytest.mark.parametrize("limit", [640, 4300, 0])
def test_json_numbers_too_long_are_refused(limit: int) -> None:
    digits = "1" * 4301
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(limit)
    try:
        if limit:
            assert "4300 digits" in unreadable(f"[{digits}]")
        else:
            assert "4300 digits" in unwritable(read_json(digits)).reason
        assert "4300 digits" in unwritable(10**5000 + 1).reason
    finally:
        sys.set_int_max_str_digits(before)
    assert "4300 digits" in unwritable(Decimal(digits)).reason


@pytest.mark.parametrize(
    "text", ["1e1000000000000000000", "-1e99999999999999999999999", "1.5e-9999999999999999999999"]
)
def test_json_numbers_with_an_exponent_too_large_are_refused(text: str) -> None:
    assert "exponent" in unreadable(text)
    with localcontext() as context:
        context.traps[InvalidOperation] = False
        assert "exponent" in unreadable(text)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_json_numbers_that_are_none_are_refused(word: str) -> None:
    assert f"{word} is no JSON number" in unreadable(f'{{"a":{word}}}')
    assert "no finite number" in unwritable(float(word)).reason
    assert "no finite number" in unwritable(Decimal(word)).reason


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.1, "0.1"),
        (1.0, "1"),
        (-0.0, "0"),
        (1e16, "10000000000000000"),
        (1e22, "1" + "0" * 22),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (0.1 + 0.2, "0.30000000000000004"),
        (10**25, "1" + "0" * 25),
        (-(10**99), "-1" + "0" * 99),
        (-(10**101), "-1e+101"),
        (Decimal("1.50"), "1.5"),
        (Decimal("sNaN"), None),
    ],
)
def test_numbers_from_functions(value: object, written: str | None) -> None:
    if written is None:
        unwritable(value)
    else:
        assert canonical(value) == written


# --- what is refused when reading --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        '{"a":1,}',
        "[1,]",
        "{'a':1}",
        "{a:1}",
        '{"a" 1}',
        "01",
        "+1",
        ".5",
        "1.",
        "0x1",
        "1_0",
        "1 2",
        "{} {}",
        "nul",
        '"\x01"',
        '"\n"',
        '"\\x41"',
        '"\\u12"',
        "//c\n1",
        "undefined",
        "\ufeff1",
    ],
)
def test_what_is_not_json_is_refused_with_its_place(text: str) -> None:
    reason = unreadable(text)
    assert reason.startswith("not JSON: ")
    assert "line " in reason


def test_the_place_is_that_of_the_mistake() -> None:
    assert "line 2 column 3" in unreadable('{"a":\n  b}')


@pytest.mark.parametrize(
    ("text", "name"),
    [('{"a":1,"a":2}', "a"), ('[{"x":{"b":1,"\\u0062":1}}]', "b"), ('{"a":1,"b":2,"c":3,"b":{}}', "b")],
)
def test_json_double_keys_are_refused_with_the_name(text: str, name: str) -> None:
    assert f"'{name}' stands twice" in unreadable(text)


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800"',
        '"\\uDFFF"',
        '["a",{"b":["\\udc00\\ud800"]}]',
        '{"\\ud83d":1}',
        '{"a":{"b":1,"c":"\\ud83dx"}}',
        '"\\ud83d\\\\ude00"',
        '"\ud800"',
        '{"\udfff":1}',
    ],
)
def test_json_lone_surrogates_are_refused(text: str) -> None:
    assert "half of a surrogate pair" in unreadable(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('"\\\\ud800"', "\\ud800"),
        ('["\\ud83d\\ude00",1,null,{"a":"\\uD83D\\uDE00"}]', ["\U0001f600", 1, None, {"a": "\U0001f600"}]),
    ],
)
def test_json_surrogate_pairs_and_escaped_backslashes_are_read(text: str, value: object) -> None:
    assert read_json(text) == value


def nested(levels: int, opening: str = "[", closing: str = "]", inner: str = "1") -> str:
    return opening * levels + inner + closing * levels


def test_json_nesting_is_bounded() -> None:
    assert read_json(nested(DEEPEST)) is not None
    assert read_json(nested(DEEPEST, '{"a":', "}")) is not None
    assert "deeper than 128" in unreadable(nested(DEEPEST + 1))
    assert "deeper than 128" in unreadable(nested(DEEPEST + 1, '{"a":', "}"))
    assert "deeper than 128" in unreadable(nested(65, '[{"a":', "}]"))


@pytest.mark.parametrize(
    "text", [nested(100_000), "[" * 100_000, '{"a":' * 100_000], ids=["whole", "open", "objects"]
)
def test_json_nesting_of_100_000_levels_is_refused_whatever_the_interpreter_allows(text: str) -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)
    try:
        assert "deeper than 128" in unreadable(text)
        assert "deeper than 128" in unreadable(text.encode())
    finally:
        sys.setrecursionlimit(before)


def test_json_nesting_counts_levels_and_not_brackets() -> None:
    assert len(read_json("[" + "[],{}," * 1000 + "1]")) == 2001
    for inside in ("[" * 1000, '\\"[' * 1000, "\\\\", "[" * 1000 + "\\\\", '{\\\\\\"[' * 500, "é[" * 500):
        text = f'["{inside}",{nested(127)},"{inside}"]'
        assert read_json(text)[0] == json.loads(f'"{inside}"')
        assert "deeper than 128" in unreadable(f'["{inside}",{nested(128)}]')


def test_an_unfinished_text_with_many_brackets_is_called_what_it_is() -> None:
    assert unreadable('["' + "[" * 1000).startswith("not JSON")
    assert unreadable("]" * 1000).startswith("not JSON")


def test_bytes_are_utf_8_with_or_without_a_mark() -> None:
    assert read_json('"é"'.encode()) == "é"
    assert read_json(b"\xef\xbb\xbf" + '"é"'.encode()) == "é"
    assert "not UTF-8" in unreadable(b'"a\xff"')
    assert "byte 2" in unreadable(b'"a\xff"')
    assert "not UTF-8" in unreadable(b'"\xed\xa0\x80"')


# --- what is refused when writing, and what functions may give ---------------------------------------------


def test_writing_says_where() -> None:
    assert unwritable({"a": [1, {"b": {1, 2}}]}).where == "a[1].b"
    assert unwritable([[0, object()]]).where == "[0][1]"
    assert unwritable({"a": {"b": float("nan")}}).where == "a.b"
    assert unwritable({"x" * 500: {"y" * 500: b""}}).where == "x" * 40 + "." + "y" * 40
    assert unwritable(object()).where == ""


@pytest.mark.parametrize("value", [object(), b"x", {1}, date(2026, 1, 1), 1j, iter([1]), int, timedelta(1)])
def test_writing_refuses_what_has_no_json_form(value: object) -> None:
    assert type(value).__name__ in unwritable(value).reason


@pytest.mark.parametrize("name", [1, None, True, ("a",)])
def test_writing_refuses_names_that_are_not_text(name: object) -> None:
    assert "names in an object are text" in unwritable({"a": {"b": 1, name: 2}}).reason


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, ["é\udc00"]])
def test_writing_refuses_lone_surrogates(value: object) -> None:
    assert "half of a surrogate pair" in unwritable(value).reason


def test_writing_is_bounded_in_depth() -> None:
    def lists(levels: int) -> object:
        value: object = 1
        for _ in range(levels):
            value = [value]
        return value

    assert canonical(lists(DEEPEST)) == nested(DEEPEST)
    assert canonical(lists(DEEPEST - 1), within=1) == nested(DEEPEST - 1)
    assert "deeper than 128" in unwritable(lists(DEEPEST + 1)).reason
    with pytest.raises(AnswerError, match="deeper than 128"):
        canonical(lists(DEEPEST), within=1)
    round_again: dict[str, object] = {}
    round_again["again"] = round_again
    assert "deeper than 128" in unwritable(round_again).reason


@pytest.mark.parametrize(
    ("instant", "written"),
    [
        (datetime(2026, 11, 30, 18, 0, 0, tzinfo=UTC), '"2026-11-30T18:00:00Z"'),
        (datetime(2026, 11, 30, 18, 0, 0, 5000, tzinfo=UTC), '"2026-11-30T18:00:00.005000Z"'),
        (datetime(2026, 11, 30, 18, 0, 0, tzinfo=timezone(timedelta(hours=2))), '"2026-11-30T16:00:00Z"'),
        (datetime(1, 1, 1, tzinfo=UTC), '"0001-01-01T00:00:00Z"'),
    ],
)
def test_instants_are_text_in_utc(instant: datetime, written: str) -> None:
    assert canonical(instant) == written


def test_instants_without_offset_or_out_of_range_are_refused() -> None:
    naive = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    assert "without an offset" in unwritable(naive).reason
    early = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert "out of range" in unwritable(early).reason


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


class Point(namedtuple("Point", "x y")):
    __slots__ = ()


@dataclass
class Price:
    symbol: str
    price: Decimal


def test_derived_types_are_written_as_what_they_are() -> None:
    assert canonical(Colour.RED) == '"red"'
    assert canonical(Size.BIG) == "3"
    assert canonical(Point(1, 2)) == "[1,2]"
    assert canonical(OrderedDict(b=1, a=2)) == '{"a":2,"b":1}'
    assert canonical(MappingProxyType({"b": 1, "a": Size.BIG})) == '{"a":3,"b":1}'
    assert canonical([Price("A", Decimal("1.10"))]) == '[{"price":1.1,"symbol":"A"}]'


# --- properties --------------------------------------------------------------------------------------------

numbers = st.one_of(
    st.integers(),
    st.integers(-(10**200), 10**200),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.builds(
        lambda digits, exponent: Decimal(digits).scaleb(exponent),
        st.integers(-(10**20), 10**20),
        st.integers(-300, 300),
    ),
)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)


@settings(deadline=None)
@given(values)
def test_the_form_reads_back_as_the_same_value(value: Any) -> None:
    written = canonical(value)
    assert read_json(written) == value
    assert again(written) == written
    assert read_json(written.encode()) == value


@settings(deadline=None)
@given(values, st.randoms())
def test_json_key_order_never_matters(value: Any, draw: random.Random) -> None:
    assert canonical(shuffled(value, draw)) == canonical(value)


@settings(deadline=None)
@given(values, values)
def test_equal_values_and_no_others_have_one_form(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) is (typed(one) == typed(other))


@settings(deadline=None)
@given(numbers, numbers)
def test_equal_numbers_and_no_others_have_one_form(one: Decimal, other: Decimal) -> None:
    assert (canonical(one) == canonical(other)) is (one == other)


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_survives(number: float) -> None:
    assert float(canonical(number)) == number


@settings(deadline=None)
@given(numbers, st.integers(0, 20), st.sampled_from(["e", "E"]))
def test_json_numbers_are_one_however_they_are_spelt(number: Decimal, zeros: int, mark: str) -> None:
    sign, digits, exponent = Decimal(number).as_tuple()
    assert isinstance(exponent, int)
    spelt = "".join(map(str, digits)).lstrip("0") + "0" * zeros
    text = f"{'-' * sign}{spelt.lstrip('0') or '0'}{mark}{exponent - zeros}"
    assert again(text) == canonical(number)


@settings(deadline=None)
@given(st.text(st.characters(), max_size=12))
def test_json_lone_surrogates_and_nothing_else_are_refused_in_text(text: str) -> None:
    written = json.dumps(text)
    meant = json.loads(written)
    if any("\ud800" <= character <= "\udfff" for character in meant):
        assert "half of a surrogate pair" in unreadable(written)
    else:
        assert read_json(written) == meant


@settings(deadline=None)
@given(st.text(st.sampled_from('[]{}",\\ 1a:'), max_size=400))
def test_no_text_does_worse_than_be_refused(text: str) -> None:
    try:
        value = read_json(text)
    except AnswerError:
        return
    assert value == json.loads(text)


def shuffled(value: Any, draw: random.Random) -> Any:
    match value:
        case dict():
            members = [(name, shuffled(member, draw)) for name, member in value.items()]
            draw.shuffle(members)
            return dict(members)
        case list():
            return [shuffled(element, draw) for element in value]
        case _:
            return value


def typed(value: Any) -> Any:
    """``value`` with its kinds, because to Python 1 and True are equal."""
    match value:
        case dict():
            return {name: typed(member) for name, member in value.items()}
        case list():
            return [typed(element) for element in value]
        case _:
            return (isinstance(value, bool), value)


@pytest.fixture(autouse=True)
def _recursion_limit_is_left_alone() -> Iterator[None]:
    before = sys.getrecursionlimit()
    yield
    assert sys.getrecursionlimit() == before
