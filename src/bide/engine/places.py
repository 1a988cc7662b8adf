"""Places for calls: how many are under way, of which connection, and letting them end at a stop.

A call takes its place until its answer is there. While a connection answers quickly its claims run ahead of its
calls, so that a place which becomes free finds the next call claimed already and nobody waits for a transaction.
Answers that wait to be recorded are bounded too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from bide.clock import Clock
from bide.engine.waiting import CANCEL_LIMIT_S

QUICK_S = 0.25
"""A connection is quick whose last answer took less, and none of whose calls under way is older, in seconds."""

AHEAD = 4
"""Of a quick connection so many times its places may be claimed ahead: a second's worth of calls at most."""

HANGING_S = 5.0
"""A connection that has a call under way older than so many seconds hangs, and gets no more than its part."""

PART = 4
"""A connection that hangs may have one in so many of all places, so that several of them leave room for others."""


class Placed(Protocol):
    """A call as places see it.

    ``gives_up_at`` is the monotonic instant after which it is not begun, since its claim may be another's by then.
    ``alone``: it runs code that may change the context it runs in, so nothing else is run there.
    """

    @property
    def name(self) -> str: ...

    @property
    def connection(self) -> str: ...

    @property
    def gives_up_at(self) -> float: ...

    @property
    def alone(self) -> bool: ...


C = TypeVar("C", bound=Placed)


class _Lane(Generic[C]):
    """One connection's share of the places."""

    def __init__(self, cap: int, part: int) -> None:
        self.cap = cap
        self.part = min(cap, part)
        self.waiting: deque[C] = deque()
        """What is claimed and has no place yet, in order."""
        self.began: dict[str, float] = {}
        """When the calls under way began, oldest first."""
        self.quick = False
        """Whether the last answer came quickly; of a connection that has not answered yet nothing is expected."""

    def most(self, now: float) -> int:
        """How many calls it may have under way."""
        return self.part if self._age(now) > HANGING_S else self.cap

    def room(self, now: float) -> int:
        """How many more may be claimed; none while half of what may be claimed ahead is there."""
        ahead = self.cap * AHEAD if self.quick and self._age(now) < QUICK_S else 0
        if ahead and len(self.waiting) > ahead // 2:
            return 0
        return self.most(now) + ahead - len(self.began) - len(self.waiting)

    def _age(self, now: float) -> float:
        return now - next(iter(self.began.values()), now)


class Places(Generic[C]):
    """Up to ``most`` calls at a time, and of each connection no more than ``caps`` says.

    ``make`` makes a call and returns once its answer is there; from then on it waits to be recorded, until
    :meth:`over` is called. ``dropped`` is told of each call that came to nothing: cancelled, or given up in line.
    ``freed`` is set whenever more may be claimed, or nothing is under way any more.
    """

    def __init__(
        self,
        most: int,
        caps: Mapping[str, int],
        *,
        make: Callable[[C], Awaitable[None]],
        dropped: Callable[[C], None],
        clock: Clock,
    ) -> None:
        self._most = most
        self._make = make
        self._dropped = dropped
        self._clock = clock
        part = max(1, most // PART)
        self._lanes: dict[str, _Lane[C]] = {
            connection: _Lane(min(cap, most), part) for connection, cap in caps.items()
        }
        self._turn: deque[_Lane[C]] = deque(self._lanes.values())
        self._names: set[str] = set()
        """Of every call from claim to record."""
        self._waiting = 0
        self._calling: set[asyncio.Task[None]] = set()
        """Each makes one call after the other; there are as many as calls under way."""
        self._hurry = asyncio.Event()
        self.freed = asyncio.Event()

    def __contains__(self, name: object) -> bool:
        """Whether the call of that name is under way, or being recorded."""
        return name in self._names

    @property
    def room(self) -> int:
        """How many more may be claimed now; what waits to be recorded counts too."""
        at_most = self._most * (1 + AHEAD)
        return min(at_most - self._waiting - len(self._calling), 2 * at_most - len(self._names))

    def room_of(self, connection: str) -> int:
        """How many more of one connection may be claimed now."""
        return self._lanes[connection].room(self._clock.monotonic())

    def start(self, calls: Iterable[C]) -> None:
        """Make ``calls`` in the next free places."""
        for call in calls:
            self._names.add(call.name)
            self._lanes[call.connection].waiting.append(call)
            self._waiting += 1
        self._fill()

    def over(self, call: C) -> None:
        """``call`` was recorded, or never will be."""
        self._names.discard(call.name)
        if not self._names:
            self.freed.set()

    def _fill(self) -> None:
        """Make what may be made now."""
        loop = asyncio.get_running_loop()
        while self._waiting and len(self._calling) < self._most and (lane := self._next_lane()) is not None:
            calling = loop.create_task(self._call(lane, lane.waiting.popleft()))
            self._waiting -= 1
            self._calling.add(calling)
            calling.add_done_callback(self._ended)

    def _next_lane(self) -> _Lane[C] | None:
        """The lane whose turn it is among those of which a call may start now: one of each connection in turn."""
        now = self._clock.monotonic()
        for _ in range(len(self._turn)):
            lane = self._turn[0]
            self._turn.rotate(-1)
            self._give_up(lane, now)
            if lane.waiting and len(lane.began) < lane.most(now):
                return lane
        return None

    def _give_up(self, lane: _Lane[C], now: float) -> None:
        """Leave out what has waited for too long."""
        while lane.waiting and lane.waiting[0].gives_up_at < now:
            self._waiting -= 1
            self._drop(lane.waiting.popleft())

    def _drop(self, call: C) -> None:
        self._names.discard(call.name)
        self._dropped(call)

    async def _call(self, lane: _Lane[C], call: C) -> None:
        """Make ``call``, and then others for as long as some wait."""
        this = asyncio.current_task()
        assert this is not None
        while True:
            began = lane.began[call.name] = self._clock.monotonic()
            made = False
            try:
                await self._make(call)
                made = True
            finally:
                del lane.began[call.name]
                if not made:
                    self._drop(call)
            lane.quick = self._clock.monotonic() - began < QUICK_S
            if lane.room(began) > 0:
                self.freed.set()
            if call.alone or this.cancelling() or not self._waiting:
                return
            following = self._next_lane()
            if following is None:
                return
            lane, call = following, following.waiting.popleft()
            self._waiting -= 1

    def _ended(self, calling: asyncio.Task[None]) -> None:
        self._calling.discard(calling)
        self.freed.set()
        self._fill()
        if not calling.cancelled() and (error := calling.exception()) is not None:
            raise error

    async def wait_for_one(self) -> None:
        """Wait until more may be claimed, if any call is under way."""
        self.freed.clear()
        if self._names:
            await self.freed.wait()

    async def wait_for_all(self) -> None:
        """Wait until every call was recorded."""
        while self._names:
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
            if self._names:
                await asyncio.wait(limits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for limit in limits:
                limit.cancel()
            self._hurry.clear()
            await self.cancel()

    async def cancel(self) -> None:
        """Cancel every call, and wait a little until each has ended; those without a place are left out."""
        for lane in self._lanes.values():
            while lane.waiting:
                self._waiting -= 1
                self._drop(lane.waiting.popleft())
        if not self._calling:
            return
        for calling in self._calling:
            calling.cancel()
        limit = asyncio.ensure_future(self._clock.sleep(CANCEL_LIMIT_S))
        ending = asyncio.ensure_future(asyncio.wait(set(self._calling)))
        await asyncio.wait({limit, ending}, return_when=asyncio.FIRST_COMPLETED)
        limit.cancel()
        ending.cancel()
