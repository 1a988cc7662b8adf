"""How long to wait before asking again: polling strategies, back-off after failures, and the pace of a start.

Everything here is arithmetic on durations. Chance comes in as ``draw``, a number in [0, 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from bide.core.durations import Duration, format_duration, parse_duration, parse_ms
from bide.core.names import did_you_mean
from bide.errors import SettingError

StrategyKind = Literal["fixed", "adaptive"]
STRATEGY_KINDS: tuple[StrategyKind, ...] = ("fixed", "adaptive")
"""The words that choose a polling strategy."""

DEFAULT_MIN_INTERVAL = timedelta(milliseconds=100)
DEFAULT_MAX_INTERVAL = timedelta(seconds=5)
DEFAULT_BACKOFF_MULTIPLIER = 2.0

_JITTER = 0.1
"""A wait is drawn from this share either side of the interval."""


@dataclass(frozen=True, slots=True)
class PollingStrategy:
    """The rule for the next interval. Made with :meth:`fixed` or :meth:`adaptive`.

    The loop takes the next interval first and waits it then, so the first idle wait of the adaptive strategy
    is ``min_interval × backoff_multiplier``. For the fixed one both intervals are the same.
    """

    kind: StrategyKind
    min_interval: timedelta
    max_interval: timedelta
    backoff_multiplier: float = DEFAULT_BACKOFF_MULTIPLIER

    def __post_init__(self) -> None:
        strategy_kind(self.kind, "kind")
        least, most = ordered_bounds("min_interval", self.min_interval, "max_interval", self.max_interval)
        object.__setattr__(self, "min_interval", least)
        object.__setattr__(self, "max_interval", most)
        check_factor("backoff_multiplier", self.backoff_multiplier, more_than_one=True)

    @classmethod
    def fixed(cls, interval: Duration | None = None, *, interval_ms: int | None = None) -> PollingStrategy:
        """The same interval always. Exactly one of the two spellings is given.

        Raises :class:`~bide.errors.SettingError` for anything that is not a duration of at least 1 ms.
        """
        each = _one_spelling("interval", interval, interval_ms)
        if each is None:
            raise SettingError("interval", 'the fixed strategy needs one; write for example interval="1s"')
        return cls("fixed", each, each)

    @classmethod
    def adaptive(
        cls,
        min_interval: Duration | None = None,
        max_interval: Duration | None = None,
        backoff_multiplier: float = DEFAULT_BACKOFF_MULTIPLIER,
        *,
        min_interval_ms: int | None = None,
        max_interval_ms: int | None = None,
    ) -> PollingStrategy:
        """Short while there is something, longer and longer while there is nothing.

        Defaults: ``min_interval`` 100 ms, ``max_interval`` 5 s, ``backoff_multiplier`` 2. Each interval may
        be given in milliseconds instead. Raises :class:`~bide.errors.SettingError` for an interval given
        twice, one that is no duration of at least 1 ms, a greatest one below the least, and a multiplier not
        finite and above 1.
        """
        least = _one_spelling("min_interval", min_interval, min_interval_ms)
        most = _one_spelling("max_interval", max_interval, max_interval_ms)
        return cls(
            "adaptive",
            DEFAULT_MIN_INTERVAL if least is None else least,
            DEFAULT_MAX_INTERVAL if most is None else most,
            backoff_multiplier,
        )

    def initial_interval(self) -> timedelta:
        """The interval to start from."""
        return self.min_interval

    def next_interval(self, current: timedelta, found: bool) -> timedelta:
        """The interval after ``current``: the least where something was ``found``, else a longer one."""
        if found:
            return self.min_interval
        return grown(current, self.backoff_multiplier, self.min_interval, self.max_interval)

    def jittered(self, interval: timedelta, draw: float) -> timedelta:
        """The wait for ``interval``: up to a tenth less or more, so that a fleet is not in step.

        The adaptive strategy never exceeds its ``max_interval``. The answer is for waiting only: the next
        interval grows from ``interval`` itself.
        """
        least, most = interval * (1 - _JITTER), interval * (1 + _JITTER)
        if self.kind == "adaptive":
            most = min(most, self.max_interval)
            least = min(least, most)
        return least + (most - least) * draw


def strategy_kind(word: object, setting: str) -> StrategyKind:
    """``word`` as a kind of strategy. Raises :class:`~bide.errors.SettingError` with the nearest word."""
    for kind in STRATEGY_KINDS:
        if word == kind:
            return kind
    choice = did_you_mean(word, STRATEGY_KINDS) if isinstance(word, str) else None
    raise SettingError(setting, f"{word!r} is not a polling strategy; {choice or 'write fixed or adaptive'}")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing delays after failures in a row: ``initial``, then ``factor`` times the last, up to ``maximum``.

    Raises :class:`~bide.errors.SettingError` for bounds below 1 ms or in the wrong order, and for a factor
    that is not finite or below 1.
    """

    initial: timedelta
    maximum: timedelta
    factor: float = 2.0

    def __post_init__(self) -> None:
        least, most = ordered_bounds("initial", self.initial, "maximum", self.maximum)
        object.__setattr__(self, "initial", least)
        object.__setattr__(self, "maximum", most)
        check_factor("factor", self.factor, more_than_one=False)

    def next(self, current: timedelta | None) -> timedelta:
        """The delay after ``current``, or the first where that is None. No jitter: feed it back as it is."""
        if current is None:
            return self.initial
        return grown(current, self.factor, self.initial, self.maximum)

    def delay(self, attempt: int, draw: float) -> timedelta:
        """The delay after the failed ``attempt``, counted from 1, with full jitter."""
        return full_jitter(self.undrawn_delay(attempt), draw)

    def undrawn_delay(self, attempt: int) -> timedelta:
        """The delay after the failed ``attempt``, counted from 1, without jitter; worked out in one step."""
        grown_times = attempt - 1
        if grown_times <= 0 or self.factor == 1:
            return self.initial
        # Compared before the power is taken, so that no number of attempts overflows it.
        if grown_times >= math.log(self.maximum / self.initial) / math.log(self.factor):
            return self.maximum
        return min(self.initial * self.factor**grown_times, self.maximum)


def ordered_bounds(
    least_name: str, least: object, most_name: str, most: object
) -> tuple[timedelta, timedelta]:
    """Both as durations. Raises :class:`~bide.errors.SettingError` where one is none, or the most is less."""
    lower, upper = parse_duration(least, least_name), parse_duration(most, most_name)
    if upper < lower:
        raise SettingError(
            most_name,
            f"{format_duration(upper)} is shorter than {least_name}, {format_duration(lower)}; "
            "make it at least as long",
        )
    return lower, upper


def check_factor(setting: str, value: object, *, more_than_one: bool) -> None:
    """Raise :class:`~bide.errors.SettingError` unless ``value`` is a finite number, at least 1 or more."""
    right = "a finite number above 1" if more_than_one else "a finite number of at least 1"
    if isinstance(value, int | float) and not isinstance(value, bool):
        enough = value > 1 if more_than_one else value >= 1
        if enough and value < math.inf:  # NaN fails both
            return
    raise SettingError(setting, f"{value!r} is not {right}; write for example 2")


DELIVERY_BACKOFF = Backoff(timedelta(seconds=1), timedelta(hours=1))
"""Between attempts of a delivery or work item; drawn with full jitter."""

FETCH_BACKOFF = Backoff(timedelta(milliseconds=100), timedelta(seconds=30))
"""Between fetches that fail."""


def grown(current: timedelta, factor: float, least: timedelta, most: timedelta) -> timedelta:
    """``current`` times ``factor`` within [``least``, ``most``]; compared first, so that none overflows."""
    if current >= most / factor:
        return most
    return max(current * factor, least)


def about(delay: timedelta, draw: float) -> timedelta:
    """A delay drawn evenly from ``delay`` ± 10 %: those who keep the same rhythm fall out of step."""
    return delay * (0.9 + 0.2 * draw)


def full_jitter(delay: timedelta, draw: float) -> timedelta:
    """A delay drawn evenly from [0, ``delay``): those who failed together come back apart."""
    return delay * draw


_EARLY_S = 1e-6
"""A call may start so many seconds early, so that asking at ``next_at`` is granted in spite of rounding."""


class StartPace:
    """A token bucket that spreads the starts of calls when very many are due at once.

    After a start or an outage thousands of polls of one connection may be due in the same moment. ``burst``
    of them may start at once and after that ``rate_per_s`` a second, meant to be nearly twice the even rate of
    the connection's polls: what waits is caught up with within one interval, and the other side never sees more
    than twice what it sees every day.

    It holds state and no clock: ``now_s`` is any clock that never steps, in seconds. For one event loop or
    thread. Raises :class:`~bide.errors.SettingError` for a rate that is not finite and above 0, and a burst
    below 1.
    """

    __slots__ = ("_since_s", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: int = 10) -> None:
        if not (math.isfinite(rate_per_s) and rate_per_s > 0):
            raise SettingError("rate_per_s", f"{rate_per_s!r} is not a finite rate above 0")
        if burst < 1:
            raise SettingError("burst", f"{burst!r} is not a whole number of at least 1")
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._since_s = -math.inf
        """The bucket holds what has flowed in since this instant, and at most ``burst``."""

    def take(self, now_s: float, wanted: int) -> int:
        """How many of ``wanted`` calls may start now; they are taken out of the bucket."""
        self._since_s = max(self._since_s, now_s - self.burst / self.rate_per_s)
        held = math.floor((now_s - self._since_s + _EARLY_S) * self.rate_per_s + 1e-9)
        granted = max(0, min(held, wanted, self.burst))
        self._since_s += granted / self.rate_per_s
        return granted

    def give_back(self, count: int) -> None:
        """Put back ``count`` of those granted, for calls that were not made after all."""
        self._since_s -= count / self.rate_per_s

    @property
    def next_at(self) -> float:
        """When the next call may start, on the clock of :meth:`take`; the past where one may start now."""
        return self._since_s + 1 / self.rate_per_s


def _one_spelling(setting: str, value: Duration | None, value_ms: int | None) -> timedelta | None:
    """The setting from whichever spelling was used; None where neither was."""
    if value is not None and value_ms is not None:
        raise SettingError(setting, f"given twice, as {setting} and as {setting}_ms; leave one out")
    if value is not None:
        return parse_duration(value, setting)
    return parse_ms(value_ms, f"{setting}_ms") if value_ms is not None else None
