"""What a server's clock says, learnt from instants that it stamped: pure, and never from the machine's own clock.

A server stamps an object with the instant of its writing, often in whole seconds only. Somewhere between asking for
the write and hearing of its end, both on the machine's monotonic clock, the server's clock was within the stamp.
So each stamp bounds how far the server's clock is ahead of the monotonic one; several together bound it closer than
the stamp's own second. Clocks drift, so bounds widen with age.
"""

from __future__ import annotations

from dataclasses import dataclass

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

    @classmethod
    def of(cls, stamp: Stamp, asked_at: int, heard_at: int) -> ServerTime:
        """What one stamp says of a write between two monotonic instants (ms)."""
        return cls(stamp.earliest - heard_at, stamp.before - asked_at, heard_at)

    def widened(self, at: int) -> ServerTime:
        """The bounds as they are at a later monotonic instant."""
        drift = max(at - self.learnt_at, 0) * DRIFT_PPM // 1_000_000
        return ServerTime(self.low - drift, self.high + drift, max(at, self.learnt_at))

    def joined(self, newer: ServerTime) -> ServerTime:
        """Both at once. Where they cannot both be true, the server's clock was set, and the newer counts."""
        known = self.widened(newer.learnt_at)
        low, high = max(known.low, newer.low), min(known.high, newer.high)
        return ServerTime(low, high, newer.learnt_at) if low < high else newer

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
