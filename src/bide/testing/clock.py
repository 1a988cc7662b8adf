"""A clock that tests move by hand, so that no test sleeps and hours pass at once."""

from __future__ import annotations

import asyncio
import heapq
import math
import threading
from collections.abc import Callable, Iterable

from bide.clock import make_id

_NS = 1_000_000_000
_NS_PER_MS = 1_000_000
_MOST_ROUNDS = 500_000
"""Turns of the event loop in one settling after which something is taken to spin."""

_SPINS = "the event loop does not come to rest: something spins without sleeping"

_BUSY_PAUSE = 0.0005
"""Real seconds between looks while a thread is at work."""


class VirtualClock:
    """Implements :class:`bide.clock.Clock` without real time, real chance or real waiting.

    Time stands still until the test moves it: ``await clock.advance(60)`` moves both clocks on by a minute,
    waking whoever sleeps, the earliest first, each at exactly its own instant; ``clock.step_wall(-3600)``
    moves the wall clock alone, as an administrator would. With ``autojump`` no hand is needed: whenever every
    task is blocked the clock jumps to the next sleeper, so a loop that waits hours runs through at once.

    ``draws`` is what :meth:`draw` answers: one number, or numbers that are answered in turn, over and over.
    ``start_ms`` is the wall clock's first reading in milliseconds since the Unix epoch; the monotonic clock
    begins at 0.

    What it cannot do: it sees only the event loop it is used in, and only what is ready to run there. A task
    that waits for a socket, a subprocess, a thread or a timer of asyncio's own (``asyncio.sleep``,
    ``asyncio.timeout``) counts as blocked, so the clock moves on without it. For work in threads say when it
    is under way, with :meth:`busy_while`; for sockets and processes use the real clock and short waits. It
    needs asyncio's own event loop, not uvloop. One clock serves one event loop at a time; its readings are
    safe from any thread.
    """

    def __init__(
        self,
        *,
        start_ms: int = 1_750_000_000_000,
        draws: float | Iterable[float] = 0.5,
        autojump: bool = False,
    ) -> None:
        self.autojump = autojump
        self._now_ns = 0
        self._wall_offset_ns = start_ms * _NS_PER_MS
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._slept = 0
        self._ids = 0
        self._busy: list[Callable[[], object]] = []
        self._advancing = False
        self._watched: asyncio.AbstractEventLoop | None = None
        self._looks = 0
        self._idle_looks = 0
        self.draws = draws

    # --- the clock ---------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        """Seconds that the clock was moved on since it was made."""
        return self._now_ns / _NS

    def utc_ms(self) -> int:
        """Milliseconds since the Unix epoch on the virtual wall clock."""
        return (self._now_ns + self._wall_offset_ns) // _NS_PER_MS

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved on by ``seconds``; zero or less only yields.

        Raises ``ValueError`` for NaN and infinities.
        """
        if not math.isfinite(seconds):
            raise ValueError(f"cannot sleep for {seconds!r} seconds")
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        await self._sleeper(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> _VirtualTimer:
        """Call ``callback`` when the clock was moved on by ``seconds``; zero or less is soon.

        Raises ``ValueError`` for NaN and infinities.
        """
        if not math.isfinite(seconds):
            raise ValueError(f"no timer runs for {seconds!r} seconds")
        return _VirtualTimer(self._sleeper(max(seconds, 0.0)), callback)

    def pause(self, seconds: float, until: threading.Event) -> bool:
        """For code without an event loop: move the clock on by ``seconds``, unless ``until`` is set; whether it is.

        While something is busy (:meth:`busy_while`) it really waits first. Nobody who sleeps is woken.
        """
        while self._is_busy() and not until.wait(_BUSY_PAUSE):
            pass
        if not until.is_set():
            self._now_ns += round(seconds * _NS)
        return until.is_set()

    def expect(self, done: threading.Event, seconds: float) -> bool:
        """As :meth:`pause`: a thread whose work should be waited for is announced by :meth:`busy_while`."""
        return self.pause(seconds, done)

    def _sleeper(self, seconds: float) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[None] = loop.create_future()
        self._slept += 1
        wake_at = self._now_ns + max(round(seconds * _NS), 1)
        heapq.heappush(self._sleepers, (wake_at, self._slept, sleeper))
        if self.autojump:
            self._watch(loop)
        return sleeper

    def draw(self) -> float:
        """The next of ``draws``."""
        number = self._draws[self._drawn % len(self._draws)]
        self._drawn += 1
        return number

    def new_id(self) -> str:
        """The layout of real identifiers with a counter for the chance: 1, 2, 3, … of this clock."""
        self._ids += 1
        return make_id(self.utc_ms(), self._ids)

    # --- the test's hand ---------------------------------------------------------------------------------

    @property
    def draws(self) -> tuple[float, ...]:
        """The numbers that :meth:`draw` answers in turn. Setting them, or one number, begins anew."""
        return self._draws

    @draws.setter
    def draws(self, draws: float | Iterable[float]) -> None:
        numbers = (float(draws),) if isinstance(draws, int | float) else tuple(draws)
        if not numbers or not all(0 <= number < 1 for number in numbers):
            raise ValueError(f"draws are one or more numbers in [0, 1), not {draws!r}")
        self._draws = numbers
        self._drawn = 0

    @property
    def sleeping(self) -> int:
        """How many sleepers wait for the clock to move."""
        return sum(not sleeper.done() for _, _, sleeper in self._sleepers)

    @property
    def next_in(self) -> float | None:
        """Seconds until the earliest sleeper wakes, or None where nobody sleeps."""
        self._forget_cancelled()
        return (self._sleepers[0][0] - self._now_ns) / _NS if self._sleepers else None

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock on or back by ``seconds``; the monotonic clock and sleepers do not notice."""
        self._wall_offset_ns += round(seconds * _NS)

    def busy_while(self, busy: Callable[[], object]) -> None:
        """Let time stand still while ``busy()`` is true: work goes on that the event loop does not show.

        For threads: ``clock.busy_while(lambda: pending)``, where ``pending`` is counted up before work is
        handed to a thread, and down by whoever awaited it, in the event loop.
        """
        self._busy.append(busy)

    async def advance(self, seconds: float) -> None:
        """Move both clocks on by ``seconds``, waking every sleeper that is due on the way, in order.

        At each instant the loop first settles: everything that can run does, and who sleeps again in that
        time is woken too if it is due. ``advance(0)`` only settles. Raises ``RuntimeError`` where something
        spins, so that the loop never settles, and where another task is advancing the clock.
        """
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError(f"time cannot be moved on by {seconds!r} seconds")
        if self._advancing or self.autojump:
            by = "itself (autojump)" if self.autojump else "another advance()"
            raise RuntimeError(f"the clock is being moved by {by}; only one can move it")
        self._advancing = True
        try:
            end = self._now_ns + round(seconds * _NS)
            await self._settle()
            while self._wake_next(end):
                await self._settle()
            self._now_ns = end
        finally:
            self._advancing = False

    # --- waking ------------------------------------------------------------------------------------------

    def _wake_next(self, end: int | None) -> bool:
        """Go to the earliest sleeper's instant, if it is not after ``end``, and wake all of that instant."""
        self._forget_cancelled()
        if not self._sleepers or (end is not None and self._sleepers[0][0] > end):
            return False
        self._now_ns = max(self._now_ns, self._sleepers[0][0])
        while self._sleepers and self._sleepers[0][0] <= self._now_ns:
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)
        return True

    def _forget_cancelled(self) -> None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)

    def _is_busy(self) -> bool:
        return any(busy() for busy in self._busy)

    async def _settle(self) -> None:
        """Let everything run that can, until only this is left: seen twice, with a look at I/O in between."""
        loop = asyncio.get_running_loop()
        idle_looks = 0
        for _ in range(_MOST_ROUNDS):
            if self._is_busy():
                idle_looks = 0
                await asyncio.sleep(_BUSY_PAUSE)
                continue
            await asyncio.sleep(0)
            idle_looks = 0 if _has_ready(loop) else idle_looks + 1
            if idle_looks == 2:
                return
        raise RuntimeError(_SPINS)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Autojump: see to it that ``loop`` is looked at until nobody sleeps in it."""
        if self._watched is loop:
            return
        _has_ready(loop)  # raises here, where the sleeper sees it, if the loop cannot tell
        self._watched = loop
        self._looks = self._idle_looks = 0
        loop.call_soon(self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Autojump: jump if nothing else could run at two looks, with I/O between; and look again."""
        if self._is_busy():
            self._idle_looks = 0
            loop.call_later(_BUSY_PAUSE, self._look, loop)
            return
        self._looks += 1
        self._idle_looks = 0 if _has_ready(loop) else self._idle_looks + 1
        if self._looks > _MOST_ROUNDS:
            self._give_up()
        if self._idle_looks >= 2:
            self._looks = self._idle_looks = 0
            if not self._wake_next(None):
                self._watched = None
                return
        loop.call_soon(self._look, loop)

    def _give_up(self) -> None:
        """Autojump: tell every sleeper that time will not pass."""
        self._looks = 0
        while self._sleepers:
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_exception(RuntimeError(_SPINS))


class _VirtualTimer:
    """A call that comes when its sleeper wakes."""

    def __init__(self, sleeper: asyncio.Future[None], callback: Callable[[], object]) -> None:
        self._sleeper = sleeper
        self._callback = callback
        self._cancelled = False  # also after the sleeper woke and before its callback ran
        sleeper.add_done_callback(self._woken)

    def _woken(self, sleeper: asyncio.Future[None]) -> None:
        if not sleeper.cancelled() and not self._cancelled and sleeper.exception() is None:
            self._callback()

    def cancel(self) -> None:
        self._cancelled = True
        self._sleeper.cancel()


def _has_ready(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether anything else in ``loop`` can run now.

    asyncio has no public way to ask; its own loops all keep what can run next in ``_ready``.
    """
    ready = getattr(loop, "_ready", None)
    if ready is None:
        raise RuntimeError(
            "VirtualClock needs asyncio's own event loop; this one does not show what is ready"
        )
    return bool(ready)
