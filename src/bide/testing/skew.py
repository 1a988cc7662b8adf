"""The clock of a machine that does not agree with another one about what time it is."""

from __future__ import annotations

from collections.abc import Callable

from bide.clock import Clock, Timer


class SkewedClock:
    """``clock``, with a wall clock that is ``ahead`` seconds before its own (behind it, where negative)."""

    def __init__(self, clock: Clock, ahead: float) -> None:
        self._clock = clock
        self._ahead_ms = round(ahead * 1000)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def utc_ms(self) -> int:
        return self._clock.utc_ms() + self._ahead_ms

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return self._clock.call_later(seconds, callback)

    def draw(self) -> float:
        return self._clock.draw()

    def new_id(self) -> str:
        return self._clock.new_id()
