"""How soon a dispatcher asks its provider again.

One rule for every loop that fetches: a full batch means ask at once; a partly filled one too where the
provider waits for work; nothing found grows the wait by the strategy; a failed fetch waits by a back-off of
its own. The dispatcher observes, this module decides, the dispatcher waits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import assert_never

from bide.core.pacing import FETCH_BACKOFF, PollingStrategy, about

ZERO = timedelta()


@dataclass(frozen=True, slots=True)
class FullBatch:
    """As many items as were asked for: there may be more."""


@dataclass(frozen=True, slots=True)
class PartBatch:
    """Fewer items than asked for. ``blocked``: the provider waited for them, as long polling does."""

    blocked: bool


@dataclass(frozen=True, slots=True)
class NothingFound:
    """Nothing was eligible; ``next_eligible_in`` where the provider knows. ``blocked``: it waited for something."""

    next_eligible_in: timedelta | None = None
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class TakenByOthers:
    """Something was eligible and others took it first."""


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """The provider could not be asked."""


Observation = FullBatch | PartBatch | NothingFound | TakenByOthers | FetchFailed


@dataclass(frozen=True, slots=True)
class Pace:
    """Where a dispatcher stands between two fetches.

    ``interval`` is the strategy's present interval before jitter; ``backoff`` the present error back-off,
    None while fetches succeed. ``min_poll_interval`` bounds a cycle that found nothing, whatever the
    provider does. ``long_polls``: the last time that it mattered, the provider waited for work.
    """

    strategy: PollingStrategy
    min_poll_interval: timedelta
    interval: timedelta
    backoff: timedelta | None = None
    long_polls: bool = False

    @classmethod
    def start(cls, strategy: PollingStrategy, min_poll_interval: timedelta) -> Pace:
        """The pace of a dispatcher that has not fetched yet."""
        return cls(strategy, min_poll_interval, strategy.initial_interval())


def decide(pace: Pace, seen: Observation, *, elapsed: timedelta, draw: float) -> tuple[Pace, timedelta]:
    """The next pace, and how long to wait before the next fetch.

    ``elapsed`` is the time since the fetch began; ``draw`` a number in [0, 1) for jitter.
    """
    match seen:
        case FullBatch():
            return _found(pace, pace.long_polls), ZERO
        case PartBatch(blocked=blocked):
            found = _found(pace, blocked or pace.long_polls)
            return found, ZERO if found.long_polls else _left(found.interval, elapsed)
        case NothingFound(next_eligible_in=eligible, blocked=blocked):
            if (
                blocked
            ):  # the provider has waited already; or it was woken, maybe for another loop of this process
                return replace(pace, backoff=None, long_polls=True), _left(pace.min_poll_interval, elapsed)
            grown = replace(_grown(pace), long_polls=False)
            return grown, _wait(grown, eligible, elapsed, draw)
        case TakenByOthers():
            grown = _grown(pace)
            return grown, _wait(grown, None, elapsed, draw)
        case FetchFailed():
            backoff = FETCH_BACKOFF.next(pace.backoff)
            return replace(pace, backoff=backoff), about(backoff, draw)
        case _ as unreachable:
            assert_never(unreachable)


def _found(pace: Pace, long_polls: bool) -> Pace:
    interval = pace.strategy.next_interval(pace.interval, True)
    return replace(pace, interval=interval, backoff=None, long_polls=long_polls)


def _grown(pace: Pace) -> Pace:
    return replace(pace, interval=pace.strategy.next_interval(pace.interval, False), backoff=None)


def _wait(pace: Pace, eligible: timedelta | None, elapsed: timedelta, draw: float) -> timedelta:
    """What is left of the interval, or until something will be ``eligible``; never less than the least."""
    wait = max(pace.min_poll_interval, pace.strategy.jittered(pace.interval, draw))
    if eligible is not None:
        wait = min(wait, max(elapsed + eligible, pace.min_poll_interval))
    return _left(wait, elapsed)


def _left(wait: timedelta, elapsed: timedelta) -> timedelta:
    return max(wait - elapsed, ZERO)
