"""Slots: at most so many calls of a connection at a time, in this process.

One :class:`Slots` for each connection of an app, shared by its threads and event loops. First come, first
served: a slot that is given back goes straight to whoever has waited longest. A slot is held for one attempt
of a call and not while a retry waits. Each slot has an id of its own, so giving it back late or twice harms
nobody.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import OrderedDict
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import NewType

from bide.errors import NoFreeSlot, SettingError

SlotId = NewType("SlotId", int)
"""Names one slot while it is held. Ids are never used again in a process."""

_ids = itertools.count(1)


@dataclass(slots=True)
class NoWait:
    """In :data:`no_wait` it makes full connections refuse at once; ``starved`` then names the first."""

    starved: str | None = None
    over: bool = False
    """Set when that handler has ended: what it left running may wait as anybody does."""


no_wait: ContextVar[NoWait | None] = ContextVar("bide_no_wait", default=None)
"""Set while a delivery's handler runs, which gives its delivery back rather than wait for a slot.

The mark stays readable for whoever set it, also where the handler swallowed :class:`~bide.errors.NoFreeSlot`.
"""


@dataclass(slots=True, eq=False)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    ready: asyncio.Future[None]
    slot: SlotId | None = None
    """Set, under the lock, when a slot is handed to it; the future only wakes it."""


class Slots:
    """The slots of the connection ``name``: ``cap`` of them, a whole number from 1 up, or None for no limit.

    Raises :class:`~bide.errors.SettingError` for any other cap.
    """

    def __init__(self, name: str, cap: int | None = None) -> None:
        self.name = name
        self._cap = _checked(cap)
        # Re-entrant, since the garbage collector may close an abandoned waiter, which gives its slot back, in
        # the middle of any allocation made under the lock. Each step below therefore leaves things in order.
        self._lock = threading.RLock()
        self._held: set[SlotId] = set()
        self._waiters: OrderedDict[int, _Waiter] = OrderedDict()

    @property
    def cap(self) -> int | None:
        """How many may be held at a time; None: any number."""
        return self._cap

    @property
    def in_use(self) -> int:
        """How many are held now; more than the cap for a while after that was lowered."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """How many callers wait for one."""
        return len(self._waiters)

    def try_acquire(self) -> SlotId | None:
        """Take a slot if one is free, which means that nobody waits either; None otherwise."""
        with self._lock:
            return self._take() if self._has_room() else None

    async def acquire(self) -> SlotId:
        """Take a slot, waiting in line for it if none is free.

        Where :data:`no_wait` is set it never waits: it marks that connection as the one that starved the
        caller and raises :class:`~bide.errors.NoFreeSlot`. A caller that is cancelled while it waits leaves
        the line, or passes on the slot that it was just given.
        """
        slot = self.try_acquire()
        if slot is not None:
            return slot
        mark = no_wait.get()
        if mark is not None and not mark.over:
            mark.starved = mark.starved or self.name
            raise NoFreeSlot(self.name)
        return await self._wait_in_line()

    def release(self, slot: SlotId) -> None:
        """Give ``slot`` back. One that is not held (any more) is left alone."""
        with self._lock:
            if slot not in self._held:
                return
            self._held.discard(slot)
            served = self._serve()
        self._wake(served)

    def set_cap(self, cap: int | None) -> None:
        """Change the cap. A lower one takes nothing from holders; a higher one serves the line at once."""
        cap = _checked(cap)
        with self._lock:
            self._cap = cap
            served = self._serve()
        self._wake(served)

    def hold(self) -> Hold:
        """``async with slots.hold():`` holds a slot for the length of the block, whichever way it ends."""
        return Hold(self)

    # --- under the lock ----------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        return self._cap is None or len(self._held) < self._cap

    def _take(self) -> SlotId:
        slot = SlotId(next(_ids))
        self._held.add(slot)
        return slot

    def _serve(self) -> list[_Waiter]:
        """Hand free slots to those who have waited longest. Takes the slot first: see the lock."""
        served: list[_Waiter] = []
        while self._waiters and self._has_room():
            slot = self._take()
            try:
                _, waiter = self._waiters.popitem(last=False)
            except KeyError:
                self._held.discard(slot)
                break
            waiter.slot = slot
            served.append(waiter)
        return served

    # --- waiting -----------------------------------------------------------------------------------------

    async def _wait_in_line(self) -> SlotId:
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, loop.create_future())
        with self._lock:
            if self._has_room():  # given back since it was tried
                return self._take()
            self._waiters[id(waiter)] = waiter
        try:
            await waiter.ready
        except BaseException:  # also GeneratorExit, where the event loop was dropped with its waiters
            self._leave_line(waiter)
            raise
        assert waiter.slot is not None
        return waiter.slot

    def _leave_line(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiters.pop(id(waiter), None)
            slot = waiter.slot
        if slot is not None:
            self.release(slot)

    def _wake(self, served: list[_Waiter]) -> None:
        """Wake those served; what those who are gone were given is served again. Called without the lock."""
        while served:
            gone = [waiter for waiter in served if not _rouse(waiter)]
            with self._lock:
                self._held.difference_update(waiter.slot for waiter in gone if waiter.slot is not None)
                served = self._serve()


class Hold:
    """What :meth:`Slots.hold` answers: an async context manager for one use."""

    __slots__ = ("_slot", "_slots")

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._slot: SlotId

    async def __aenter__(self) -> SlotId:
        self._slot = await self._slots.acquire()
        return self._slot

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slots.release(self._slot)


class SlotTable:
    """The slots of every connection of one app. Two apps, such as a test's, share none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[str, Slots] = {}

    def of(self, connection: str, cap: int | None) -> Slots:
        """The slots of ``connection``, made at the first call; a ``cap`` other than before is set."""
        with self._lock:
            slots = self._slots.get(connection)
            if slots is None:
                slots = self._slots[connection] = Slots(connection, cap)
        if slots.cap != cap:
            slots.set_cap(cap)
        return slots

    def all(self) -> list[Slots]:
        """The slots of every connection so far, for looking at them."""
        with self._lock:
            return list(self._slots.values())


def _checked(cap: object) -> int | None:
    if cap is None or (isinstance(cap, int) and not isinstance(cap, bool) and cap >= 1):
        return cap
    raise SettingError(
        "max_concurrent", f"{cap!r} is not a whole number of at least 1; leave it out for no limit"
    )


def _rouse(waiter: _Waiter) -> bool:
    """Wake ``waiter`` in its own event loop; False where that was closed and nobody will come."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if waiter.loop is running:
        _set_ready(waiter.ready)
        return True
    try:
        waiter.loop.call_soon_threadsafe(_set_ready, waiter.ready)
    except RuntimeError:
        return False
    return True


def _set_ready(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
