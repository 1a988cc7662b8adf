"""The clock of a machine that does not agree about what time it is."""

from __future__ import annotations

import asyncio

import pytest

from bide.testing import SkewedClock, VirtualClock


@pytest.mark.parametrize("ahead", [3600, -3600, 0.25])
async def test_only_the_wall_clock_differs(ahead: float) -> None:
    clock = VirtualClock(draws=0.25)
    skewed = SkewedClock(clock, ahead)
    assert skewed.utc_ms() - clock.utc_ms() == ahead * 1000
    sleeping = asyncio.create_task(skewed.sleep(5))
    await clock.advance(4)
    assert not sleeping.done()
    await clock.advance(1)
    assert sleeping.done()
    assert skewed.monotonic() == clock.monotonic() == 5
    assert skewed.utc_ms() - clock.utc_ms() == ahead * 1000
    assert skewed.draw() == 0.25
    assert skewed.new_id() != clock.new_id()
