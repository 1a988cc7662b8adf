"""The polling machine against its table, written out here once more, and against any order of events."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bide.core.polling import (
    TRANSITIONS,
    Act,
    CancelWait,
    Effect,
    Event,
    Input,
    Machine,
    PollingDecision,
    PollingSettings,
    PollingState,
    PollOne,
    QuitPolling,
    Request,
    Result,
    RetryAfter,
    Start,
    Stop,
    Wait,
    WaitOver,
    step,
)
from bide.errors import SettingError

S = timedelta(seconds=1)
SETTINGS = PollingSettings()
LONG = 2 * S
SOON = 0.02 * S

# The table as the documentation has it. A dash: the input changes nothing in that state.
TABLE = """
state            | start                             | stop                          | wait over        | PollOne          | PollOne soon  | RetryAfter    | QuitPolling
NotPolling       | Polling, request                  | -                             | -                | -                | -             | -             | -
Polling          | -                                 | QuittingPolling               | -                | Polling, request | Waiting, wait | Waiting, wait | NotPolling
Waiting          | Polling, cancel the wait, request | NotPolling, cancel the wait   | Polling, request | -                | -             | -             | -
QuittingPolling  | -                                 | -                             | -                | NotPolling       | NotPolling    | NotPolling    | NotPolling
"""  # noqa: E501 - a table is read by its columns

INPUTS: dict[str, Callable[[int], Input]] = {
    "start": lambda generation: Start(),
    "stop": lambda generation: Stop(),
    "wait over": WaitOver,
    "PollOne": lambda generation: Result(generation, PollOne(), LONG),
    "PollOne soon": lambda generation: Result(generation, PollOne(), SOON),
    "RetryAfter": lambda generation: Result(generation, RetryAfter(), LONG),
    "QuitPolling": lambda generation: Result(generation, QuitPolling(), LONG),
}
EVENTS = dict(zip(INPUTS, Event, strict=True))
ACTS = {Request: "request", Wait: "wait", CancelWait: "cancel the wait"}


def cells() -> list[tuple[str, str, str]]:
    header, *lines = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]
    return [(line[0], header[column], line[column]) for line in lines for column in range(1, len(header))]


def in_state(state: str) -> Machine:
    """A machine that was led there by its inputs."""
    machine, _ = step(Machine(), Start(), SETTINGS)
    match state:
        case "NotPolling":
            machine, _ = step(machine, Result(machine.generation, QuitPolling(), LONG), SETTINGS)
        case "Waiting":
            machine, _ = step(machine, Result(machine.generation, RetryAfter(), LONG), SETTINGS)
        case "QuittingPolling":
            machine, _ = step(machine, Stop(), SETTINGS)
    assert machine.state.value == state
    return machine


@pytest.mark.parametrize(("state", "column", "cell"), cells())
def test_every_state_with_every_input(state: str, column: str, cell: str) -> None:
    machine = in_state(state)
    after, effects = step(machine, INPUTS[column](machine.generation), SETTINGS)
    if cell == "-":
        assert after == machine
        assert effects == ()
        return
    expected_state, *expected_acts = cell.split(", ")
    assert after.state.value == expected_state
    assert [ACTS[type(effect)] for effect in effects] == expected_acts


@pytest.mark.parametrize(("state", "column", "cell"), cells())
def test_the_transition_table_is_the_documented_one(state: str, column: str, cell: str) -> None:
    entry = TRANSITIONS.get((PollingState(state), EVENTS[column]))
    shown = "-" if entry is None else ", ".join([entry.state.value, *(act.value for act in entry.acts)])
    assert shown == cell


def test_the_table_covers_every_state_and_event_and_cannot_be_changed() -> None:
    assert {(PollingState(state), EVENTS[column]) for state, column, _ in cells()} == {
        (state, event) for state in PollingState for event in Event
    }
    assert {act for transition in TRANSITIONS.values() for act in transition.acts} == set(Act)
    with pytest.raises(TypeError):
        TRANSITIONS[PollingState.Polling, Event.START] = TRANSITIONS[PollingState.Polling, Event.STOP]  # type: ignore[index]  # the point


@pytest.mark.parametrize("state", [state.value for state in PollingState])
@pytest.mark.parametrize("off", [-1, 1, 100])
@pytest.mark.parametrize("column", ["wait over", "PollOne", "PollOne soon", "RetryAfter", "QuitPolling"])
def test_what_belongs_to_another_generation_is_dropped(state: str, off: int, column: str) -> None:
    machine = in_state(state)
    assert step(machine, INPUTS[column](machine.generation + off), SETTINGS) == (machine, ())


def test_effects_bear_the_number_under_which_they_are_reported() -> None:
    machine, effects = step(Machine(), Start(), SETTINGS)
    assert effects == (Request(machine.generation),)
    machine, effects = step(machine, Result(machine.generation, RetryAfter(), LONG), SETTINGS)
    assert effects == (Wait(machine.generation, 10 * S),)
    waited = machine.generation
    machine, effects = step(machine, Start(), SETTINGS)
    assert effects == (CancelWait(waited), Request(machine.generation))


# --- the waits --------------------------------------------------------------------------------------------------


class Run:
    """A machine under way, driven by results."""

    def __init__(self, settings: PollingSettings = SETTINGS) -> None:
        self.settings = settings
        self.machine = Machine()
        self.do(Start())

    def do(self, happened: Input) -> tuple[Effect, ...]:
        self.machine, effects = step(self.machine, happened, self.settings)
        return effects

    def result(self, decision: PollingDecision, elapsed: timedelta = LONG) -> timedelta | None:
        """The wait that a result brings, waited to its end; None where the next request goes out at once."""
        (effect,) = self.do(Result(self.machine.generation, decision, elapsed))
        match effect:
            case Wait(generation, delay):
                (request,) = self.do(WaitOver(generation))
                assert isinstance(request, Request)
                return delay
            case _:
                assert isinstance(effect, Request)
                return None


def test_the_back_off_is_10_s_doubling_to_160_s() -> None:
    run = Run()
    waits = [run.result(RetryAfter()) for _ in range(7)]
    assert waits == [10 * S, 20 * S, 40 * S, 80 * S, 160 * S, 160 * S, 160 * S]


def test_poll_one_resets_the_back_off() -> None:
    run = Run()
    assert [run.result(RetryAfter()) for _ in range(3)] == [10 * S, 20 * S, 40 * S]
    assert run.result(PollOne()) is None
    assert run.result(RetryAfter()) == 10 * S


def test_poll_one_on_a_quick_answer_waits_what_is_left_of_the_cycle_and_resets_the_back_off() -> None:
    run = Run(PollingSettings(min_cycle=0.5 * S))
    assert [run.result(RetryAfter()) for _ in range(2)] == [10 * S, 20 * S]
    assert run.result(PollOne(), elapsed=0.2 * S) == 0.3 * S
    assert run.result(PollOne(), elapsed=timedelta()) == 0.5 * S
    assert run.result(PollOne(), elapsed=0.5 * S) is None
    assert run.result(RetryAfter()) == 10 * S


def test_a_given_time_is_waited_as_it_is_and_leaves_the_back_off() -> None:
    run = Run()
    assert [run.result(RetryAfter()) for _ in range(2)] == [10 * S, 20 * S]
    assert run.result(RetryAfter(3)) == 3 * S
    assert run.result(RetryAfter("1h")) == 3600 * S
    assert run.result(RetryAfter(0), elapsed=LONG) == timedelta()
    assert run.result(RetryAfter()) == 40 * S


def test_a_given_time_of_0_does_not_spin() -> None:
    run = Run()
    assert run.result(RetryAfter(0), elapsed=timedelta()) == SETTINGS.min_cycle


def test_other_bounds() -> None:
    run = Run(PollingSettings(S, 5 * S, 3))
    assert [run.result(RetryAfter()) for _ in range(4)] == [S, 3 * S, 5 * S, 5 * S]


def test_a_new_run_begins_without_back_off_and_a_start_in_mid_wait_keeps_it() -> None:
    run = Run()
    assert [run.result(RetryAfter()) for _ in range(2)] == [10 * S, 20 * S]
    run.do(Result(run.machine.generation, RetryAfter(), LONG))
    run.do(Start())
    assert run.result(RetryAfter()) == 80 * S
    run.do(Stop())
    run.do(Result(run.machine.generation, RetryAfter(), LONG))
    assert run.machine.state is PollingState.NotPolling
    run.do(Start())
    assert run.result(RetryAfter()) == 10 * S


def test_a_result_of_the_run_before_moves_nothing() -> None:
    run = Run()
    first = run.machine.generation
    run.do(Result(first, QuitPolling(), LONG))
    run.do(Start())
    assert run.do(Result(first, QuitPolling(), LONG)) == ()
    assert run.machine.state is PollingState.Polling


def test_a_timer_that_fired_while_it_was_cancelled_does_not_end_a_later_wait() -> None:
    run = Run()
    run.do(Result(run.machine.generation, RetryAfter(), LONG))
    cancelled = run.machine.generation
    run.do(Start())
    run.do(Result(run.machine.generation, RetryAfter(), LONG))
    assert run.do(WaitOver(cancelled)) == ()
    assert run.machine.state is PollingState.Waiting


# --- settings -----------------------------------------------------------------------------------------------------

NONSENSE: list[Any] = [math.nan, math.inf, -1, 0, 1e-12, 2**31, 1e18, True, "soon", None]


@pytest.mark.parametrize("setting", ["min_retry_after", "max_retry_after", "min_cycle"])
@pytest.mark.parametrize("value", NONSENSE)
def test_settings_refuse_nonsense_by_name(setting: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"^{setting}: "):
        PollingSettings(**{setting: value})


@pytest.mark.parametrize("rate", [math.nan, math.inf, 0.9, 0, -1, True, "2"])
def test_the_rate_is_at_least_1(rate: Any) -> None:
    with pytest.raises(SettingError, match=r"^back_off_rate: "):
        PollingSettings(back_off_rate=rate)


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(SettingError, match=r"^max_retry_after: 1s is shorter than min_retry_after, 2s"):
        PollingSettings(2 * S, S)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, True, "soon", 1e18])
def test_a_decision_refuses_nonsense(value: Any) -> None:
    with pytest.raises(SettingError, match=r"^RetryAfter: "):
        RetryAfter(value)


# --- any order of events --------------------------------------------------------------------------------------

decisions: st.SearchStrategy[PollingDecision] = st.one_of(
    st.just(PollOne()),
    st.just(RetryAfter()),
    st.builds(RetryAfter, st.timedeltas(min_value=0 * S, max_value=9 * S).filter(lambda t: not t or t >= S)),
    st.just(QuitPolling()),
)
elapsed = st.sampled_from([timedelta(), SOON, SETTINGS.min_cycle, LONG])


class AnyOrder(RuleBasedStateMachine):
    """A runner that carries out effects, whose world answers in any order, late and twice."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()
        self.requests: set[int] = set()
        self.waits: set[int] = set()
        self.over: list[int] = []
        self.stopping = False

    def feed(self, happened: Input) -> tuple[Effect, ...]:
        before = self.machine
        self.machine, effects = step(self.machine, happened, SETTINGS)
        for effect in effects:
            match effect:
                case Request(generation):
                    assert generation not in self.requests
                    self.requests.add(generation)
                case Wait(generation, delay):
                    assert timedelta() <= delay <= SETTINGS.max_retry_after
                    self.waits.add(generation)
                case CancelWait(generation):
                    self.waits.remove(generation)
                    self.over.append(generation)
        if isinstance(happened, Start | Stop) or effects or self.machine != before:
            assert self.machine.generation >= before.generation
        return effects

    @rule()
    def start(self) -> None:
        out = set(self.requests)
        effects = self.feed(Start())
        if out:
            assert effects == ()  # no second loop beside the one that runs
        else:
            self.stopping = False
            assert [effect for effect in effects if isinstance(effect, Request)] == [effects[-1]]
            assert len(self.requests) == 1  # whatever ended the last run, a start begins one

    @rule()
    def stop(self) -> None:
        self.stopping = True
        effects = self.feed(Stop())
        assert not any(isinstance(effect, Request | Wait) for effect in effects)

    @precondition(lambda self: self.requests)
    @rule(decision=decisions, took=elapsed)
    def answer(self, decision: PollingDecision, took: timedelta) -> None:
        generation = self.requests.pop()
        self.over.append(generation)
        effects = self.feed(Result(generation, decision, took))
        if self.stopping or isinstance(decision, QuitPolling):
            assert effects == ()
            assert self.machine.state is PollingState.NotPolling  # quitting never sticks
        else:
            assert len(effects) == 1

    @precondition(lambda self: self.waits)
    @rule()
    def end_wait(self) -> None:
        generation = self.waits.pop()
        self.over.append(generation)
        (effect,) = self.feed(WaitOver(generation))
        assert isinstance(effect, Request)

    @precondition(lambda self: self.over)
    @rule(data=st.data(), decision=decisions, took=elapsed)
    def report_again(self, data: st.DataObject, decision: PollingDecision, took: timedelta) -> None:
        """Whatever is over acts no more, in whichever form it is reported."""
        generation = data.draw(st.sampled_from(self.over))
        before = self.machine
        for stale in (Result(generation, decision, took), WaitOver(generation)):
            assert self.feed(stale) == ()
            assert self.machine == before

    @invariant()
    def at_most_one_thing_is_under_way(self) -> None:
        assert len(self.requests) + len(self.waits) <= 1

    @invariant()
    def the_state_says_what_is_under_way(self) -> None:
        assert bool(self.requests) is (
            self.machine.state in (PollingState.Polling, PollingState.QuittingPolling)
        )
        assert bool(self.waits) is (self.machine.state is PollingState.Waiting)

    @invariant()
    def a_stop_ends_it_once_nothing_is_out(self) -> None:
        if self.stopping and not self.requests:
            assert self.machine.state is PollingState.NotPolling


TestAnyOrder = AnyOrder.TestCase
