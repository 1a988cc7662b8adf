"""The polling machine: what a loop does next, decided without a loop.

``step(machine, input, settings)`` answers the machine after the input and the effects that its runner carries
out: make a request, wait, cancel the wait. What happens in which state stands in :data:`TRANSITIONS`, which
the code, its tests and the diagram in the documentation all read.

At most one request or wait is under way. Each has a number of its own, the machine's ``generation``; what is
reported of another number came too late and is dropped. So a result that arrives after a stop and a new
start, or a timer that fired just as it was cancelled, moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from types import MappingProxyType
from typing import assert_never

from bide.core.durations import Duration, parse_duration
from bide.core.pacing import Backoff, check_factor, ordered_bounds


class PollingState(Enum):
    """Where the loop is."""

    NotPolling = "NotPolling"
    """Nothing is under way."""
    Polling = "Polling"
    """A request is out."""
    Waiting = "Waiting"
    """Nothing is out; a wait runs before the next request."""
    QuittingPolling = "QuittingPolling"
    """A request is out, and its result will be the last."""


# --- decisions: what a result means -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PollOne:
    """Ask again now, and forget the back-off."""


@dataclass(frozen=True, slots=True, init=False)
class RetryAfter:
    """Ask again later: after ``after``, or, without it, after the next delay of the back-off.

    ``after`` is a ``timedelta``, a number of seconds, or text such as ``"30s"``. A delay that is given is
    waited as it is and leaves the back-off where it was. Raises :class:`~bide.errors.SettingError` for what
    is no duration; zero is one.
    """

    after: timedelta | None

    def __init__(self, after: Duration | None = None) -> None:
        given = None if after is None else parse_duration(after, "RetryAfter", zero=True)
        object.__setattr__(self, "after", given)


@dataclass(frozen=True, slots=True)
class QuitPolling:
    """Do not ask again."""


PollingDecision = PollOne | RetryAfter | QuitPolling

# --- inputs: what happened
# ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Somebody wants polling to begin, or to go on now."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody wants polling to end once nothing is out."""


@dataclass(frozen=True, slots=True)
class WaitOver:
    """The wait of ``generation`` ended."""

    generation: int


@dataclass(frozen=True, slots=True)
class Result:
    """The request of ``generation`` ended after ``elapsed``, and this is what its result means."""

    generation: int
    decision: PollingDecision
    elapsed: timedelta


Input = Start | Stop | WaitOver | Result

# --- effects: what the runner does
# ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """Make a request and report its :class:`Result` under ``generation``."""

    generation: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Report :class:`WaitOver` under ``generation`` after ``delay``."""

    generation: int
    delay: timedelta


@dataclass(frozen=True, slots=True)
class CancelWait:
    """End the wait of ``generation`` without a report."""

    generation: int


Effect = Request | Wait | CancelWait

# --- the table
# ------------------------------------------------------------------------------------------------


class Event(Enum):
    """The kinds of input that the table tells apart."""

    START = "start"
    STOP = "stop"
    WAIT_OVER = "wait over"
    POLL_ONE = "result: PollOne"
    POLL_ONE_SOON = "result: PollOne, sooner than the minimum cycle time"
    RETRY_AFTER = "result: RetryAfter"
    QUIT_POLLING = "result: QuitPolling"


class Act(Enum):
    """The kinds of effect that the table asks for."""

    REQUEST = "request"
    WAIT = "wait"
    CANCEL_WAIT = "cancel the wait"


@dataclass(frozen=True, slots=True)
class Transition:
    """The state after, and what to do, in order."""

    state: PollingState
    acts: tuple[Act, ...] = ()


TRANSITIONS: Mapping[tuple[PollingState, Event], Transition] = MappingProxyType(
    {
        (PollingState.NotPolling, Event.START): Transition(PollingState.Polling, (Act.REQUEST,)),
        (PollingState.Polling, Event.STOP): Transition(PollingState.QuittingPolling),
        (PollingState.Polling, Event.POLL_ONE): Transition(PollingState.Polling, (Act.REQUEST,)),
        (PollingState.Polling, Event.POLL_ONE_SOON): Transition(PollingState.Waiting, (Act.WAIT,)),
        (PollingState.Polling, Event.RETRY_AFTER): Transition(PollingState.Waiting, (Act.WAIT,)),
        (PollingState.Polling, Event.QUIT_POLLING): Transition(PollingState.NotPolling),
        (PollingState.Waiting, Event.START): Transition(PollingState.Polling, (Act.CANCEL_WAIT, Act.REQUEST)),
        (PollingState.Waiting, Event.STOP): Transition(PollingState.NotPolling, (Act.CANCEL_WAIT,)),
        (PollingState.Waiting, Event.WAIT_OVER): Transition(PollingState.Polling, (Act.REQUEST,)),
        (PollingState.QuittingPolling, Event.POLL_ONE): Transition(PollingState.NotPolling),
        (PollingState.QuittingPolling, Event.POLL_ONE_SOON): Transition(PollingState.NotPolling),
        (PollingState.QuittingPolling, Event.RETRY_AFTER): Transition(PollingState.NotPolling),
        (PollingState.QuittingPolling, Event.QUIT_POLLING): Transition(PollingState.NotPolling),
    }
)
"""What happens in which state. Where a state has no entry for an event, the event is dropped."""

# --- the machine
# ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PollingSettings:
    """How the machine waits: ``min_retry_after``, then ``back_off_rate`` times as long, to
    ``max_retry_after``.

    ``min_cycle`` is the least time from one request to the next where the decision is :class:`PollOne`, so
    that a server that answers at once is not asked in a spin. Raises :class:`~bide.errors.SettingError` for
    delays that are no durations of at least 1 ms, for bounds in the wrong order and for a rate below 1 or not
    finite.
    """

    min_retry_after: timedelta = timedelta(seconds=10)
    max_retry_after: timedelta = timedelta(seconds=160)
    back_off_rate: float = 2.0
    min_cycle: timedelta = timedelta(milliseconds=100)

    def __post_init__(self) -> None:
        least, most = ordered_bounds(
            "min_retry_after", self.min_retry_after, "max_retry_after", self.max_retry_after
        )
        object.__setattr__(self, "min_retry_after", least)
        object.__setattr__(self, "max_retry_after", most)
        object.__setattr__(self, "min_cycle", parse_duration(self.min_cycle, "min_cycle"))
        check_factor("back_off_rate", self.back_off_rate, more_than_one=False)

    def backoff(self) -> Backoff:
        """The back-off of :class:`RetryAfter` without a delay."""
        return Backoff(self.min_retry_after, self.max_retry_after, self.back_off_rate)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine at rest between two inputs. A new one is not polling.

    ``backed_off`` is the last delay of the back-off; None while there is none.
    """

    state: PollingState = PollingState.NotPolling
    generation: int = 0
    backed_off: timedelta | None = None


def step(machine: Machine, happened: Input, settings: PollingSettings) -> tuple[Machine, tuple[Effect, ...]]:
    """The machine after what ``happened``, and what its runner does now, in order."""
    if isinstance(happened, WaitOver | Result) and happened.generation != machine.generation:
        return machine, ()
    transition = TRANSITIONS.get((machine.state, _event(happened, settings)))
    if transition is None:
        return machine, ()
    after, delay = _paced(machine, happened, settings)
    after = replace(after, state=transition.state)
    effects: list[Effect] = []
    for act in transition.acts:
        match act:
            case Act.CANCEL_WAIT:
                effects.append(CancelWait(machine.generation))
            case Act.REQUEST:
                after = replace(after, generation=machine.generation + 1)
                effects.append(Request(after.generation))
            case Act.WAIT:
                after = replace(after, generation=machine.generation + 1)
                effects.append(Wait(after.generation, delay))
            case _ as unreachable:
                assert_never(unreachable)
    return after, tuple(effects)


def _event(happened: Input, settings: PollingSettings) -> Event:
    match happened:
        case Start():
            return Event.START
        case Stop():
            return Event.STOP
        case WaitOver():
            return Event.WAIT_OVER
        case Result():
            return _result_event(happened, settings)
        case _ as unreachable:
            assert_never(unreachable)


def _result_event(result: Result, settings: PollingSettings) -> Event:
    match result.decision:
        case PollOne():
            return Event.POLL_ONE_SOON if result.elapsed < settings.min_cycle else Event.POLL_ONE
        case RetryAfter():
            return Event.RETRY_AFTER
        case QuitPolling():
            return Event.QUIT_POLLING
        case _ as unreachable:
            assert_never(unreachable)


def _paced(machine: Machine, happened: Input, settings: PollingSettings) -> tuple[Machine, timedelta]:
    """The machine with its back-off moved on, and the delay of the wait that may follow."""
    if not isinstance(happened, Result):
        # A new run begins without back-off; asking for one more now, or the end of a wait, leaves it.
        fresh = machine.state is PollingState.NotPolling
        return replace(machine, backed_off=None if fresh else machine.backed_off), timedelta()
    match happened.decision:
        case PollOne():
            return replace(machine, backed_off=None), settings.min_cycle - happened.elapsed
        case RetryAfter(after=after):
            if after is not None:
                return machine, max(after, settings.min_cycle - happened.elapsed)
            delay = settings.backoff().next(machine.backed_off)
            return replace(machine, backed_off=delay), delay
        case QuitPolling():
            return machine, timedelta()
        case _ as unreachable:
            assert_never(unreachable)
