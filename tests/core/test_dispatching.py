"""How soon a dispatcher asks again, from the rules of pacing."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from bide.core.dispatching import (
    FetchFailed,
    FullBatch,
    NothingFound,
    Observation,
    Pace,
    PartBatch,
    TakenByOthers,
    decide,
)
from bide.core.pacing import PollingStrategy

MS = timedelta(milliseconds=1)
ZERO = timedelta()
ADAPTIVE = PollingStrategy.adaptive("100ms", "5s")


def pace(strategy: PollingStrategy = ADAPTIVE, minimum: timedelta = 100 * MS) -> Pace:
    return Pace.start(strategy, minimum)


def after(*seen: Observation, elapsed: timedelta = ZERO, start: Pace | None = None) -> tuple[Pace, timedelta]:
    """Pace and wait after these observations; 0.5 draws no jitter."""
    now, wait = start or pace(), ZERO
    for each in seen:
        now, wait = decide(now, each, elapsed=elapsed, draw=0.5)
    return now, wait


def test_a_full_batch_means_ask_again_at_once() -> None:
    assert after(FullBatch())[1] == ZERO


def test_a_part_batch_means_at_once_where_the_fetch_blocked_and_after_the_least_interval_elsewhere() -> None:
    assert after(PartBatch(blocked=True))[1] == ZERO
    assert after(PartBatch(blocked=False))[1] == 100 * MS
    assert after(PartBatch(blocked=False), elapsed=30 * MS)[1] == 70 * MS


def test_a_provider_that_waited_once_is_asked_at_once_after_a_part_batch_until_it_answers_without_waiting() -> (
    None
):
    waited = after(NothingFound(blocked=True), elapsed=timedelta(seconds=30))[0]
    assert after(PartBatch(blocked=False), start=waited)[1] == ZERO
    assert after(FullBatch(), PartBatch(blocked=False), start=waited)[1] == ZERO
    assert after(PartBatch(blocked=True), PartBatch(blocked=False))[1] == ZERO
    assert after(NothingFound(), PartBatch(blocked=False), start=waited)[1] == 100 * MS
    assert after(TakenByOthers(), PartBatch(blocked=False), start=waited)[1] == ZERO, (
        "that says nothing of it"
    )


def test_a_long_poll_that_ran_out_is_followed_at_once_and_slows_nothing_down() -> None:
    now, wait = after(*[NothingFound(blocked=True)] * 5, elapsed=timedelta(seconds=1))
    assert wait == ZERO
    assert now.interval == pace().interval


def test_one_that_was_woken_early_slows_nothing_down_and_is_followed_after_the_least_interval() -> None:
    now, wait = after(*[NothingFound(blocked=True)] * 5, elapsed=MS)
    assert wait == 99 * MS
    assert now.interval == pace().interval


def test_losing_to_others_counts_as_nothing_found() -> None:
    assert [after(*[TakenByOthers()] * count)[1] / MS for count in (1, 2, 3)] == [200, 400, 800]


def test_nothing_found_takes_the_next_interval_first_and_grows_to_the_ceiling() -> None:
    waits = [after(*[NothingFound()] * count)[1] / MS for count in range(1, 9)]
    assert waits == [200, 400, 800, 1600, 3200, 4750, 4750, 4750], "drawn up to the ceiling once there"


def test_anything_found_starts_the_growth_anew() -> None:
    assert after(*[NothingFound()] * 6, FullBatch(), NothingFound())[1] == 200 * MS
    assert after(*[NothingFound()] * 6, PartBatch(blocked=True), NothingFound())[1] == 200 * MS


def test_the_wait_counts_from_when_the_fetch_began_so_an_expired_long_poll_goes_on_at_once() -> None:
    assert after(NothingFound(), elapsed=150 * MS)[1] == 50 * MS
    assert after(NothingFound(), elapsed=timedelta(seconds=30))[1] == ZERO


def test_it_waits_no_longer_than_until_something_is_eligible_and_never_less_than_the_minimum() -> None:
    assert after(*[NothingFound()] * 5, NothingFound(300 * MS))[1] == 300 * MS
    assert after(*[NothingFound()] * 5, NothingFound(300 * MS), elapsed=200 * MS)[1] == 300 * MS
    assert after(NothingFound(ZERO))[1] == 100 * MS
    assert after(NothingFound(ZERO), elapsed=40 * MS)[1] == 60 * MS


def test_the_minimum_holds_also_where_the_strategy_would_ask_sooner() -> None:
    hasty = pace(PollingStrategy.fixed("1ms"))
    assert after(NothingFound(), start=hasty)[1] == 100 * MS


def test_a_failed_fetch_backs_off_by_itself_and_never_as_nothing_found() -> None:
    waits = [after(*[FetchFailed()] * count)[1] / MS for count in (1, 2, 3, 9, 10, 50)]
    assert waits == [100, 200, 400, 25600, 30000, 30000]
    now, _ = after(*[FetchFailed()] * 9)
    assert now.interval == pace().interval
    assert after(NothingFound(), FetchFailed(), start=now)[1] == 100 * MS, "an answer ends it"


@given(
    seen=st.lists(
        st.sampled_from(
            [
                FullBatch(),
                PartBatch(True),
                PartBatch(False),
                NothingFound(),
                NothingFound(blocked=True),
                TakenByOthers(),
                FetchFailed(),
            ]
        ),
        max_size=60,
    ),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_every_wait_is_finite_and_within_the_bounds(seen: list[Observation], draw: float) -> None:
    now = pace()
    for each in seen:
        now, wait = decide(now, each, elapsed=ZERO, draw=draw)
        assert ZERO <= wait <= timedelta(seconds=33)
        if isinstance(each, NothingFound | TakenByOthers):
            assert 100 * MS <= wait <= timedelta(seconds=5)
