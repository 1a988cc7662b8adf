"""Places for calls: how many are under way, of which connection, and letting them end at a stop.

A call takes its place until its answer is there. While a connection answers quickly its claims run ahead of its
calls, by as many as it may have under way, so that a place which becomes free finds the next call claimed already
and nobody waits for a transaction. Answers that wait to be recorded are bounded too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, Generic, TypeVar

from bide.clock import Clock

T = TypeVar("T")

Make = Callable[[Callable[[], None]], Coroutine[Any, Any, T]]
"""Makes a call, and calls its argument as soon as the answer is there."""

QUICK_S = 1.0
"""A connection none of whose calls under way is older than so many seconds is quick."""


class _Lane:
    """One connection's share of the places."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.waiting: deque[Callable[[], None]] = deque()
        """Starts the calls that are claimed and have no place yet, in order."""
        self.began: dict[str, float] = {}
        """When the calls under way began, oldest first."""

    def room(self, now: float) -> int:
        oldest = next(iter(self.began.values()), now)
        ahead = self.cap if now - oldest < QUICK_S else 0
        return self.cap + ahead - len(self.began) - len(self.waiting)


class Places(Generic[T]):
    """Up to ``most`` calls at a time, and of each connection no more than ``caps`` says.

    ``freed`` is set whenever a place became free or a call was recorded.
    """

    def __init__(self, most: int, caps: Mapping[str, int], clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._lanes = {connection: _Lane(min(cap, most)) for connection, cap in caps.items()}
        self._turn: deque[_Lane] = deque(self._lanes.values())
        self._running: dict[str, asyncio.Task[T] | None] = {}
        """Calls by name, from claim to record; None while one waits for its place."""
        self._claimed = 0
        self._calling = 0
        self._hurry = asyncio.Event()
        self.freed = asyncio.Event()

    def __contains__(self, name: object) -> bool:
        """Whether the call of that name is under way, or being recorded."""
        return name in self._running

    def __bool__(self) -> bool:
        return bool(self._running)

    @property
    def room(self) -> int:
        """How many more may be claimed now."""
        return min(2 * self._most - self._claimed, 3 * self._most - len(self._running))

    def room_of(self, connection: str) -> int:
        """How many more of one connection may be claimed now."""
        return self._lanes[connection].room(self._clock.monotonic())

    def room_for(self, waiting: int) -> int:
        """:attr:`room`, or 0 where it is better to wait for more of it.

        While more wait than there is room for, they are claimed half of all places at a time: a claim costs
        a transaction however many polls it takes.
        """
        room = self.room
        return 0 if waiting > room and self._running and room < max(1, self._most // 2) else room

    def start(self, name: str, connection: str, make: Make[T], ended: Callable[[T], None]) -> None:
        """Start the call ``name`` in the next free place; ``ended`` is told what came of it, if it ended."""
        lane = self._lanes[connection]
        self._claimed += 1
        self._running[name] = None
        lane.waiting.append(lambda: self._call(name, lane, make, ended))
        self._fill(lane)

    def _fill(self, lane: _Lane) -> None:
        """Start what may start now: of ``lane`` first, whose place it was, then of the others in turn."""
        while self._calling < self._most and lane.waiting and len(lane.began) < lane.cap:
            lane.waiting.popleft()()
        if self._claimed == self._calling:
            return  # nobody waits
        for _ in range(len(self._turn)):
            self._turn.rotate(-1)
            other = self._turn[0]
            while self._calling < self._most and other.waiting and len(other.began) < other.cap:
                other.waiting.popleft()()

    def _call(self, name: str, lane: _Lane, make: Make[T], ended: Callable[[T], None]) -> None:
        lane.began[name] = self._clock.monotonic()
        self._calling += 1

        def answered() -> None:
            if lane.began.pop(name, None) is None:
                return
            self._calling -= 1
            self._claimed -= 1
            self.freed.set()
            self._fill(lane)

        def done(call: asyncio.Task[T]) -> None:
            answered()
            del self._running[name]
            if not call.cancelled():
                ended(call.result())
            self.freed.set()

        call = asyncio.get_running_loop().create_task(make(answered))
        self._running[name] = call
        call.add_done_callback(done)

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
        """Cancel every call, and wait until each has ended; those without a place are not started any more."""
        for lane in self._lanes.values():
            self._claimed -= len(lane.waiting)
            lane.waiting.clear()
        calls = [call for call in self._running.values() if call is not None]
        self._running = {name: call for name, call in self._running.items() if call is not None}
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)
