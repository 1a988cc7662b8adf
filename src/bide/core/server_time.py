"""What a server's clock says, learnt from instants that it stamped: pure, and never from the machine's own clock.

A server stamps an object with the instant of its writing, often in whole seconds only. Somewhere between asking for
the write and hearing of its end, both on the machine's monotonic clock, the server's clock was within the stamp.
So each stamp bounds how far the server's clock is ahead of the monotonic one; several together bound it closer than
the stamp's own second. Clocks drift, so bounds widen with age.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

DRIFT_PPM = 200
"""Millionths by which the two clocks may run apart: twice what a poor quartz does."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """An instant of the server's in milliseconds since the epoch: from ``earliest`` to just before ``before``."""

    earliest: int
    before: int


@dataclass(frozen=True, slots=True)
class ServerTime:
    """How far the server's clock is ahead of the monotonic one, in ms: at least ``low``, and less than ``high``.

    ``learnt_at`` is the monotonic instant, in ms, that the bounds are of.
    """

    low: int
    high: int
    learnt_at: int
    drift_ppm: int = DRIFT_PPM

    @classmethod
    def of(cls, stamp: Stamp, asked_at: int, heard_at: int, *, drift_ppm: int = DRIFT_PPM) -> ServerTime:
        """What one stamp says of a write between two monotonic instants (ms)."""
        return cls(stamp.earliest - heard_at, stamp.before - asked_at, heard_at, drift_ppm)

    def widened(self, at: int) -> ServerTime:
        """The bounds as they are at a later monotonic instant."""
        drift = max(at - self.learnt_at, 0) * self.drift_ppm // 1_000_000
        return replace(self, low=self.low - drift, high=self.high + drift, learnt_at=max(at, self.learnt_at))

    def joined(self, newer: ServerTime) -> ServerTime:
        """Both at once. Where they cannot both be true, the server's clock was set, and the newer counts."""
        known = self.widened(newer.learnt_at)
        low, high = max(known.low, newer.low), min(known.high, newer.high)
        return replace(newer, low=low, high=high) if low < high else newer

    def contradicts(self, newer: ServerTime) -> bool:
        """Whether the server's clock was set between the two."""
        known = self.widened(newer.learnt_at)
        return max(known.low, newer.low) >= min(known.high, newer.high)

    def now(self, at: int) -> int:
        """The likeliest instant of the server's at the monotonic instant ``at``."""
        return at + (self.low + self.high - 1) // 2

    def error_ms(self, at: int) -> int:
        """By how much :meth:`now` may be off, either way."""
        known = self.widened(at)
        return (known.high - known.low) // 2
