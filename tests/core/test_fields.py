"""Types of fields, and what becomes one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from enum import IntEnum, StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from bide.core.fields import KINDS, as_object, convert, parse_field_type
from bide.errors import AnswerError, SettingError


def become(value: object, text: str) -> Any:
    return convert(value, parse_field_type(text), "price")


def refused(value: object, text: str) -> str:
    with pytest.raises(AnswerError) as caught:
        become(value, text)
    assert caught.value.where == "price"
    return caught.value.reason


# --- types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["str", "int", "number", "bool", "datetime", "object", "list", "any"])
def test_every_kind_reads_back(kind: str) -> None:
    assert kind in KINDS
    plain, optional = parse_field_type(kind), parse_field_type(f"{kind}?")
    assert (plain.kind, plain.optional, str(plain)) == (kind, False, kind)
    assert (optional.kind, optional.optional, str(optional)) == (kind, True, f"{kind}?")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("string", "str"),
        ("integer", "int"),
        ("float?", "number"),
        ("Boolean", "bool"),
        ("dict", "object"),
        ("array", "list"),
        ("timestamp", "datetime"),
    ],
)
def test_a_type_by_another_name_is_refused_with_the_right_one(text: str, meant: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_field_type(text, "answer.price")
    assert caught.value.setting == "answer.price"
    assert f'"{meant}"' in caught.value.reason


@pytest.mark.parametrize("text", ["", "?", "str??", "xyzzy", "str |", "None"])
def test_what_is_no_type_is_refused_with_all_there_are(text: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_field_type(text)
    assert all(kind in caught.value.reason for kind in KINDS)


@pytest.mark.parametrize("text", [" str", "Str", "STR?", "number "])
def test_a_type_is_spelt_exactly(text: str) -> None:
    with pytest.raises(SettingError):
        parse_field_type(text)


@pytest.mark.parametrize("value", [None, 1, str, ["str"]])
def test_a_type_is_text(value: object) -> None:
    with pytest.raises(SettingError, match="text such as"):
        parse_field_type(value)


# --- null ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_null_is_for_optional_fields_only(kind: str) -> None:
    assert become(None, f"{kind}?") is None
    reason = refused(None, kind)
    assert f"expected {kind} " in reason
    assert "got null" in reason
    assert f'"{kind}?"' in reason


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"any"}))
def test_an_optional_field_is_no_looser_otherwise(kind: str) -> None:
    refused(object(), f"{kind}?")


# --- text, bool, list, any -----------------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


def test_text() -> None:
    assert become("", "str") == ""
    assert become("é", "str?") == "é"
    red = become(Colour.RED, "str")
    assert red == "red"
    assert type(red) is str
    assert "declare it number" in refused(12, "str")
    for other in (True, b"x", ["x"], datetime(2026, 1, 1, tzinfo=UTC)):
        refused(other, "str")


def test_bool_is_no_number_and_no_number_is_a_bool() -> None:
    assert become(True, "bool") is True
    assert become(False, "bool?") is False
    for other in (0, 1, Decimal(1), "true", "", [0]):
        refused(other, "bool")
    for kind in ("int", "number"):
        assert "bool true" in refused(True, kind)


def test_lists() -> None:
    assert become([1, "a"], "list") == [1, "a"]
    assert become((1, 2), "list") == [1, 2]
    assert "declare it object" in refused({"a": 1}, "list")
    for other in ("ab", frozenset({1, 2}), iter([1])):
        refused(other, "list")


@pytest.mark.parametrize("value", [0, False, "", [], {}, Decimal("1.5"), "x", [None]])
def test_any_is_anything_but_null(value: object) -> None:
    assert become(value, "any") is value


# --- numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 0),
        (12345678901234567890, 12345678901234567890),
        (Decimal("1.01010101010101010101010101010101010101"), "1.01010101010101010101010101010101010101"),
        (Decimal("1E+999999"), "1E+999999"),
        (0.1, "0.1"),
        (1e-7, "1e-7"),
        (-0.0, "-0.0"),
        (Size.BIG, 3),
    ],
)
def test_number_keeps_values_exact(value: object, number: int | str) -> None:
    with localcontext(prec=3):
        found = become(value, "number")
    assert found == Decimal(number)
    assert type(found) in {int, Decimal}


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), float("-inf"), Decimal("NaN"), Decimal("-Infinity")]
)
@pytest.mark.parametrize("kind", ["number", "int"])
def test_a_number_is_finite(value: object, kind: str) -> None:
    assert "no finite number" in refused(value, kind)


@pytest.mark.parametrize("value", ["12.50", Fraction(1, 2), 1j, [1], {}])
def test_number_takes_numbers_only(value: object) -> None:
    refused(value, "number")


def test_a_number_in_text_is_refused_with_the_way_to_read_it() -> None:
    assert refused("12.50", "number").startswith("expected number (a number), got str '12.50'; ")
    assert "to_number" in refused("12.50", "number")
    assert "to_number" in refused("12", "int")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5, 5),
        (Decimal("1.0"), 1),
        (Decimal("10E-1"), 1),
        (Decimal("1e3"), 1000),
        (Decimal("-0.0"), 0),
        (2.0, 2),
        (1e22, 10**22),
        pytest.param(Decimal("1e4299"), 10**4299, id="as long as can be"),
        (Decimal("12345678901234567890123456789012345678901.0"), 12345678901234567890123456789012345678901),
        (Size.BIG, 3),
    ],
)
def test_int_takes_whole_numbers_however_they_are_written(value: object, number: int) -> None:
    with localcontext(prec=3):
        found = become(value, "int")
    assert found == number
    assert type(found) is int


@pytest.mark.parametrize(
    "value",
    [Decimal("1.5"), Decimal("1e-999999"), 0.5, Decimal("12345678901234567890123456789012345678901.1")],
)
def test_int_refuses_fractions(value: object) -> None:
    assert "declare it number" in refused(value, "int")


@pytest.mark.parametrize("value", [Decimal("1e4300"), Decimal("1e999999999999999999"), Decimal("-1e999999")])
def test_int_refuses_what_would_fill_the_memory(value: object) -> None:
    assert "4300 digits" in refused(value, "int")


# --- instants ------------------------------------------------------------------------------------------------

NOON = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-30T12:00:00Z", NOON),
        ("2026-11-30t12:00:00z", NOON),
        ("2026-11-30 12:00:00Z", NOON),
        ("2026-11-30T12:00:00+00:00", NOON),
        ("2026-11-30T12:00:00-00:00", NOON),
        ("2026-11-30T14:30:00+02:30", NOON),
        ("2026-11-30T04:00:00-08:00", NOON),
        ("2026-12-01T11:59:00+23:59", NOON),
        ("2026-11-30T12:00:00.5Z", NOON + timedelta(milliseconds=500)),
        ("2026-11-30T12:00:00.000001Z", NOON + timedelta(microseconds=1)),
        ("2026-11-30T12:00:00.123456999Z", NOON + timedelta(microseconds=123456)),
        ("2026-11-30T11:59:60Z", NOON),
        ("2016-12-31T23:59:60.5Z", datetime(2017, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("2024-02-29T00:00:00Z", datetime(2024, 2, 29, tzinfo=UTC)),
    ],
)
def test_instants_of_rfc_3339(text: str, instant: datetime) -> None:
    found = become(text, "datetime")
    assert found == instant
    assert found.tzinfo is UTC


@pytest.mark.parametrize("text", ["2026-11-30T12:00:00", "2026-11-30 12:00:00.25"])
def test_an_instant_without_offset_is_refused_with_advice(text: str) -> None:
    reason = refused(text, "datetime")
    assert "no offset" in reason
    assert "declare it str" in reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-30",
        "2026-11-30T12:00Z",
        "20261130T120000Z",
        "2026-W49-1T12:00:00Z",
        "2026-11-30T12:00:00+0200",
        "2026-11-30T12:00:00+02",
        "2026-11-30T12:00:00+24:00",
        "2026-11-30T12:00:00+05:75",
        "2026-11-30T12:00:00,5Z",
        "2026-11-30T12:00:00.Z",
        "2026-11-30T12:00:00Z ",
        "2026-11-30T12:00:00Z\n",
        "٢٠٢٦-11-30T12:00:00Z",
        "Mon, 30 Nov 2026 12:00:00 GMT",
        "1764504000",
    ],
)
def test_other_spellings_of_instants_are_refused(text: str) -> None:
    reason = refused(text, "datetime")
    assert "2026-11-30T18:00:00Z" in reason
    assert "declare it str" in reason


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-29T12:00:00Z",
        "2026-13-01T12:00:00Z",
        "2026-11-31T12:00:00Z",
        "2026-11-30T24:00:00Z",
        "2026-11-30T12:60:00Z",
        "2026-11-30T12:00:61Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "9999-12-31T23:59:60Z",
    ],
)
def test_instants_that_do_not_exist_are_refused(text: str) -> None:
    assert "no instant" in refused(text, "datetime")


def test_instants_from_functions() -> None:
    east = timezone(timedelta(hours=2))
    found = become(datetime(2026, 11, 30, 14, tzinfo=east), "datetime")
    assert found == NOON
    assert found.tzinfo is UTC
    reason = refused(NOON.replace(tzinfo=None), "datetime")
    assert "one without an offset" in reason
    assert "tzinfo" in reason
    assert "no instant" in refused(datetime(1, 1, 1, tzinfo=east), "datetime")


@pytest.mark.parametrize("value", [1764504000, 1.5, True, NOON.date(), []])
def test_instants_are_not_numbers(value: object) -> None:
    refused(value, "datetime")


@settings(deadline=None)
@given(st.datetimes(timezones=st.just(UTC)), st.integers(-1439, 1439))
def test_an_instant_is_the_same_at_every_offset(instant: datetime, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    try:
        written = instant.astimezone(zone).isoformat()
    except OverflowError:
        return
    assert become(written, "datetime") == instant


# --- objects -------------------------------------------------------------------------------------------------


@dataclass
class Inner:
    at: datetime
    price: Decimal


@dataclass(frozen=True, slots=True)
class Quote:
    symbol: str
    inner: Inner


class Model(BaseModel):
    symbol: str
    price: Decimal


class Odd:
    def model_dump(self) -> object:
        return ["not a mapping"]


class Broken:
    def model_dump(self) -> Mapping[str, object]:
        raise RuntimeError("no such luck")


def test_objects() -> None:
    assert become({"a": 1}, "object") == {"a": 1}
    assert type(become(OrderedDict(a=1), "object")) is dict
    assert become(MappingProxyType({"a": 1}), "object") == {"a": 1}
    assert become({}, "object") == {}
    assert "declare it list" in refused([1], "object")
    for other in ("{}", 1, object()):
        refused(other, "object")


def test_objects_have_text_keys() -> None:
    assert "number 1 is not text" in refused({1: 2}, "object")
    refused({None: 2}, "object")


def test_dataclasses_and_models_are_objects() -> None:
    quote = Quote("A", Inner(NOON, Decimal("1.10")))
    assert become(quote, "object") == {"symbol": "A", "inner": {"at": NOON, "price": Decimal("1.10")}}
    assert become(Model(symbol="A", price=Decimal("1.10")), "object") == {
        "symbol": "A",
        "price": Decimal("1.10"),
    }


@pytest.mark.parametrize("value", [Quote, object(), Odd(), 1, "x", None])
def test_other_values_are_not_objects(value: object) -> None:
    assert as_object(value) is None


@pytest.mark.parametrize("value", [Broken(), Model])
def test_a_failing_model_is_a_bad_answer(value: object) -> None:
    with pytest.raises(AnswerError, match="cannot be read as an object"):
        as_object(value)


def test_an_endless_dataclass_is_a_bad_answer() -> None:
    @dataclass
    class Node:
        next: object

    node = Node(None)
    node.next = node
    with pytest.raises(AnswerError, match="cannot be read as an object"):
        as_object(node)


@settings(deadline=None)
@given(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.text())
    ),
    st.sampled_from(KINDS),
)
def test_whatever_comes_is_taken_or_refused_in_a_few_words(value: object, kind: str) -> None:
    try:
        become(value, kind)
    except AnswerError as error:
        reason = str(error)
    else:
        return
    assert len(reason) < 300
