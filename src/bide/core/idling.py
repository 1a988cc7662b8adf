"""How often a dispatcher asks in vain: its own rules (:mod:`bide.core.dispatching`), played through."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from bide.core.dispatching import NothingFound, Pace, PartBatch, decide
from bide.core.pacing import PollingStrategy

_MIDDLE = 0.5
"""The draw that stands for all: waits are drawn evenly."""


@dataclass(frozen=True, slots=True)
class Idling:
    """How a dispatcher fetches while there is nothing.

    ``poll_timeout`` is how long a fetch waits in the store; zero where the store cannot wait, or may not.
    """

    strategy: PollingStrategy
    min_poll_interval: timedelta
    poll_timeout: timedelta

    def fetches(self, stretch: timedelta) -> int:
        """Fetches that find nothing in a stretch of time that begins when an item was found.

        Once the pace is steady the rest is worked out at once.
        """
        waits = self.poll_timeout > timedelta()
        pace = Pace.start(self.strategy, self.min_poll_interval)
        pace, at = decide(pace, PartBatch(blocked=waits), elapsed=timedelta(), draw=_MIDDLE)
        count = 0
        while (answered_at := at + self.poll_timeout) <= stretch:
            count += 1
            before = pace
            pace, wait = decide(pace, NothingFound(blocked=waits), elapsed=self.poll_timeout, draw=_MIDDLE)
            at = answered_at + wait
            if pace == before:
                return count + max(0, (stretch - answered_at) // (wait + self.poll_timeout))
        return count
