"""The claim rule: who may call, and when it is due next.

``Row`` and its verbs model what a provider keeps; the rule alone decides.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bide.core.claim import claimable_at, is_claimable, next_due_at, phase_ms

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
DAY, YEAR = 24 * HOUR, 365 * 24 * HOUR
NOW = 1_750_000_000_000
E = 10 * MINUTE
HOLD = 90 * SECOND  # a deadline of 30 s and a failure retry of 1 m


@dataclass(frozen=True)
class Row:
    """A poll that rests: called, recorded, due half an interval from now."""

    due_at: int = NOW + E // 2
    not_before_at: int | None = None
    hold_ms: int = 0
    outstanding: bool = False
    every_ms: int | None = E
    paused: bool = False

    def taken(self, now: int, every: int, *, name: str = "eu.price", hold: int = HOLD) -> Row:
        return replace(
            self,
            due_at=next_due_at(now, every, phase_ms(name, every)),
            not_before_at=now + hold,
            hold_ms=hold,
            outstanding=True,
            every_ms=every,
        )

    def answered(self, now: int, hold: int = 0) -> Row:
        return replace(self, outstanding=False, not_before_at=now + hold if hold else None, hold_ms=hold)

    def failed(self, now: int, hold: int) -> Row:
        return replace(self, outstanding=False, due_at=now, not_before_at=now + hold, hold_ms=hold)


RESTING = Row()
CLAIMED = RESTING.taken(NOW, E)


# --- the table, row by row
# ------------------------------------------------------------------------------------

CASES = {
    "no row": (None, NOW, E, True),
    "due exactly now": (Row(due_at=NOW), NOW, E, True),
    "due a millisecond later": (Row(due_at=NOW + 1), NOW, E, False),
    "long overdue": (Row(due_at=NOW - DAY), NOW, E, True),
    "resting": (RESTING, NOW, E, False),
    "paused": (Row(due_at=NOW, paused=True), NOW, E, False),
    "paused while out": (replace(CLAIMED, paused=True), NOW + DAY, E, False),
    "shortened": (Row(due_at=NOW + E, every_ms=E), NOW, E // 10, True),
    "shortened, and due within the new interval": (Row(due_at=NOW + E // 20), NOW, E // 10, False),
    "shortened, and due exactly one new interval away": (Row(due_at=NOW + E // 10), NOW, E // 10, False),
    "lengthened": (Row(due_at=NOW + E), NOW, 10 * E, False),
    "lengthened, when its old instant comes": (Row(due_at=NOW), NOW, 10 * E, True),
    "interval unknown, due in one interval": (Row(due_at=NOW + E, every_ms=None), NOW, E, False),
    "interval unknown, due later than that": (Row(due_at=NOW + E + 1, every_ms=None), NOW, E, True),
    "one interval and a half away, as after any claim": (Row(due_at=NOW + E + E // 2), NOW, E, False),
    "two intervals away": (Row(due_at=NOW + 2 * E), NOW, E, False),
    "further: the clock was set back": (Row(due_at=NOW + 2 * E + 1), NOW, E, True),
    "held": (Row(due_at=NOW - 1, not_before_at=NOW + 1, hold_ms=HOLD), NOW, E, False),
    "hold over": (Row(due_at=NOW - 1, not_before_at=NOW, hold_ms=HOLD), NOW, E, True),
    "hold twice its length away": (
        Row(due_at=NOW, not_before_at=NOW + 2 * HOLD, hold_ms=HOLD),
        NOW,
        E,
        False,
    ),
    "hold further away: the clock was set back": (
        Row(due_at=NOW, not_before_at=NOW + 2 * HOLD + 1, hold_ms=HOLD),
        NOW,
        E,
        True,
    ),
    "held though shortened": (Row(due_at=NOW + E, not_before_at=NOW + 1, hold_ms=HOLD), NOW, E // 10, False),
    "held though set back": (Row(due_at=NOW + 3 * E, not_before_at=NOW + 1, hold_ms=HOLD), NOW, E, False),
    "out, within its hold": (CLAIMED, NOW + HOLD - 1, E, False),
    "out, hold over: its caller crashed": (CLAIMED, NOW + HOLD, E, True),
    "out without a hold: asked for by hand": (
        replace(CLAIMED, due_at=NOW, not_before_at=None, hold_ms=0),
        NOW,
        E,
        True,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_claim_table(case: str) -> None:
    row, now, every, claimable = CASES[case]
    assert is_claimable(row, now=now, every_ms=every) is claimable


def test_slack_takes_what_will_be_due_before_the_caller_comes_again() -> None:
    row = Row(due_at=NOW + 30 * SECOND)
    assert not is_claimable(row, now=NOW, every_ms=MINUTE * 10)
    assert is_claimable(row, now=NOW, every_ms=MINUTE * 10, slack_ms=30 * SECOND)
    assert not is_claimable(row, now=NOW, every_ms=MINUTE * 10, slack_ms=30 * SECOND - 1)
    assert not is_claimable(replace(row, paused=True), now=NOW, every_ms=E, slack_ms=HOUR)
    held = replace(row, not_before_at=NOW + 1, hold_ms=1)
    assert not is_claimable(held, now=NOW, every_ms=E, slack_ms=HOUR)


# --- what comes of a claim ----------------------------------------------------------------------------------


def test_a_second_tick_at_the_same_moment_does_not_call() -> None:
    for slack in (0, MINUTE // 2):
        assert not is_claimable(CLAIMED, now=NOW, every_ms=E, slack_ms=slack)
        assert not is_claimable(CLAIMED.answered(NOW), now=NOW, every_ms=E, slack_ms=slack)


@pytest.mark.parametrize("off", [-E // 2, -5 * MINUTE, -MINUTE, -1, 1, MINUTE, E // 2])
def test_an_instance_whose_clock_is_behind_or_ahead_by_up_to_half_an_interval_does_not_call_again(
    off: int,
) -> None:
    assert not is_claimable(CLAIMED.answered(NOW), now=NOW + off, every_ms=E)


@pytest.mark.parametrize("back", [SECOND, HOUR, 8 * YEAR])
@pytest.mark.parametrize("every", [20 * SECOND, 10 * MINUTE, DAY])
def test_a_wall_clock_set_back_never_stops_a_poll_for_more_than_two_intervals(back: int, every: int) -> None:
    row = RESTING.taken(NOW, every).answered(NOW)
    now = NOW - back
    at = claimable_at(row, now=now, every_ms=every)
    assert at is not None
    assert now <= at <= now + 2 * every
    assert is_claimable(row, now=at, every_ms=every)


@pytest.mark.parametrize("back", [SECOND, HOUR, 8 * YEAR])
def test_a_wall_clock_set_back_never_prolongs_a_hold_beyond_twice_its_length(back: int) -> None:
    for row in (RESTING.taken(NOW, E), RESTING.failed(NOW, MINUTE), RESTING.answered(NOW, MINUTE)):
        now = NOW - back
        at = claimable_at(row, now=now, every_ms=E)
        assert at is not None
        assert at <= now + 2 * max(row.hold_ms, E)


def test_missed_intervals_are_one() -> None:
    row = RESTING.taken(NOW, HOUR).answered(NOW)
    later = NOW + 8 * HOUR + 17 * MINUTE  # suspended for a night
    assert is_claimable(row, now=later, every_ms=HOUR)
    row = row.taken(later, HOUR).answered(later)
    assert not is_claimable(row, now=later, every_ms=HOUR)
    assert later + HOUR // 2 < row.due_at <= later + HOUR * 3 // 2


def test_a_crash_after_the_claim_is_due_again_when_the_hold_is_over() -> None:
    row = RESTING.taken(NOW, DAY)
    assert claimable_at(row, now=NOW, every_ms=DAY) == NOW + HOLD
    assert not is_claimable(row, now=NOW + HOLD - 1, every_ms=DAY)
    assert is_claimable(row, now=NOW + HOLD, every_ms=DAY)


def test_a_hint_delays_beyond_the_interval_and_never_shortens_it() -> None:
    row = RESTING.taken(NOW, E)
    due_at = row.due_at
    long, short = row.answered(NOW, hold=DAY), row.answered(NOW, hold=SECOND)
    assert claimable_at(long, now=NOW, every_ms=E) == NOW + DAY
    assert claimable_at(short, now=NOW, every_ms=E) == due_at


def test_a_failure_is_due_again_after_its_hold_and_then_keeps_its_phase() -> None:
    row = RESTING.taken(NOW, E).failed(NOW + SECOND, MINUTE)
    again = NOW + SECOND + MINUTE
    assert claimable_at(row, now=NOW + SECOND, every_ms=E) == again
    row = row.taken(again, E).answered(again)
    assert row.due_at % E == phase_ms("eu.price", E)


def test_shortening_calls_once_and_then_every_new_interval() -> None:
    row = RESTING.taken(NOW, DAY).answered(NOW)
    now = NOW + MINUTE
    assert is_claimable(row, now=now, every_ms=MINUTE)
    row = row.taken(now, MINUTE).answered(now)
    assert not is_claimable(row, now=now, every_ms=MINUTE)
    assert row.due_at <= now + MINUTE * 3 // 2


def test_lengthening_keeps_the_instant_that_was_set() -> None:
    row = RESTING.taken(NOW, MINUTE).answered(NOW)
    assert claimable_at(row, now=NOW, every_ms=DAY) == row.due_at
    row = row.taken(row.due_at, DAY)
    assert row.every_ms == DAY


def test_an_unknown_interval_counts_once_as_another() -> None:
    row = replace(RESTING.taken(NOW, DAY).answered(NOW), every_ms=None)
    assert is_claimable(row, now=NOW, every_ms=HOUR)
    row = row.taken(NOW, HOUR).answered(NOW)
    assert not is_claimable(row, now=NOW, every_ms=HOUR)


def test_paused_polls_wait_for_a_hand() -> None:
    assert claimable_at(replace(RESTING, paused=True), now=NOW, every_ms=E) is None


def test_a_new_poll_is_claimable_now() -> None:
    assert claimable_at(None, now=NOW, every_ms=E) == NOW


def test_a_hold_that_begins_to_count_before_the_due_instant_is_foreseen() -> None:
    # The clock was set back, so the hold is too far away to count now, and will count when the poll is due.
    row = Row(due_at=NOW + E, not_before_at=NOW + E + MINUTE, hold_ms=MINUTE)
    assert not is_claimable(row, now=NOW, every_ms=E)
    assert claimable_at(row, now=NOW, every_ms=E) == NOW + E + MINUTE


# --- many instances
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instances", [1, 2, 10])
def test_many_instances_make_one_call_an_interval(instances: int) -> None:
    """Each looks once a second, shifted against the others; the store's clock judges whatever theirs say."""
    every, intervals = 10 * SECOND, 100
    shifts = [instance * 3 * SECOND // instances for instance in range(instances)]
    looks = sorted(
        NOW + shift + second * SECOND for second in range(intervals * every // SECOND) for shift in shifts
    )
    row: Row | None = None
    calls: list[int] = []
    for now in looks:
        if is_claimable(row, now=now, every_ms=every):
            calls.append(now)
            row = (row or RESTING).taken(now, every).answered(now + 100)
    slots = [(now - phase_ms("eu.price", every)) // every for now in calls[1:]]
    assert slots == list(range(slots[0], slots[0] + len(slots)))  # one in every interval, none left out
    assert abs(len(calls) - intervals) <= 1
    assert min(after - before for before, after in pairwise(calls)) > every // 2


def test_while_the_caller_lives_and_the_call_is_out_nobody_else_calls() -> None:
    row = RESTING.taken(NOW, SECOND)  # an interval much shorter than the call
    assert not any(is_claimable(row, now=NOW + at, every_ms=SECOND) for at in range(0, HOLD, 250))


# --- the phase ----------------------------------------------------------------------------------------------


def test_the_phase_is_a_stable_hash_of_the_name() -> None:
    expected = int.from_bytes(hashlib.sha256(b"eu.price").digest()[:8], "big") % 60_000
    assert phase_ms("eu.price", 60_000) == expected
    assert phase_ms("eu.prix-café", E) == phase_ms("eu.prix-café", E) != phase_ms("us.prix-café", E)


def test_ten_thousand_polls_are_spread_evenly_at_start_and_after_an_outage() -> None:
    names = [f"eu.item{n}" for n in range(10_000)]
    for now in (NOW, NOW + HOUR + 1234):  # every one is claimed in the same moment
        buckets = [0] * 60
        for name in names:
            due_at = next_due_at(now, MINUTE, phase_ms(name, MINUTE))
            buckets[due_at % MINUTE // SECOND] += 1
        assert sum(buckets) == 10_000
        assert max(buckets) < 10_000 / 60 * 1.4
        assert min(buckets) > 10_000 / 60 * 0.6


# --- for every value ----------------------------------------------------------------------------------------

nows = st.integers(min_value=0, max_value=NOW * 3)
everies = st.integers(min_value=1, max_value=YEAR)
names = st.text(max_size=20)


def near(instant: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(instant - 100, instant + 100), st.integers(-YEAR, YEAR).map(instant.__add__))


rows = st.builds(
    Row,
    due_at=near(NOW),
    not_before_at=st.none() | near(NOW),
    hold_ms=st.integers(0, 200) | st.integers(0, YEAR),
    outstanding=st.booleans(),
    every_ms=st.none() | st.integers(1, 200) | everies,
    paused=st.booleans(),
)


@given(nows, everies, names)
@example(now=0, every=1, name="")
def test_after_a_claim_the_gap_is_more_than_half_and_at_most_one_and_a_half_intervals(
    now: int, every: int, name: str
) -> None:
    phase = phase_ms(name, every)
    due_at = next_due_at(now, every, phase)
    assert 0 <= phase < every
    assert due_at % every == phase
    assert every < 2 * (due_at - now) <= 3 * every
    assert due_at - every <= now + every / 2  # and it is the least such instant


@given(rows, nows, everies, names, st.data())
def test_what_was_claimed_is_not_claimable_within_half_an_interval(
    row: Row, now: int, every: int, name: str, data: st.DataObject
) -> None:
    claimed = replace(row, paused=False).taken(now, every, name=name)
    recorded = claimed.answered(now)
    later = now + data.draw(st.integers(0, every // 2))
    assert not is_claimable(recorded, now=later, every_ms=every)
    assert not is_claimable(claimed, now=min(later, now + HOLD - 1), every_ms=every)
    assert not is_claimable(recorded, now=now, every_ms=every, slack_ms=every // 2)


@given(rows, near(NOW), st.integers(1, 200) | everies, st.data())
def test_claimable_at_is_the_first_instant_at_which_it_is_claimable(
    row: Row, now: int, every: int, data: st.DataObject
) -> None:
    at = claimable_at(row, now=now, every_ms=every)
    if at is None:
        assert row.paused
        return
    assert at >= now
    assert is_claimable(row, now=at, every_ms=every)
    if at > now:
        before = data.draw(st.integers(now, at - 1) | st.just(at - 1) | st.just(now))
        assert not is_claimable(row, now=before, every_ms=every)


@given(rows, near(NOW), everies)
def test_no_poll_that_is_not_paused_waits_for_ever(row: Row, now: int, every: int) -> None:
    at = claimable_at(replace(row, paused=False), now=now, every_ms=every)
    assert at is not None
    assert at <= now + 2 * max(every, row.hold_ms) + 2 * row.hold_ms


@given(rows, everies, st.lists(st.integers(1, 3 * DAY), max_size=30))
def test_gaps_between_calls_that_are_answered_are_more_than_half_an_interval(
    row: Row, every: int, steps: list[int]
) -> None:
    now = NOW
    current: Row | None = None
    called_at: int | None = None
    for forward in steps:
        now += forward
        if is_claimable(current, now=now, every_ms=every):
            if called_at is not None:
                assert 2 * (now - called_at) > every
            called_at = now
            current = (current or row).taken(now, every, name="x").answered(now)
            current = replace(current, paused=False)
