"""When a process looks at which poll, and how many it may start."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.pacing import StartPace
from bide.core.schedule import Agenda, DueQueue, failure_hold

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def pace(rate: float = 1e6, burst: int = 1000) -> StartPace:
    return StartPace(rate, burst)


def plenty(connection: str) -> int:
    return 100


# --- agenda --------------------------------------------------------------------------------------------------


def test_the_agenda_answers_names_in_the_order_of_their_instants() -> None:
    agenda = Agenda()
    for name, at in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        agenda.put(name, at)
    assert agenda.next_at() == 1.0
    assert agenda.take_due(2.0) == ["a", "b"]
    assert agenda.take_due(2.0) == []
    assert len(agenda) == 1
    assert agenda.next_at() == 3.0


def test_moving_a_name_replaces_its_instant() -> None:
    agenda = Agenda()
    agenda.put("a", 1.0)
    agenda.put("a", 5.0)
    agenda.put("a", 5.0)
    assert agenda.take_due(4.0) == []
    agenda.put("a", 2.0)
    assert agenda.take_due(4.0) == ["a"]
    assert agenda.next_at() is None


def test_names_can_be_removed() -> None:
    agenda = Agenda()
    for name in "abc":
        agenda.put(name, 1.0)
    agenda.remove("a")
    agenda.remove("never there")
    agenda.keep_only(["b", "d"])
    assert agenda.take_due(9.0) == ["b"]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 50)), max_size=60))
def test_the_agenda_is_a_mapping_that_hands_out_each_name_once(moves: list[tuple[str, int]]) -> None:
    agenda, model = Agenda(), dict[str, float]()
    for name, at in moves:
        agenda.put(name, at)
        model[name] = at
    assert agenda.next_at() == min(model.values(), default=None)
    taken = agenda.take_due(100)
    assert sorted(taken) == sorted(model)
    assert [model[name] for name in taken] == sorted(model.values())


# --- due queue -----------------------------------------------------------------------------------------------


def test_connections_take_turns_and_each_is_first_come_first_served() -> None:
    due = DueQueue({"a": pace(), "b": pace()})
    for index in range(4):
        due.add(f"a.{index}", "a", MINUTE)
    due.add("b.0", "b", MINUTE)
    due.add("a.0", "a", MINUTE)
    assert due.pick(3, room_of=plenty, now=None) == ["a.0", "b.0", "a.1"]
    assert due.pick(9, room_of=plenty, now=None) == ["a.2", "a.3"]
    assert not due


def test_frequent_polls_do_not_stand_in_line_behind_rare_ones() -> None:
    due = DueQueue({"a": pace()})
    for index in range(3):
        due.add(f"rare.{index}", "a", HOUR)
    due.add("often", "a", timedelta(seconds=1))
    assert due.pick(2, room_of=plenty, now=None) == ["often", "rare.0"]


def test_a_connection_never_starts_more_than_it_has_room_for() -> None:
    due = DueQueue({"a": pace(), "b": pace()})
    for index in range(5):
        due.add(f"a.{index}", "a", MINUTE)
        due.add(f"b.{index}", "b", MINUTE)
    assert due.pick(9, room_of={"a": 2, "b": 0}.__getitem__, now=None) == ["a.0", "a.1"]
    assert due.pick(9, room_of={"a": -1, "b": 1}.__getitem__, now=None) == ["b.0"]
    assert due.pick(0, room_of=plenty, now=None) == []


def test_another_connection_begins_the_next_time_so_that_few_places_are_shared() -> None:
    due = DueQueue({"a": pace(), "b": pace()})
    for index in range(3):
        due.add(f"a.{index}", "a", MINUTE)
        due.add(f"b.{index}", "b", MINUTE)
    picked = [due.pick(1, room_of=plenty, now=None)[0] for _ in range(6)]
    assert picked == ["a.0", "b.0", "a.1", "b.1", "a.2", "b.2"]


def test_starts_are_spread_by_the_pace_and_what_was_not_used_is_given_back() -> None:
    due = DueQueue({"a": pace(rate=1.0, burst=2)})
    for index in range(5):
        due.add(f"a.{index}", "a", MINUTE)
    assert due.pick(1, room_of=plenty, now=100.0) == ["a.0"]
    assert due.pick(9, room_of=plenty, now=100.0) == ["a.1"]
    assert due.pick(9, room_of=plenty, now=100.0) == []
    at = due.next_at(plenty)
    assert at is not None
    assert 100.9 < at <= 101.0
    assert due.pick(9, room_of=plenty, now=at) == ["a.2"]
    assert due.pick(9, room_of=plenty, now=None) == ["a.3", "a.4"], "one pass does not pace"


def test_only_the_pace_is_waited_for_not_a_cap() -> None:
    due = DueQueue({"a": pace(rate=1.0, burst=1)})
    assert due.next_at(plenty) is None
    due.add("a.0", "a", MINUTE)
    assert due.next_at(lambda connection: 0) is None
    assert due.next_at(plenty) is not None


@given(
    st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 12), st.integers(1, 4)), min_size=1),
    st.integers(0, 20),
)
def test_picks_respect_every_bound_and_lose_nothing(shape: dict[str, tuple[int, int]], limit: int) -> None:
    due = DueQueue(dict.fromkeys(shape, pace()))
    names = {f"{name}.{index}": name for name, (count, _) in shape.items() for index in range(count)}
    for name, connection in names.items():
        due.add(name, connection, MINUTE)
    picked = due.pick(limit, room_of=lambda connection: shape[connection][1], now=None)
    assert len(picked) == min(limit, sum(min(count, cap) for count, cap in shape.values()))
    for connection, (_, cap) in shape.items():
        assert sum(names[name] == connection for name in picked) <= cap
    rest: list[str] = []
    while due:
        rest += due.pick(99, room_of=plenty, now=None)
    assert sorted(picked + rest) == sorted(names)


# --- failures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "every", "minutes"),
    [
        (1, HOUR, 1),
        (2, HOUR, 2),
        (3, HOUR, 4),
        (7, HOUR, 60),
        (10**9, HOUR, 60),
        (1, MINUTE, 1),
        (50, MINUTE, 1),
    ],
)
def test_failures_are_held_a_minute_doubling_up_to_the_interval(
    failures: int, every: timedelta, minutes: int
) -> None:
    held = failure_hold(failures, every=every, failure_retry=MINUTE, hint=None)
    assert held == minutes * MINUTE


def test_an_interval_below_the_retry_does_not_shorten_it() -> None:
    held = failure_hold(9, every=timedelta(seconds=1), failure_retry=MINUTE, hint=None)
    assert held == MINUTE


def test_a_hint_is_taken_but_no_sooner_than_the_poll_would_be_called_anyway() -> None:
    day = timedelta(days=1)
    assert failure_hold(3, every=HOUR, failure_retry=MINUTE, hint=day) == day
    assert failure_hold(9, every=HOUR, failure_retry=MINUTE, hint=timedelta(seconds=5)) == MINUTE
    assert failure_hold(
        1, every=timedelta(seconds=2), failure_retry=MINUTE, hint=timedelta(seconds=1)
    ) == timedelta(seconds=2)


def test_slack_brings_the_retry_forward_but_not_a_hint_and_not_below_zero() -> None:
    half = timedelta(seconds=30)
    assert failure_hold(1, every=HOUR, failure_retry=MINUTE, hint=None, slack=half) == half
    assert failure_hold(1, every=HOUR, failure_retry=MINUTE, hint=HOUR, slack=half) == HOUR
    assert failure_hold(1, every=HOUR, failure_retry=MINUTE, hint=None, slack=HOUR) == timedelta()
