"""The store of one process: for tests, for trying out, and as the model that every other one is held to."""

from __future__ import annotations

from bide.clock import Clock
from bide.providers.memory.events import MemoryEvents
from bide.providers.memory.inspection import MemoryInspection
from bide.providers.memory.polls import MemoryPolls
from bide.providers.memory.store import Store
from bide.providers.memory.work import MemoryWork


class MemoryProvider(MemoryWork, MemoryPolls, MemoryEvents, MemoryInspection):
    """Keeps everything in memory, for one event loop. It is written to be read: each call looks at everything."""

    def __init__(self, clock: Clock) -> None:
        self._store = Store(clock)

    async def open(self) -> None:
        """Nothing to do; what was kept by this object before is still there."""

    async def close(self) -> None:
        """Nothing to do."""
