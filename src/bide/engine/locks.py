"""Keeping the locks of items in hand alive.

Renewal runs on a thread with an event loop of its own, so that a handler that blocks the main loop does not
lose its lock. A lock is renewed once a third of it is over, together with all that are due soon. A renewal that
fails for a passing reason is not a lost lock: it is tried again until the lock's own time is over. A lock that the
provider says is dead is lost; whoever holds it is told, on the renewal's thread.

A renewal that is not answered, as over a connection that is dead and does not show it, is asked for once more while
there is time: of the answers the first counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from bide.clock import Clock
from bide.engine.waiting import answer_of, ends_within
from bide.provider import Work

Lost = Callable[[str], None]
"""Called with the token of a lost lock."""

PART = 3
"""A lock is renewed when one part in so many of it is over."""

SOON = PART * 2
"""What has used up one part in so many is renewed along with others."""

RETRY = 30
"""A renewal that failed is tried again no sooner than after one part in so many of the lock."""


@dataclass(frozen=True, slots=True)
class _Lock:
    """One or more locks taken or renewed together, on the monotonic clock.

    ``length_s`` is what they are renewed to, ``patience_s`` the least time between attempts at it.
    """

    length_s: float
    patience_s: float
    soon_at: float
    due_at: float
    ends_at: float

    @classmethod
    def of(cls, now: float, held_s: float, length_s: float) -> _Lock:
        """A lock of ``held_s`` from ``now``; where it should be longer than that, it is due at once."""
        if length_s > held_s:
            return cls(length_s, held_s / RETRY, now, now, now + held_s)
        return cls(length_s, held_s / RETRY, now + length_s / SOON, now + length_s / PART, now + held_s)

    def again(self, now: float) -> _Lock:
        """The same lock after a renewal that failed."""
        next_at = min(now + max((self.ends_at - now) / PART, self.patience_s), self.ends_at)
        return _Lock(self.length_s, self.patience_s, next_at, next_at, self.ends_at)


class HeldLocks:
    """The tokens that this process holds. Safe to use from any thread.

    ``shortest``: no lock is given a shorter time than that, so nothing new is due before a third of it is over.
    """

    def __init__(self, lost: Lost, shortest: timedelta) -> None:
        self._lost = lost
        self._idle_s = shortest.total_seconds() / PART
        self._locks: dict[str, _Lock] = {}
        self._guard = threading.Lock()
        self._alarm: Callable[[], object] = lambda: None

    def add(self, tokens: Iterable[str], now: float, held: timedelta, length: timedelta) -> None:
        """Hold ``tokens``, locked for ``held`` from ``now``; where they need a longer ``length`` that is seen to at
        once."""
        lock = _Lock.of(now, held.total_seconds(), length.total_seconds())
        with self._guard:
            self._locks.update(dict.fromkeys(tokens, lock))
        if lock.due_at <= now:
            self._alarm()

    def remove(self, tokens: Iterable[str]) -> None:
        """Let go of ``tokens``."""
        with self._guard:
            for token in tokens:
                self._locks.pop(token, None)

    def tokens(self) -> list[str]:
        with self._guard:
            return list(self._locks)

    def alarmed_by(self, alarm: Callable[[], object]) -> None:
        """Call ``alarm``, on any thread, when a lock was added that is due at once."""
        self._alarm = alarm

    def wait_s(self, now: float) -> float:
        """How many seconds nothing is due, whatever is added meanwhile without an alarm."""
        with self._guard:
            due_at = min((lock.due_at for lock in self._locks.values()), default=math.inf)
        return max(min(due_at - now, self._idle_s), 0.0)

    def due(self, now: float) -> dict[float, dict[str, _Lock]]:
        """What to renew now, by the seconds to renew it to: what is due, and what is due soon along with it."""
        with self._guard:
            locks = dict(self._locks)
        lengths = {lock.length_s for lock in locks.values() if lock.due_at <= now}
        by_length: dict[float, dict[str, _Lock]] = {length_s: {} for length_s in lengths}
        for token, lock in locks.items():
            if lock.length_s in lengths and lock.soon_at <= now:
                by_length[lock.length_s][token] = lock
        return by_length

    def renewed(self, token: str, lock: _Lock) -> None:
        """``token`` has another ``lock`` now, if it is still held."""
        with self._guard:
            if token in self._locks:
                self._locks[token] = lock

    def lose(self, token: str) -> None:
        """``token`` is dead: forget it and tell, unless it was let go of meanwhile."""
        with self._guard:
            if self._locks.pop(token, None) is None:
                return
        self._lost(token)


async def renew_due(provider: Work, held: HeldLocks, clock: Clock) -> None:
    """Renew the locks that are due, in one round trip for each length; those that are dead or over are lost."""
    for length_s, locks in held.due(clock.monotonic()).items():
        began = clock.monotonic()
        living = {token: lock for token, lock in locks.items() if lock.ends_at > began}
        for token in locks.keys() - living.keys():
            held.lose(token)
        if not living:
            continue
        answers = await _renew(provider, living, length_s, clock)
        renewed = _Lock.of(began, length_s, length_s)
        for token, lock in living.items():
            match answers.get(token):
                case None:
                    held.renewed(token, lock.again(clock.monotonic()))
                case True:
                    held.renewed(token, renewed)
                case False:
                    held.lose(token)


async def _renew(provider: Work, locks: dict[str, _Lock], length_s: float, clock: Clock) -> dict[str, bool]:
    """Which of ``locks`` live; nothing where the provider did not say so before the first of them ends."""
    tokens = list(locks)
    first_end = min(lock.ends_at for lock in locks.values())
    asked: list[asyncio.Future[list[bool]]] = []
    try:
        for part in (2, 1):
            renewing = answer_of(provider.renew(tokens, timedelta(seconds=length_s)))
            asked.append(asyncio.ensure_future(renewing))
            if await ends_within(clock, (first_end - clock.monotonic()) / part, *asked):
                answered = next(each for each in asked if each.done())
                return dict(zip(tokens, answered.result(), strict=True))
    except Exception:  # passing or not: until its time is over a lock is still held
        return {}
    finally:
        for each in asked:
            each.cancel()
    return {}


async def keep_renewing(
    provider: Work, held: HeldLocks, clock: Clock, look: Callable[[], object] = lambda: None
) -> None:
    """Renew what is held, until cancelled. ``look`` is called at least each third of the shortest lock."""
    loop = asyncio.get_running_loop()
    alarm = asyncio.Event()

    def sound() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is held any more
            loop.call_soon_threadsafe(alarm.set)

    held.alarmed_by(sound)
    while True:
        alarm.clear()
        waiting = asyncio.ensure_future(alarm.wait())
        try:
            await ends_within(clock, held.wait_s(clock.monotonic()), waiting)
        finally:
            waiting.cancel()
        look()
        await renew_due(provider, held, clock)


class RenewalThread:
    """Runs :func:`keep_renewing` on a thread of its own while it is entered."""

    def __init__(
        self, provider: Work, held: HeldLocks, clock: Clock, look: Callable[[], object] = lambda: None
    ) -> None:
        self._arguments = (provider, held, clock, look)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="bide-lock-renewal", daemon=True)

    def __enter__(self) -> RenewalThread:
        self._thread.start()
        self._started.wait()
        if self._renewing is None:
            raise RuntimeError("the thread that renews locks could not begin: see the error above")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._renewing is not None
        self._loop.call_soon_threadsafe(self._renewing.cancel)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._keep())
        finally:
            self._started.set()  # also where there is no event loop to be had, as without a free file number

    async def _keep(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._renewing = asyncio.ensure_future(keep_renewing(*self._arguments))
        self._started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await self._renewing
