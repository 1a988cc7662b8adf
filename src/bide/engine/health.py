"""Whether a loop reaches its provider, told on the edges: down once, up once, a summary now and then."""

from __future__ import annotations

from bide.clock import Clock
from bide.telemetry import ProviderDown, ProviderUp, Telemetry

SUMMARY_S = 3600.0
"""Seconds between summaries while the provider stays down."""


class ProviderHealth:
    """One loop's view of its provider.

    ``doing`` names what was asked for. It is down while anything fails, so that fetches which succeed between
    settlements which fail make no edges.
    """

    def __init__(self, loop: str, clock: Clock, telemetry: Telemetry) -> None:
        self._loop = loop
        self._clock = clock
        self._telemetry = telemetry
        self._failing: set[str] = set()
        self._failures = 0
        self._since = 0.0
        self._told = 0.0

    @property
    def down(self) -> bool:
        """Whether something failed that has not been answered since."""
        return bool(self._failing)

    def failed(self, error: Exception, doing: str = "asking") -> None:
        """Asking the provider failed."""
        now = self._clock.monotonic()
        self._failing.add(doing)
        self._failures += 1
        if self._failures == 1:
            self._since = now
        if self._failures == 1 or now - self._told >= SUMMARY_S:
            self._told = now
            self._telemetry.emit(ProviderDown(self._loop, str(error), self._failures))

    def answered(self, doing: str = "asking") -> None:
        """The provider answered."""
        if not self._failing:
            return
        self._failing.discard(doing)
        if self._failing:
            return
        down_ms = (self._clock.monotonic() - self._since) * 1000
        self._telemetry.emit(ProviderUp(self._loop, self._failures, down_ms))
        self._failures = 0
