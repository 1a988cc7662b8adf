"""Places for calls: how many are under way, of which connection, and letting them end at a stop.

A call takes its place until its answer is there. Claims run ahead of the calls by as many as there are places, so
that a place which becomes free finds the next call claimed already and nobody waits for a transaction; answers
that wait to be recorded are bounded in the same way.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Generic, TypeVar

from bide.clock import Clock

T = TypeVar("T")

Make = Callable[[Callable[[], None]], Coroutine[Any, Any, T]]
"""Makes a call, and calls its argument as soon as the answer is there."""


class Places(Generic[T]):
    """Up to ``most`` calls at a time. ``freed`` is set whenever a place became free or a call was recorded."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._gate = asyncio.Semaphore(most)
        self._unanswered: set[str] = set()
        self._running: dict[str, asyncio.Task[T]] = {}
        self._hurry = asyncio.Event()
        self.by_connection: Counter[str] = Counter()
        """Calls whose answer is not there yet, by connection."""
        self.freed = asyncio.Event()

    def __contains__(self, name: object) -> bool:
        """Whether the call of that name is under way, or being recorded."""
        return name in self._running

    def __bool__(self) -> bool:
        return bool(self._running)

    @property
    def room(self) -> int:
        """How many more may be claimed now."""
        return min(2 * self._most - len(self._unanswered), 3 * self._most - len(self._running))

    def room_for(self, waiting: int) -> int:
        """:attr:`room`, or 0 where it is better to wait for more of it.

        While more wait than there is room for, they are claimed half of all places at a time: a claim costs
        a transaction however many polls it takes.
        """
        room = self.room
        return 0 if waiting > room and self._running and room < max(1, self._most // 2) else room

    def start(self, name: str, connection: str, make: Make[T], ended: Callable[[T], None]) -> asyncio.Task[T]:
        """Start the call ``name`` in the next free place; ``ended`` is told what came of it, if it ended."""
        self._unanswered.add(name)
        self.by_connection[connection] += 1
        placed = False

        def answered() -> None:
            nonlocal placed
            if placed:
                placed = False
                self._gate.release()
            if name in self._unanswered:
                self._unanswered.remove(name)
                self.by_connection[connection] -= 1
                self.freed.set()

        async def in_place() -> T:
            nonlocal placed
            await self._gate.acquire()
            placed = True
            return await make(answered)

        def done(call: asyncio.Task[T]) -> None:
            answered()
            del self._running[name]
            if not call.cancelled():
                ended(call.result())
            self.freed.set()

        call = asyncio.get_running_loop().create_task(in_place())
        self._running[name] = call
        call.add_done_callback(done)
        return call

    async def wait_for_one(self) -> None:
        """Wait until a place becomes free or a call was recorded, if any is under way."""
        self.freed.clear()
        if self._running:
            await self.freed.wait()

    async def wait_for_all(self) -> None:
        """Wait until every call was recorded."""
        while self._running:
            await self.wait_for_one()

    def stop_now(self) -> None:
        """Cut the grace period of :meth:`finish` short."""
        self._hurry.set()

    async def finish(self, grace: timedelta) -> None:
        """Let calls end within ``grace``, then cancel them. A claim that is cut off comes round by itself."""
        limits = [
            asyncio.ensure_future(self.wait_for_all()),
            asyncio.ensure_future(self._clock.sleep(grace.total_seconds())),
            asyncio.ensure_future(self._hurry.wait()),
        ]
        try:
            if self._running:
                await asyncio.wait(limits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for limit in limits:
                limit.cancel()
            await self.cancel()

    async def cancel(self) -> None:
        """Cancel every call, and wait until each has ended."""
        calls = list(self._running.values())
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)
