"""How a wait for a condition goes: when to ask again, and when no other attempt may follow.

Deciding only: whoever drives a wait tells it what was seen and the time, in seconds of a clock that never steps,
and does what it answers. The asynchronous and the synchronous loop, and both iterators, are driven by this one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from bide.core.durations import parse_duration
from bide.core.pacing import PollingStrategy
from bide.core.waited import PollResult, Tally
from bide.errors import SettingError

_LEAST_BUDGET = 0.01
_MOST_BUDGET_S = 0.05
"""Without ``attempt_timeout`` the last attempt is left this share of the timeout, at most so many seconds."""

_ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True)
class WaitSettings:
    """The settings of a wait, in seconds; a limit that is not there is infinite."""

    strategy: PollingStrategy
    timeout: float
    attempt_timeout: float
    budget: float
    """What the last attempt must be left of the time."""
    times_in_row: int
    stable_for: float
    hint_clamp: float


def wait_settings(
    *,
    timeout: object,
    strategy: object,
    attempt_timeout: object,
    times_in_row: object = 1,
    stable_for: object = None,
    hint_clamp: object,
) -> WaitSettings:
    """Settings as callers write them, read. Equal ones are one object, since there may be very many waits.

    Raises :class:`~bide.errors.SettingError`, naming the setting that is wrong.
    """
    given = {
        "timeout": timeout,
        "strategy": strategy,
        "attempt_timeout": attempt_timeout,
        "times_in_row": times_in_row,
        "stable_for": stable_for,
        "hint_clamp": hint_clamp,
    }
    try:
        return _kept(**given)
    except TypeError:  # something that cannot be hashed, and so is no setting
        return _read(**given)


def _read(
    *,
    timeout: object,
    strategy: object,
    attempt_timeout: object,
    times_in_row: object,
    stable_for: object,
    hint_clamp: object,
) -> WaitSettings:
    if not isinstance(strategy, PollingStrategy):
        raise SettingError(
            "strategy", f'{strategy!r} is no polling strategy; write for example PollingStrategy.fixed("1s")'
        )
    if isinstance(times_in_row, bool) or not isinstance(times_in_row, int) or times_in_row < 1:
        raise SettingError("times_in_row", f"{times_in_row!r} is not a whole number of at least 1")
    whole = _seconds(timeout, "timeout", zero=True)
    each = _seconds(attempt_timeout, "attempt_timeout")
    return WaitSettings(
        strategy,
        timeout=whole,
        attempt_timeout=each,
        budget=each if each < math.inf else min(whole * _LEAST_BUDGET, _MOST_BUDGET_S),
        times_in_row=times_in_row,
        stable_for=0.0 if stable_for is None else _seconds(stable_for, "stable_for", zero=True),
        hint_clamp=parse_duration(hint_clamp, "hint_clamp", zero=True).total_seconds(),
    )


_kept = lru_cache(maxsize=256, typed=True)(_read)


def _seconds(value: object, setting: str, *, zero: bool = False) -> float:
    return math.inf if value is None else parse_duration(value, setting, zero=zero).total_seconds()


@lru_cache(maxsize=1024)
def _bounds(strategy: PollingStrategy, interval: timedelta) -> tuple[float, float]:
    """The least wait of ``interval`` and how much may be added to it, in seconds."""
    least = strategy.jittered(interval, 0.0).total_seconds()
    return least, strategy.jittered(interval, 1.0).total_seconds() - least


class Wait:
    """One wait under way. It holds state and no clock.

    ``last`` is the last value seen, ``reason`` what a verdict said of it, ``error`` what the last attempt raised.
    """

    __slots__ = (
        "_began",
        "_bounds",
        "_grows",
        "_held_since",
        "_in_row",
        "_interval",
        "_is_cut",
        "attempts",
        "calling",
        "deadline",
        "error",
        "last",
        "limit",
        "reason",
        "settings",
    )

    def __init__(self, settings: WaitSettings, now: float) -> None:
        self.settings = settings
        self.limit = "timeout"
        self.attempts = 0
        self.calling = 0.0
        self.last: Any = None
        self.error: Exception | None = None
        self.reason = ""
        self.start(now)
        self._interval = settings.strategy.initial_interval()
        self._bounds = (0.0, -1.0)  # of no interval yet
        self._grows = True
        self._is_cut = False
        self._in_row = 0
        self._held_since = 0.0

    def start(self, now: float) -> None:
        """Time counts from now on; for a wait that is made before it is begun."""
        self._began = now
        self.deadline = now + self.settings.timeout

    # --- an attempt ------------------------------------------------------------------------------------------

    def begin(self, now: float) -> float:
        """An attempt begins; the instant at which it must have ended."""
        self.attempts += 1
        return min(self.deadline, now + self.settings.attempt_timeout)

    def ended(self, began: float, now: float) -> None:
        """The attempt that ``began`` then has ended now."""
        self.calling += now - began

    def holds(self, began: float, now: float) -> bool:
        """The condition held for the attempt from ``began`` to now; whether it has often and long enough."""
        settings = self.settings
        self._in_row += 1
        if self._in_row == 1:
            self._held_since = now
            self._interval = settings.strategy.next_interval(self._interval, True)
            self._bounds = _bounds(settings.strategy, self._interval)
            self._grows = False  # the first look again comes after the least interval
        long_enough = not settings.stable_for or began - self._held_since >= settings.stable_for - _ROUNDING_S
        return long_enough and self._in_row >= settings.times_in_row

    def breaks(self) -> None:
        """The condition did not hold, or nothing could be asked."""
        self._in_row = 0

    # --- what follows ----------------------------------------------------------------------------------------

    def next_delay(
        self, began: float, now: float, draw: float, hint: timedelta | None = None
    ) -> float | None:
        """Seconds to wait before the next attempt, after the one that ``began`` then has ended now.

        None where none may follow, and :attr:`limit` says why.
        """
        settings = self.settings
        strategy = settings.strategy
        if not self._grows:
            self._grows = True
        elif self._interval < strategy.max_interval or self._bounds[1] < 0:
            self._interval = strategy.next_interval(self._interval, False)
            self._bounds = _bounds(strategy, self._interval)
        least, spread = self._bounds
        delay = least + spread * draw
        if self._in_row and settings.stable_for:
            delay = min(delay, max(self._held_since + settings.stable_for - now, 0.0) or delay)
        floor = 0.0 if hint is None else min(hint.total_seconds(), settings.hint_clamp)
        last_start = self.deadline - settings.budget
        if now + floor > last_start:
            self.limit = "hint" if now < last_start - _ROUNDING_S else "timeout"
            return None
        delay = max(delay, floor)
        if now + delay <= last_start:
            return delay
        return self._clipped(began, now, last_start, floor)

    def _clipped(self, began: float, now: float, last_start: float, floor: float) -> float | None:
        """The wait before the last attempt, which would begin too late otherwise."""
        if now >= last_start - _ROUNDING_S:
            return None
        left = last_start - now
        if self.settings.attempt_timeout == math.inf:
            # One that takes as long as the last should fit in; if that one took most of the time, give it half.
            left = max(left - (now - began), left / 2)
        delay = max(left, floor)
        # What was to be the last attempt may end a little early: cut again and again, the rest would be a burst.
        if self._is_cut and delay < self.settings.strategy.min_interval.total_seconds():
            return None
        self._is_cut = True
        return delay

    def is_late(self, now: float) -> bool:
        """Whether no attempt may begin any more: the deadline is over."""
        return now > self.deadline

    # --- what it took ----------------------------------------------------------------------------------------

    def tally(self, now: float) -> Tally:
        """The wait in numbers."""
        settings = self.settings
        return Tally(
            None if settings.timeout == math.inf else settings.timeout,
            None if settings.attempt_timeout == math.inf else settings.attempt_timeout,
            self.attempts,
            now - self._began,
            self.calling,
        )

    def result(self, value: Any, now: float) -> PollResult[Any]:
        """The result of a wait that ends with ``value``."""
        elapsed = timedelta(seconds=now - self._began)
        calling = timedelta(seconds=self.calling)
        return PollResult(value, self.attempts, elapsed, calling, max(elapsed - calling, timedelta()))
