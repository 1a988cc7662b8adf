"""Fetches that find nothing: as many as the dispatcher's own rules make, worked out without waiting."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.dispatching import NothingFound, Pace, PartBatch, decide
from bide.core.idling import Idling
from bide.core.pacing import PollingStrategy

LEAST = timedelta(milliseconds=100)
HOUR = timedelta(hours=1)
NO_WAIT = timedelta()


def fetches(strategy: PollingStrategy, stretch: timedelta = HOUR, wait: timedelta = NO_WAIT) -> int:
    return Idling(strategy, LEAST, wait).fetches(stretch)


@pytest.mark.parametrize(
    ("strategy", "an_hour"),
    [
        (PollingStrategy.fixed("500ms"), 7200),
        (PollingStrategy.fixed("100ms"), 36_000),
        (PollingStrategy.fixed("10ms"), 36_000),  # the dispatcher's least interval holds
        (PollingStrategy.fixed("2h"), 0),
    ],
)
def test_the_fixed_strategy_asks_at_its_interval(strategy: PollingStrategy, an_hour: int) -> None:
    assert abs(fetches(strategy) - an_hour) <= 1


def test_the_adaptive_strategy_asks_seldom_once_it_has_grown() -> None:
    ceiling = timedelta(seconds=5) * 0.95  # waits are drawn from a tenth less up to it
    assert abs(fetches(PollingStrategy.adaptive()) - HOUR / ceiling) < 6


def test_a_store_that_waits_is_asked_as_often_as_its_waits_end_whatever_the_strategy() -> None:
    for strategy in (PollingStrategy.fixed("100ms"), PollingStrategy.adaptive()):
        assert fetches(strategy, wait=timedelta(seconds=30)) == 120
        assert fetches(strategy, timedelta(seconds=29), wait=timedelta(seconds=30)) == 0


def test_a_wait_shorter_than_the_least_interval_is_followed_by_what_is_left_of_it() -> None:
    assert fetches(PollingStrategy.fixed("1s"), wait=timedelta(milliseconds=10)) == 36_000


def step_by_step(idling: Idling, stretch: timedelta) -> int:
    """The same, one fetch after the other."""
    waits = idling.poll_timeout > NO_WAIT
    pace = Pace.start(idling.strategy, idling.min_poll_interval)
    pace, at = decide(pace, PartBatch(waits), elapsed=NO_WAIT, draw=0.5)
    count = 0
    while at + idling.poll_timeout <= stretch:
        count += 1
        pace, wait = decide(pace, NothingFound(blocked=waits), elapsed=idling.poll_timeout, draw=0.5)
        at += idling.poll_timeout + wait
    return count


milliseconds = st.integers(1, 20_000).map(lambda ms: timedelta(milliseconds=ms))
strategies = st.one_of(
    milliseconds.map(PollingStrategy.fixed),
    st.builds(
        lambda least, more, factor: PollingStrategy.adaptive(least, least + more, factor),
        milliseconds,
        milliseconds,
        st.floats(1.2, 10),
    ),
)


@given(strategies, st.one_of(st.just(NO_WAIT), milliseconds), st.integers(0, 300))
def test_the_shortcut_counts_what_is_counted_one_by_one(
    strategy: PollingStrategy, wait: timedelta, seconds: int
) -> None:
    idling, stretch = Idling(strategy, LEAST, wait), timedelta(seconds=seconds)
    assert idling.fetches(stretch) == step_by_step(idling, stretch)


@given(strategies, milliseconds, st.integers(0, 3600))
def test_sleeping_longer_never_asks_more(strategy: PollingStrategy, more: timedelta, seconds: int) -> None:
    stretch = timedelta(seconds=seconds)
    if strategy.kind == "fixed":
        longer = PollingStrategy.fixed(strategy.min_interval + more)
    else:
        longer = PollingStrategy.adaptive(
            strategy.min_interval, strategy.max_interval + more, strategy.backoff_multiplier
        )
    assert fetches(longer, stretch) <= fetches(strategy, stretch)


@given(strategies, st.integers(0, 3600), st.integers(0, 3600))
def test_a_longer_stretch_never_has_fewer_fetches(strategy: PollingStrategy, one: int, other: int) -> None:
    shorter, longer = sorted((one, other))
    assert fetches(strategy, timedelta(seconds=shorter)) <= fetches(strategy, timedelta(seconds=longer))
