"""What a wait tells: each attempt as it ends, the result, and the text of a timeout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

from bide.core.durations import format_duration

T_co = TypeVar("T_co", covariant=True)

AttemptOutcome = Literal["held", "not_yet", "failed", "raised", "timed_out", "ended"]
"""How an attempt ended.

``held``: the condition held, perhaps not yet often or long enough. ``failed``: it never will. ``raised``: the probe
raised. ``timed_out``: it took longer than its own or the whole limit. ``ended``: the block of a loop ended; whether
the loop was left with it, or goes on, is not known yet.
"""


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """One attempt, as hooks are told of it. ``next_in`` is None where no other follows."""

    probe: str
    number: int
    outcome: AttemptOutcome
    took: timedelta
    value: Any = None
    error: BaseException | None = None
    next_in: timedelta | None = None


AttemptHook = Callable[[AttemptEnded], object]


@dataclass(frozen=True, slots=True)
class PollResult(Generic[T_co]):
    """What was waited for, and what it took: ``elapsed`` is the time spent ``calling`` and ``waiting``."""

    value: T_co
    attempts: int
    elapsed: timedelta
    calling: timedelta
    waiting: timedelta


@dataclass(frozen=True, slots=True)
class Tally:
    """A wait in numbers. Seconds; ``timeout`` and ``attempt_timeout`` None where there is no such limit."""

    timeout: float | None
    attempt_timeout: float | None
    attempts: int
    elapsed: float
    calling: float


_LONGEST_VALUE = 200


def explain(
    probe: str,
    limit: str,
    tally: Tally,
    *,
    last: Any,
    error: Exception | None,
    reason: str,
    still_running: bool,
) -> str:
    """The text of a timeout: which limit, how many attempts, where the time went, and what was seen last."""
    parts = [f"{probe} {_LIMITS[limit].format(within=_within(limit, tally))}", _counted(tally)]
    if error is not None:
        parts.append(
            f"the last attempt raised {_clipped(f'{type(error).__name__}: {error}'.removesuffix(': '))}"
        )
    if last is not None:
        parts.append(f"the last value was {_clipped(_shown(last))}")
    if reason:
        parts.append(_clipped(reason))
    if last is None and error is None and not reason:
        parts.append("nothing was answered")
    if still_running:
        parts.append("its call is still running in a thread, which nothing can stop")
    return "; ".join(parts)


_LIMITS = {
    "timeout": "did not hold{within}",
    "attempt_timeout": "took longer than one attempt may{within}, and TimeoutError is not retried",
    "hint": "did not hold{within}: it was asked to wait past the deadline",
}


def _within(limit: str, tally: Tally) -> str:
    if limit == "attempt_timeout":
        return "" if tally.attempt_timeout is None else f" ({duration_text(tally.attempt_timeout)})"
    return "" if tally.timeout is None else f" within {duration_text(tally.timeout)}"


def _counted(tally: Tally) -> str:
    attempts = "1 attempt" if tally.attempts == 1 else f"{tally.attempts} attempts"
    waiting = max(tally.elapsed - tally.calling, 0.0)
    return (
        f"{attempts} in {duration_text(tally.elapsed)}"
        f" ({duration_text(tally.calling)} calling, {duration_text(waiting)} waiting)"
    )


def duration_text(seconds: float) -> str:
    """``seconds`` as people read them: 250ms, 4.2s, 9m45s."""
    if seconds < 1:
        return format_duration(timedelta(milliseconds=round(seconds * 1000)))
    if seconds < 60:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + "s"
    return format_duration(timedelta(seconds=round(seconds)))


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
