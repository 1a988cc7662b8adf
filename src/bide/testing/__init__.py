"""What tests of bide, and of programs that use it, are written with. Nothing in the product imports it."""

from bide.testing.clock import VirtualClock

__all__ = ["VirtualClock"]
