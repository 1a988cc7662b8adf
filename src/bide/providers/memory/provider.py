"""The store of one process: for tests, for trying out, and as the model that every other one is held to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bide.clock import Clock
from bide.provider import PollRow
from bide.providers.choosing import Turns
from bide.providers.memory.events import MemoryEvents
from bide.providers.memory.inspection import MemoryInspection
from bide.providers.memory.joining import MemoryJoining
from bide.providers.memory.polls import MemoryPolls
from bide.providers.memory.store import Store
from bide.providers.memory.work import MemoryWork


class MemoryProvider(MemoryWork, MemoryJoining, MemoryPolls, MemoryEvents, MemoryInspection):
    """Keeps everything in memory, for any number of event loops of one process.

    It is written to be read: each call looks at everything.
    """

    def __init__(self, clock: Clock, *, beside: MemoryProvider | None = None) -> None:
        """``clock`` is what it waits by, and the store's unless it looks into the same store as ``beside``."""
        self._store = Store(clock) if beside is None else beside._store
        self._clock = clock
        self._turns = Turns()

    async def open(self) -> None:
        """Nothing to do; what was kept by this object before is still there."""

    async def close(self) -> None:
        """Nothing to do."""

    def requests(self) -> Mapping[str, int]:
        """None: nothing is asked of anybody."""
        return {}

    def place(self, rows: Iterable[PollRow]) -> None:
        """Keep ``rows`` of polls as they are: for tests that begin in the middle."""
        self._store.polls.update((row.name, row) for row in rows)

    def damage(self, item_id: str) -> None:
        """Make the payload of an item unreadable, as a fault of a disk would: for tests."""
        self._store.items[item_id].unreadable = "its payload was damaged"
