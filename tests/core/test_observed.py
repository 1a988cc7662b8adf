"""Counts of processes, put together and scaled to a month."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.observed import Counted, by_store, read_counts, read_metrics

HOUR = 3_600_000
NOW = 1_800_000_000_000


def counted(
    begin_h: int, end_h: int, place: str = "s3://b", requests: Mapping[str, int] | None = None
) -> Counted:
    return Counted("s3", place, begin_h * HOUR, end_h * HOUR, requests or {"GET": 100})


def test_an_hour_is_a_720th_of_a_month() -> None:
    (store,) = by_store([counted(0, 1)])
    assert store.monthly == {"GET": Decimal(72_000)}


def test_processes_side_by_side_add_up_over_the_same_time() -> None:
    (store,) = by_store([counted(0, 2), counted(0, 2), counted(1, 2, requests={"PUT": 1})])
    assert (store.covered_ms, store.processes) == (2 * HOUR, 3)
    assert store.requests == {"GET": 200, "PUT": 1}


def test_a_pause_in_which_nobody_counted_is_no_time_observed() -> None:
    (store,) = by_store([counted(10, 11), counted(0, 1)])
    assert store.covered_ms == 2 * HOUR
    assert (store.since, store.until) == (0, 11 * HOUR)


def test_stores_are_told_apart_the_most_asked_first() -> None:
    few, many = counted(0, 1, "s3://few"), counted(0, 1, "s3://many", {"GET": 5000})
    assert [store.place for store in by_store([few, many])] == ["s3://many", "s3://few"]


times = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted)


@given(st.lists(times, min_size=1))
def test_what_is_covered_is_what_somebody_counted_in(spans: list[list[int]]) -> None:
    (store,) = by_store([counted(begin, end) for begin, end in spans])
    hours = {hour for begin, end in spans for hour in range(begin, end)}
    assert store.covered_ms == len(hours) * HOUR


def test_counts_are_read_as_they_were_written() -> None:
    one = counted(3, 4)
    assert read_counts(one.as_json()) == one


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 2},
        {"requests": 3},
        {"requests": {"GET": -1}},
        {"requests": {"GET": True}},
        {"requests": {"GET": "x"}},
        {"since": "yesterday"},
        {"until": None},
    ],
)
def test_counts_that_are_none_are_refused(changed: dict[str, object]) -> None:
    text = json.dumps(json.loads(counted(0, 1).as_json()) | changed)
    with pytest.raises(ValueError, match=r"it is not a file of counts|its requests are|its times are"):
        read_counts(text)


@pytest.mark.parametrize("text", ["[]", "{", "3"])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_counts(text)


def test_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    assert read_counts(Counted("s3", "", 10, 5, {}).as_json()).until == 10


METRICS = """
# HELP bide_provider_requests_total Requests to the store.
# TYPE bide_provider_requests_total counter
bide_provider_requests_total{class="GET",provider="s3"} 120.0
bide_provider_requests_total{provider="s3",class="LIST"} 1.2e+01
bide_provider_requests_total{class="command",provider="redis"} 7.0
# TYPE bide_provider_requests_created gauge
bide_provider_requests_created{class="GET",provider="s3"} 1.7999964e+09
bide_provider_requests_created{class="LIST",provider="s3"} 1.7999999e+09
bide_provider_requests_created{class="command",provider="redis"} 1.7999964e+09
bide_polls_total{connection="eu"} 4.0
"""


def test_metrics_are_read_by_kind_since_their_first_count() -> None:
    s3, redis = read_metrics(METRICS, NOW)
    assert s3 == Counted("s3", "", 1_799_996_400_000, NOW, {"GET": 120, "LIST": 12})
    assert redis.requests == {"command": 7}


def test_metrics_without_counts_have_none() -> None:
    assert read_metrics("bide_polls_total 3\n", NOW) == []


def test_metrics_that_do_not_say_since_when_they_count_are_refused() -> None:
    with pytest.raises(ValueError, match="since when it counts requests to s3"):
        read_metrics('bide_provider_requests_total{class="GET",provider="s3"} 1\n', NOW)
