"""What tests of bide, and of programs that use it, are written with. Nothing in the product imports it."""

from bide.testing.clock import VirtualClock
from bide.testing.instant import InstantPolling, instant
from bide.testing.skew import SkewedClock

__all__ = ["InstantPolling", "SkewedClock", "VirtualClock", "instant"]
