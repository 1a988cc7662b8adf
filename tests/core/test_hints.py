"""Hints of servers: Retry-After in every form, max-age less Age, and the clamp."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.core.hints import LONGEST, fresh_for, hold_of, retry_after
from bide.core.http import Headers

NOW = datetime(2026, 11, 30, 18, 0, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
DAY = timedelta(days=1)


def asked(*values: str, date: str | None = None, now_ms: int = NOW_MS) -> timedelta | None:
    fields = [("Retry-After", value) for value in values]
    if date is not None:
        fields.append(("Date", date))
    return retry_after(Headers(fields), now_ms=now_ms)


def fresh(*values: str, age: str | None = None) -> timedelta | None:
    fields = [("Cache-Control", value) for value in values]
    if age is not None:
        fields.append(("Age", age))
    return fresh_for(Headers(fields))


def seconds(number: int) -> timedelta:
    return timedelta(seconds=number)


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        ("120", seconds(120)),
        (" 120 ", seconds(120)),
        ("\t120", seconds(120)),
        ("0", seconds(0)),
        ("000", seconds(0)),
        ("007", seconds(7)),
        ("9999999999", LONGEST),
        ("9" * 400, LONGEST),
        ("9" * 5000, LONGEST),
        ("0" * 400 + "5", seconds(5)),
        ("-5", None),
        ("+5", None),
        ("0.493", None),
        ("1e3", None),
        ("1m0s", None),
        ("", None),
        ("soon", None),
        ("120, 60", None),
        ("١٢", None),
        ("1_0", None),
    ],
)
def test_retry_after_in_every_form_seconds(value: str, delay: timedelta | None) -> None:
    assert asked(value) == delay


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        ("Mon, 30 Nov 2026 18:02:00 GMT", seconds(120)),
        ("Monday, 30-Nov-26 18:02:00 GMT", seconds(120)),
        ("Mon Nov 30 18:02:00 2026", seconds(120)),
        ("Tue Dec  1 18:00:00 2026", DAY),
        ("Sun, 30 Nov 2026 18:02:00 GMT", seconds(120)),  # the wrong day's name
        ("Mon, 30 Nov 2026 18:01:60 GMT", seconds(120)),  # a leap second
        ("Sun, 06 Nov 1994 08:49:37 GMT", seconds(0)),
        ("Sunday, 06-Nov-94 08:49:37 GMT", seconds(0)),
        ("Sun Nov  6 08:49:37 1994", seconds(0)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST),
        ("Fri, 31 Dec 9999 23:59:60 GMT", None),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Mon, 31 Feb 2026 18:02:00 GMT", None),
        ("Mon, 30 Nov 0000 18:02:00 GMT", None),
        ("Mon, 30 Nov 2026 24:00:00 GMT", None),
        ("Mon, 30 Nov 2026 18:60:00 GMT", None),
        ("Mon, 30 Nov 2026 18:00:61 GMT", None),
        ("Mon, 30 Nov 2026 18:02:00 +0000", None),
        ("Mon, 30 Nov 2026 18:02:00 UTC", None),
        ("mon, 30 nov 2026 18:02:00 gmt", None),
        ("30 Nov 2026 18:02:00 GMT", None),
        ("Mon, 30 Nov 2026 18:02 GMT", None),
        ("2026-11-30T18:02:00Z", None),
        ("Mon, 30 Nov 2026 18:02:00 GMT, Mon, 30 Nov 2026 18:03:00 GMT", None),
    ],
)
def test_retry_after_in_every_form_dates(value: str, delay: timedelta | None) -> None:
    assert asked(value) == delay


@pytest.mark.parametrize(("years", "ahead"), [(1, True), (50, True), (51, False), (99, False), (0, False)])
def test_retry_after_in_every_form_a_year_of_two_digits_is_within_fifty_years(
    years: int, ahead: bool
) -> None:
    for present in (1994, 2026, 2049, 2050, 2099):
        now = datetime(present, 6, 1, tzinfo=UTC)
        value = f"Monday, 01-Jun-{(present + years) % 100:02d} 00:00:00 GMT"
        delay = asked(value, now_ms=int(now.timestamp() * 1000))
        assert delay is not None
        assert (delay > timedelta()) is ahead


def test_retry_after_in_every_form_a_date_is_relative_to_the_servers_own_clock() -> None:
    until = "Mon, 30 Nov 2026 18:02:00 GMT"
    assert asked(until, date="Mon, 30 Nov 2026 17:00:00 GMT") == timedelta(minutes=62)
    assert asked(until, date=" Monday, 30-Nov-26 18:01:00 GMT ") == seconds(60)
    assert asked(until, date="Mon, 30 Nov 2026 19:00:00 GMT") == seconds(0)
    assert asked(until, date="yesterday") == seconds(120)
    assert asked("120", date="Mon, 30 Nov 2026 17:00:00 GMT") == seconds(120)


def test_retry_after_in_every_form_twice() -> None:
    assert asked("60", "120") == seconds(120)
    assert asked("120", "60") == seconds(120)
    assert asked("soon", "60") == seconds(60)
    assert asked("-1", "") is None


def test_without_retry_after_nothing_is_asked() -> None:
    assert asked() is None


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("max-age=60", 60),
        ("Max-Age=60", 60),
        ('max-age="60"', 60),
        ("public, max-age=60, must-revalidate", 60),
        ("public,max-age=60", 60),
        (" , ,max-age=60,", 60),
        ("max-age=60, max-age=5", 60),
        ("max-age=0", 0),
        ('ext="a, max-age=9 \\" b", max-age=60', 60),
        ("s-maxage=600, max-age=60", 60),
    ],
)
def test_max_age(value: str, left: int) -> None:
    assert fresh(value) == seconds(left)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "public",
        "s-maxage=60",
        "x-max-age=60",
        "max-age",
        "max-age=",
        'max-age=""',
        "max-age=-60",
        "max-age=1.5",
        "max-age=1m",
        "max-age =60",
        "max-age= 60",
        "max-age=soon, max-age=60",
        "no-store, max-age=60",
        "max-age=60, no-cache",
        "max-age=60, No-Cache",
        'max-age=60, no-cache="set-cookie"',
        'ext="max-age=60',
    ],
)
def test_no_max_age(value: str) -> None:
    assert fresh(value) is None


def test_max_age_over_several_fields() -> None:
    assert fresh("public", "max-age=60") == seconds(60)
    assert fresh("max-age=60", "no-store") is None
    assert fresh() is None


@pytest.mark.parametrize(
    ("age", "left"),
    [("20", 40), (" 20 ", 40), ("60", 0), ("61", 0), ("9" * 500, 0), ("-20", 60), ("old", 60), ("", 60)],
)
def test_max_age_less_age(age: str, left: int) -> None:
    assert fresh("max-age=60", age=age) == seconds(left)


def test_a_huge_max_age_is_cut() -> None:
    assert fresh("max-age=" + "9" * 400) == LONGEST


def hold(*fields: tuple[str, str], success: bool = True, clamp: timedelta = DAY) -> timedelta | None:
    return hold_of(Headers(fields), now_ms=NOW_MS, clamp=clamp, success=success)


def test_the_longer_hint_holds() -> None:
    both = (("Retry-After", "60"), ("Cache-Control", "max-age=90"))
    assert hold(*both) == seconds(90)
    assert hold(*both, success=False) == seconds(60)
    assert hold(("Retry-After", "90"), ("Cache-Control", "max-age=60")) == seconds(90)


def test_retry_after_counts_on_any_answer_and_freshness_only_on_a_good_one() -> None:
    assert hold(("Retry-After", "60"), success=True) == seconds(60)
    assert hold(("Retry-After", "60"), success=False) == seconds(60)
    assert hold(("Cache-Control", "max-age=60"), success=True) == seconds(60)
    assert hold(("Cache-Control", "max-age=60"), success=False) is None


def test_a_hint_is_clamped() -> None:
    assert hold(("Retry-After", "9" * 400)) == DAY
    assert hold(("Cache-Control", "max-age=31536000")) == DAY
    assert hold(("Retry-After", "60"), clamp=seconds(30)) == seconds(30)
    assert hold(("Retry-After", "60"), clamp=timedelta()) is None


@pytest.mark.parametrize("value", ["0", "-5", "", "Sun, 06 Nov 1994 08:49:37 GMT"])
def test_a_hint_of_nothing_does_not_hold(value: str) -> None:
    assert hold(("Retry-After", value)) is None
    assert hold() is None


@settings(deadline=None)
@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40), st.booleans())
def test_no_header_breaks_or_shortens(retry: str, control: str, age: str, success: bool) -> None:
    held = hold(("Retry-After", retry), ("Cache-Control", control), ("Age", age), success=success)
    assert held is None or timedelta() < held <= DAY


@settings(deadline=None)
@given(st.integers(0, 3_000_000_000), st.sampled_from(["imf", "asctime"]))
def test_a_date_asks_for_what_is_left_until_it(epoch_s: int, form: str) -> None:
    until = datetime.fromtimestamp(epoch_s, UTC)
    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    day, month, time = days[until.weekday()], months[until.month - 1], until.strftime("%H:%M:%S")
    written = {
        "imf": f"{day}, {until.day:02d} {month} {until.year} {time} GMT",
        "asctime": f"{day} {month} {until.day:2d} {time} {until.year}",
    }[form]
    assert asked(written) == max(until - NOW, timedelta())
