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
"""A connection is quick whose last answer took less, and none of whose calls under way is older, in seconds."""


HANGING_S = 5.0
"""A connection that has a call under way older than so many seconds hangs, and gets no more than its part."""

PART = 4
"""A connection that hangs may have one in so many of all places, so that several of them leave room for others."""

CANCEL_LIMIT_S = 5.0
"""Seconds that cancelled calls may take to end; one that swallows its cancellation is left behind."""


class _Lane:
    """One connection's share of the places."""

    def __init__(self, cap: int, part: int) -> None:
        self.cap = cap
        self.part = min(cap, part)
        self.waiting: deque[Callable[[], None]] = deque()
        """Starts the calls that are claimed and have no place yet, in order."""
        self.began: dict[str, float] = {}
        """When the calls under way began, oldest first."""
        self.quick = False
        """Whether the last answer came quickly; of a connection that has not answered yet nothing is expected."""

    def most(self, now: float) -> int:
        """How many calls it may have under way."""
        return self.part if self._age(now) > HANGING_S else self.cap

    def room(self, now: float) -> int:
        """How many more may be claimed."""
        ahead = self.cap if self.quick and self._age(now) < QUICK_S else 0
        return self.most(now) + ahead - len(self.began) - len(self.waiting)

    def _age(self, now: float) -> float:
        return now - next(iter(self.began.values()), now)


class Places(Generic[T]):
    """Up to ``most`` calls at a time, and of each connection no more than ``caps`` says.

    ``freed`` is set whenever a place became free or a call was recorded.
    """

    def __init__(self, most: int, caps: Mapping[str, int], clock: Clock) -> None:
        self._most = most
        self._clock = clock
        part = max(1, most // PART)
        self._lanes = {connection: _Lane(min(cap, most), part) for connection, cap in caps.items()}
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

    def start(
        self,
        name: str,
        connection: str,
        make: Make[T],
        ended: Callable[[T | None], None],
        *,
        patience_s: float,
    ) -> None:
        """Start the call ``name`` in the next free place; ``ended`` is told what came of it.

        It is told None where the call was cancelled, or waited for its place for longer than ``patience_s``, by when
        its claim may be another's.
        """
        lane = self._lanes[connection]
        self._claimed += 1
        self._running[name] = None
        claimed_at = self._clock.monotonic()

        def begin() -> None:
            if self._clock.monotonic() - claimed_at <= patience_s:
                self._call(name, lane, make, ended)
                return
            self._claimed -= 1
            del self._running[name]
            self.freed.set()
            ended(None)

        lane.waiting.append(begin)
        self._fill()

    def _fill(self) -> None:
        """Start what may start now: one of each connection in turn."""
        now, idle = self._clock.monotonic(), 0
        while self._claimed > self._calling and self._calling < self._most and idle < len(self._turn):
            lane = self._turn[0]
            self._turn.rotate(-1)
            if lane.waiting and len(lane.began) < lane.most(now):
                lane.waiting.popleft()()
                idle = 0
            else:
                idle += 1

    def _call(self, name: str, lane: _Lane, make: Make[T], ended: Callable[[T | None], None]) -> None:
        lane.began[name] = self._clock.monotonic()
        self._calling += 1

        def answered() -> None:
            began = lane.began.pop(name, None)
            if began is None:
                return
            lane.quick = self._clock.monotonic() - began < QUICK_S
            self._calling -= 1
            self._claimed -= 1
            self.freed.set()
            self._fill()

        def done(call: asyncio.Task[T]) -> None:
            answered()
            del self._running[name]
            self.freed.set()
            ended(None if call.cancelled() else call.result())

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
            self._hurry.clear()
            await self.cancel()

    async def cancel(self) -> None:
        """Cancel every call, and wait a little until each has ended; those without a place are left out."""
        for lane in self._lanes.values():
            self._claimed -= len(lane.waiting)
            lane.waiting.clear()
        calls = [call for call in self._running.values() if call is not None]
        self._running = {name: call for name, call in self._running.items() if call is not None}
        for call in calls:
            call.cancel()
        if calls:
            limit = asyncio.ensure_future(self._clock.sleep(CANCEL_LIMIT_S))
            ending = asyncio.ensure_future(asyncio.wait(calls))
            await asyncio.wait({limit, ending}, return_when=asyncio.FIRST_COMPLETED)
            limit.cancel()
            ending.cancel()
