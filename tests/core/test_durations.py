"""Durations: every form that may be written, and a clear refusal of every other."""

from __future__ import annotations

import math
from datetime import time, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.durations import LONGEST, SHORTEST, format_duration, parse_duration, parse_ms, to_ms
from bide.errors import BideError, SettingError

MS = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("100ms", 100 * MS),
        ("5s", timedelta(seconds=5)),
        ("1m", timedelta(minutes=1)),
        ("2h", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
        ("1h30m", timedelta(minutes=90)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("1h 30m", timedelta(minutes=90)),
        (" 5 s ", timedelta(seconds=5)),
        ("0.5s", 500 * MS),
        ("1.5m", timedelta(seconds=90)),
        ("90s", timedelta(seconds=90)),
        ("1m500ms", timedelta(seconds=60, milliseconds=500)),
        (5, timedelta(seconds=5)),
        (0.1, 100 * MS),
        (0.001, MS),
        (timedelta(seconds=7), timedelta(seconds=7)),
        (timedelta(microseconds=1500), timedelta(microseconds=1500)),
        (SHORTEST, SHORTEST),
        (LONGEST, LONGEST),
        ("3650d", LONGEST),
    ],
)
def test_every_form_is_read(value: object, meant: timedelta) -> None:
    assert parse_duration(value, "every") == meant


NONSENSE: list[object] = [
    math.nan,
    math.inf,
    -math.inf,
    -1,
    -0.5,
    1e-12,
    0.0009,
    2**31,
    1e18,
    10**400,
    -(10**400),
    1e308,
    True,
    False,
    None,
    "soon",
    "5 parsecs",
    "",
    "   ",
    "5",
    "0",
    "5.5",
    "-5",
    "-5s",
    "nan",
    "inf",
    "infs",
    "1e3s",
    "5S",
    "1m2h",
    "1s1s",
    "1..5s",
    ".5s",
    "5.s",
    "٥s",
    "0.5us",
    "0.1ms",
    "99999999999999999999d",
    "9" * 5000 + "s",
    "P1D",
    "5s!",
    "5s\n6s",
    b"5s",
    [],
    {},
    3 + 4j,
    Decimal(5),
    time(8, 0),
    timedelta(microseconds=1),
    timedelta(seconds=-1),
    timedelta.max,
    timedelta.min,
]


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: repr(value)[:24])
@pytest.mark.parametrize("zero", [False, True])
def test_nonsense_is_refused_naming_the_setting_and_what_is_right(value: object, zero: bool) -> None:
    with pytest.raises(SettingError) as caught:
        parse_duration(value, "polls.price.every", zero=zero)
    text = str(caught.value)
    assert text.startswith("polls.price.every: ")
    assert caught.value.setting == "polls.price.every"
    assert any(right in text for right in ('"5s"', "1ms", "3650d", 's" for seconds')), text
    assert len(text) < 200
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, BideError)


@pytest.mark.parametrize("value", [0, 0.0, -0.0, "0s", "0ms", "0d0s", timedelta()])
def test_zero_only_where_it_does_not_spin(value: object) -> None:
    assert parse_duration(value, "grace", zero=True) == timedelta()
    with pytest.raises(SettingError, match=r"every: .*zero"):
        parse_duration(value, "every")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("5", '"5s"'),
        ("-5s", "negative"),
        ("-5", "negative"),
        (-1, "negative"),
        (math.nan, "finite"),
        (math.inf, "finite"),
        (2**31, "too long"),
        ("0.1ms", "shorter than a millisecond"),
        (True, "True is not a duration"),
        (10**400, "a number of more than 20 digits is too long"),
    ],
)
def test_the_refusal_says_what_is_wrong(value: object, says: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_duration(value, "every")
    assert says in str(caught.value)


def test_milliseconds_are_whole_numbers() -> None:
    assert parse_ms(500, "min_interval_ms") == timedelta(milliseconds=500)
    assert parse_ms(0, "delay_ms", zero=True) == timedelta()


@pytest.mark.parametrize("value", [True, 1.5, 5.0, "5", "5s", None, math.nan, -1, 0, 10**15, timedelta(1)])
def test_milliseconds_refuse_everything_else(value: object) -> None:
    with pytest.raises(SettingError, match=r"^min_interval_ms: "):
        parse_ms(value, "min_interval_ms")


def test_a_wrong_number_of_milliseconds_is_shown_as_such() -> None:
    with pytest.raises(SettingError, match="-5 ms is negative"):
        parse_ms(-5, "min_interval_ms")


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=40), "40d"),
        (timedelta(milliseconds=100), "100ms"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(microseconds=250), "0.25ms"),
        (timedelta(microseconds=100_010), "100.01ms"),
        (timedelta(seconds=1, microseconds=1), "1s0.001ms"),
        (timedelta(seconds=-90), "-1m30s"),
    ],
)
def test_durations_are_shown_briefly(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(st.timedeltas(min_value=SHORTEST, max_value=LONGEST))
def test_what_is_shown_is_read_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration), "every") == duration


@given(st.floats(min_value=0.001, max_value=1e8))
def test_seconds_are_exact_to_the_microsecond(seconds: float) -> None:
    assert parse_duration(seconds, "every") == timedelta(seconds=seconds)


@given(
    st.one_of(st.text(), st.floats(), st.integers(), st.binary(), st.none(), st.timedeltas(), st.booleans())
)
def test_anything_is_a_good_duration_or_a_setting_error(value: object) -> None:
    try:
        duration = parse_duration(value, "every", zero=True)
    except SettingError:
        return
    assert duration == timedelta() or SHORTEST <= duration <= LONGEST


@given(st.timedeltas(min_value=timedelta(), max_value=LONGEST))
def test_milliseconds_are_rounded_up(duration: timedelta) -> None:
    whole = to_ms(duration)
    assert duration <= timedelta(milliseconds=whole) < duration + timedelta(milliseconds=1)
