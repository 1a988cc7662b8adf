"""The memory provider on its bench."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bide.provider import Provider
from bide.providers.memory import MemoryProvider
from bide.testing.clock import VirtualClock
from bide.testing.conformance import Bench
from bide.testing.skew import SkewedClock


class MemoryBench(Bench):
    """A store of its own, whose clock is virtual."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.provider = self.memory = MemoryProvider(self.clock)

    async def open(self) -> None:
        await self.provider.open()

    async def close(self) -> None:
        await self.provider.close()

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        self.clock.step_wall(-seconds)

    async def corrupt(self, item_id: str) -> None:
        self.memory.damage(item_id)

    async def reopen(self) -> None:
        await self.provider.close()
        await self.provider.open()

    @asynccontextmanager
    async def another(self, *, ahead: float = 0) -> AsyncIterator[Provider]:
        yield MemoryProvider(SkewedClock(self.clock, ahead), beside=self.memory)

    def now_ms(self) -> int:
        return self.clock.utc_ms()
