"""Pacing: strategies, back-off and the pace of a start, against the numbers they promise."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.pacing import (
    DELIVERY_BACKOFF,
    FETCH_BACKOFF,
    Backoff,
    PollingStrategy,
    StartPace,
    about,
    full_jitter,
    strategy_kind,
)
from bide.errors import SettingError

MS = timedelta(milliseconds=1)
S = timedelta(seconds=1)
LAST_DRAW = math.nextafter(1.0, 0.0)

draws = st.floats(min_value=0, max_value=LAST_DRAW)
intervals = st.timedeltas(min_value=MS, max_value=timedelta(days=3650))
factors = st.floats(min_value=1, max_value=1e300) | st.floats(min_value=1, max_value=4)


def idle_waits(strategy: PollingStrategy, count: int) -> list[timedelta]:
    """What a loop that finds nothing waits: it takes the next interval first."""
    waits = []
    current = strategy.initial_interval()
    for _ in range(count):
        current = strategy.next_interval(current, found=False)
        waits.append(current)
    return waits


# --- strategies -----------------------------------------------------------------------------------------------


def test_about_is_within_a_tenth_of_the_delay_both_ways() -> None:
    minute = timedelta(minutes=1)
    assert about(minute, 0.0) == timedelta(seconds=54)
    assert about(minute, 0.5) == minute
    assert timedelta(seconds=65.9) < about(minute, 0.999) < timedelta(seconds=66)


def test_adaptive_is_100_ms_doubling_to_5_s_by_default() -> None:
    strategy = PollingStrategy.adaptive()
    assert strategy.initial_interval() == 100 * MS
    assert [wait / MS for wait in idle_waits(strategy, 8)] == [200, 400, 800, 1600, 3200, 5000, 5000, 5000]


def test_finding_something_brings_the_least_interval_back() -> None:
    strategy = PollingStrategy.adaptive()
    assert strategy.next_interval(5 * S, found=True) == 100 * MS
    assert strategy.next_interval(100 * MS, found=True) == 100 * MS


def test_adaptive_takes_other_bounds_and_another_multiplier() -> None:
    strategy = PollingStrategy.adaptive("1s", 10, 3)
    assert [wait / S for wait in idle_waits(strategy, 4)] == [3, 9, 10, 10]


def test_fixed_is_the_same_whatever_was_found() -> None:
    strategy = PollingStrategy.fixed("2s")
    assert strategy.initial_interval() == 2 * S
    assert set(idle_waits(strategy, 5)) == {2 * S}
    assert strategy.next_interval(2 * S, found=True) == 2 * S


def test_milliseconds_are_another_spelling() -> None:
    assert PollingStrategy.fixed(interval_ms=250) == PollingStrategy.fixed("250ms")
    assert PollingStrategy.adaptive(min_interval_ms=50, max_interval_ms=700) == PollingStrategy.adaptive(
        0.05, "700ms"
    )


TWICE: list[tuple[str, Any]] = [
    ("interval", lambda: PollingStrategy.fixed("1s", interval_ms=1000)),
    ("min_interval", lambda: PollingStrategy.adaptive("1s", min_interval_ms=1000)),
    ("max_interval", lambda: PollingStrategy.adaptive(max_interval=timedelta(0), max_interval_ms=0)),
]


@pytest.mark.parametrize(("setting", "make"), TWICE)
def test_both_spellings_are_an_error(setting: str, make: Any) -> None:
    with pytest.raises(SettingError, match=rf"^{setting}: given twice, as {setting} and as {setting}_ms"):
        make()


def test_a_fixed_strategy_needs_its_interval() -> None:
    with pytest.raises(SettingError, match=r"^interval: "):
        PollingStrategy.fixed()


NONSENSE: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    -1,
    0,
    1e-12,
    2**31,
    1e18,
    True,
    "soon",
    "5 parsecs",
    "",
]


@pytest.mark.parametrize("value", NONSENSE)
def test_strategies_refuse_nonsense_naming_the_setting(value: Any) -> None:
    with pytest.raises(SettingError, match=r"^interval: "):
        PollingStrategy.fixed(value)
    with pytest.raises(SettingError, match=r"^min_interval: "):
        PollingStrategy.adaptive(value)
    with pytest.raises(SettingError, match=r"^max_interval: "):
        PollingStrategy.adaptive(max_interval=value)
    with pytest.raises(SettingError, match=r"^interval_ms: "):
        PollingStrategy.fixed(interval_ms=value if value != 2**31 else 2**62)
    with pytest.raises(SettingError, match=r"^initial: "):
        Backoff(value, S)
    with pytest.raises(SettingError, match=r"^maximum: "):
        Backoff(S, value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, 0, 0.5, 1, 1.0, True, "2", None, 2j])
def test_the_multiplier_is_finite_and_above_1(value: Any) -> None:
    with pytest.raises(SettingError, match=r"^backoff_multiplier: .*above 1"):
        PollingStrategy.adaptive(backoff_multiplier=value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, 0, 0.5, True, "2", None])
def test_the_factor_is_finite_and_at_least_1(value: Any) -> None:
    with pytest.raises(SettingError, match=r"^factor: .*at least 1"):
        Backoff(S, 2 * S, value)


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(SettingError, match=r"^max_interval: 1s is shorter than min_interval, 2s"):
        PollingStrategy.adaptive("2s", "1s")
    with pytest.raises(SettingError, match=r"^max_interval: 5s is shorter than min_interval, 10s"):
        PollingStrategy.adaptive("10s")
    with pytest.raises(SettingError, match=r"^maximum: 1s is shorter than initial, 2s"):
        Backoff(2 * S, S)
    assert PollingStrategy.adaptive("1s", "1s").next_interval(S, found=False) == S


def test_strategies_made_by_hand_are_checked_too() -> None:
    with pytest.raises(SettingError, match=r"^kind: "):
        PollingStrategy("adaptiv", S, S)  # type: ignore[arg-type]  # what a caller without types may write


def test_strategy_words() -> None:
    assert strategy_kind("fixed", "worker.polling.strategy") == "fixed"
    assert strategy_kind("adaptive", "worker.polling.strategy") == "adaptive"


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("adaptve", "Did you mean 'adaptive'?"),
        ("Fixed", "Did you mean 'fixed'?"),
        ("zigzag", "write fixed or adaptive"),
        (5, "write fixed or adaptive"),
        (None, "write fixed or adaptive"),
    ],
)
def test_an_unknown_strategy_word_gets_the_nearest(word: object, says: str) -> None:
    with pytest.raises(SettingError) as caught:
        strategy_kind(word, "worker.polling.strategy")
    assert str(caught.value).startswith("worker.polling.strategy: ")
    assert says in str(caught.value)


# --- jitter ---------------------------------------------------------------------------------------------------


def test_fixed_is_drawn_from_a_tenth_either_side() -> None:
    strategy = PollingStrategy.fixed("10s")
    assert strategy.jittered(10 * S, 0.0) == 9 * S
    assert strategy.jittered(10 * S, 0.5) == 10 * S
    assert strategy.jittered(10 * S, LAST_DRAW) == 11 * S


def test_adaptive_at_its_ceiling_spreads_below_it() -> None:
    strategy = PollingStrategy.adaptive()
    assert strategy.jittered(5 * S, 0.0) == 4.5 * S
    assert strategy.jittered(5 * S, 0.5) == 4.75 * S
    assert strategy.jittered(5 * S, LAST_DRAW) == 5 * S
    assert strategy.jittered(S, LAST_DRAW) == 1.1 * S
    assert strategy.jittered(4.8 * S, LAST_DRAW) == 5 * S


@given(intervals, draws, st.booleans())
def test_jitter_stays_in_its_range(interval: timedelta, draw: float, fixed: bool) -> None:
    most = timedelta(days=30)
    strategy = PollingStrategy.fixed(interval) if fixed else PollingStrategy.adaptive(MS, most)
    wait = strategy.jittered(interval, draw)
    assert timedelta() < wait <= interval * 1.1
    if fixed or interval <= most:
        assert interval * 0.9 <= wait
    if not fixed:
        assert wait <= most


@given(intervals, intervals, st.floats(min_value=1, max_value=1e308, exclude_min=True), st.integers(0, 60))
def test_intervals_grow_and_stay_within_their_bounds(
    one: timedelta, other: timedelta, multiplier: float, idle: int
) -> None:
    least, most = sorted((one, other))
    strategy = PollingStrategy.adaptive(least, most, multiplier)
    current = strategy.initial_interval()
    for _ in range(idle):
        after = strategy.next_interval(current, found=False)
        assert current <= after <= most
        current = after
    assert strategy.next_interval(current, found=True) == least


# --- back-off -------------------------------------------------------------------------------------------------


def test_the_two_back_offs_of_the_engine() -> None:
    assert [DELIVERY_BACKOFF.undrawn_delay(n) / S for n in (1, 2, 3, 12, 13, 99)] == [
        1,
        2,
        4,
        2048,
        3600,
        3600,
    ]
    assert [FETCH_BACKOFF.undrawn_delay(n) / S for n in (1, 2, 3, 9, 10)] == [0.1, 0.2, 0.4, 25.6, 30]


@pytest.mark.parametrize("factor", [1.0, 1, math.nextafter(1.0, 2.0), 1.0001, 1.5, 2, 10, 1e308, 10**400])
def test_no_number_of_attempts_overflows(factor: float) -> None:
    backoff = Backoff(S, 30 * S, factor)
    stepped: timedelta | None = None
    last = timedelta()
    for attempt in [*range(1, 5001), 10**6, 10**9, 10**400]:
        delay = backoff.undrawn_delay(attempt)
        stepped = backoff.next(stepped)
        for each in (delay, stepped):
            assert S <= each <= 30 * S
        assert delay >= last
        last = delay
    assert last == (S if factor == 1 else 30 * S)


@pytest.mark.parametrize("attempt", [1, 0, -5])
def test_the_first_attempt_and_before_wait_the_initial_delay(attempt: int) -> None:
    assert Backoff(S, 30 * S).undrawn_delay(attempt) == S


@given(intervals, intervals, st.sampled_from([1.0, 1.5, 2, 3, 10]), st.integers(1, 100))
def test_steps_and_the_closed_form_agree(
    one: timedelta, other: timedelta, factor: float, attempts: int
) -> None:
    initial, maximum = sorted((one, other))
    backoff = Backoff(initial, maximum, factor)
    delay = backoff.next(None)
    for _ in range(attempts - 1):
        delay = backoff.next(delay)
    closed = backoff.undrawn_delay(attempts)
    assert abs(delay / closed - 1) < 0.01


@given(intervals, intervals, factors, st.integers(-10, 10**12), draws)
def test_every_delay_is_finite_and_within_the_cap(
    one: timedelta, other: timedelta, factor: float, attempt: int, draw: float
) -> None:
    initial, maximum = sorted((one, other))
    backoff = Backoff(initial, maximum, factor)
    assert initial <= backoff.undrawn_delay(attempt) <= maximum
    assert timedelta() <= backoff.delay(attempt, draw) <= backoff.undrawn_delay(attempt)


def test_next_brings_anything_into_its_bounds() -> None:
    backoff = Backoff(S, 30 * S)
    assert backoff.next(timedelta()) == S
    assert backoff.next(20 * S) == 30 * S
    assert backoff.next(timedelta.max) == 30 * S


def test_full_jitter_is_even_from_nothing_to_all() -> None:
    assert full_jitter(10 * S, 0.0) == timedelta()
    assert full_jitter(10 * S, 0.5) == 5 * S
    assert DELIVERY_BACKOFF.delay(3, 0.25) == S


# --- the pace of a start ----------------------------------------------------------------------------------------


def test_a_burst_and_then_the_rate() -> None:
    pace = StartPace(rate_per_s=2.0, burst=10)
    assert pace.next_at <= 0.0
    assert pace.take(0.0, 1000) == 10
    assert pace.take(0.0, 1000) == 0
    assert pace.next_at == 0.5
    assert pace.take(0.49, 1000) == 0
    assert pace.take(0.5, 1000) == 1
    assert pace.take(2.0, 1000) == 3
    assert pace.take(2.0, 0) == 0


def test_no_more_than_a_burst_is_saved_up() -> None:
    pace = StartPace(2.0, 10)
    assert pace.take(1e9, 1000) == 10
    assert pace.take(2e9, 1000) == 10


def test_no_more_is_granted_than_wanted_and_what_was_not_used_can_be_given_back() -> None:
    pace = StartPace(2.0, 10)
    assert pace.take(5.0, 4) == 4
    assert pace.take(5.0, 100) == 6
    pace.give_back(3)
    assert pace.take(5.0, 100) == 3
    pace.give_back(500)
    assert pace.take(5.0, 100) == 10


def test_a_clock_that_steps_back_grants_nothing_and_breaks_nothing() -> None:
    pace = StartPace(1.0, 1)
    assert pace.take(100.0, 5) == 1
    assert pace.take(50.0, 5) == 0
    assert pace.take(101.0, 5) == 1


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf])
def test_a_pace_needs_a_rate(rate: float) -> None:
    with pytest.raises(SettingError, match=r"^rate_per_s: "):
        StartPace(rate)


@pytest.mark.parametrize("burst", [0, -1])
def test_a_pace_needs_a_burst(burst: int) -> None:
    with pytest.raises(SettingError, match=r"^burst: "):
        StartPace(1.0, burst)


@given(
    st.floats(min_value=1e-4, max_value=1e4),
    st.integers(1, 50),
    st.lists(st.floats(min_value=0, max_value=1e4), max_size=40),
    st.floats(min_value=0, max_value=1e7),
)
def test_never_more_than_the_burst_and_the_rate_in_any_span(
    rate: float, burst: int, steps: list[float], start: float
) -> None:
    pace = StartPace(rate, burst)
    now, granted = start, pace.take(start, 10**6)
    for forward in steps:
        now += forward
        granted += pace.take(now, 10**6)
        assert granted <= burst + (now - start + 1e-5) * rate + 1e-6


@given(st.floats(min_value=1e-4, max_value=1e4), st.integers(1, 20), st.floats(min_value=0, max_value=1e7))
def test_asking_again_exactly_at_next_at_is_granted(rate: float, burst: int, start: float) -> None:
    pace = StartPace(rate, burst)
    assert pace.take(start, 10**6) == burst
    now = start
    for _ in range(50):
        assert pace.next_at >= now
        now = pace.next_at
        assert pace.take(now, 10**6) == 1


def test_ten_thousand_polls_of_a_minute_are_caught_up_with_within_one_interval_at_twice_the_even_rate() -> (
    None
):
    even = 10_000 / 60
    pace = StartPace(2 * even, 10)
    started, now, in_each_second = 0, 0.0, [0] * 61
    while started < 10_000:
        granted = pace.take(now, 10_000 - started)
        started += granted
        in_each_second[int(now)] += granted
        now = max(now, pace.next_at)
    assert now < 60
    assert max(in_each_second) <= 2 * even + 10
