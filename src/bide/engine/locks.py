"""Keeping the locks of running items alive.

Renewal runs on a thread with an event loop of its own, so that a handler that blocks the main loop does not
lose its lock. A renewal that fails for a passing reason is not a lost lock: it is tried again until the lock's
own time is over. A lock that the provider says is dead is lost; whoever holds it is told, on its own loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta

from bide.clock import Clock
from bide.provider import Work

Lost = Callable[[str], None]
"""Called with the token of a lost lock."""


class HeldLocks:
    """The tokens that this process holds. Safe to use from any thread."""

    def __init__(self, lost: Lost) -> None:
        self._lost = lost
        self._tokens: dict[str, float] = {}
        self._guard = threading.Lock()

    def add(self, token: str, ends: float) -> None:
        """Hold ``token``; its lock ends at ``ends`` on the monotonic clock unless it is renewed."""
        with self._guard:
            self._tokens[token] = ends

    def remove(self, token: str) -> None:
        with self._guard:
            self._tokens.pop(token, None)

    def tokens(self) -> list[str]:
        with self._guard:
            return list(self._tokens)

    def renewed(self, token: str, ends: float) -> None:
        """``token`` was prolonged, if it is still held."""
        with self._guard:
            if token in self._tokens:
                self._tokens[token] = ends

    def lose(self, token: str) -> None:
        """``token`` is dead: forget it and tell, unless it was let go of meanwhile."""
        with self._guard:
            if self._tokens.pop(token, None) is None:
                return
        self._lost(token)

    def expired(self, now: float) -> list[str]:
        with self._guard:
            return [token for token, ends in self._tokens.items() if ends <= now]


async def renew_once(provider: Work, held: HeldLocks, clock: Clock, lock_timeout: timedelta) -> None:
    """Renew every held lock in one round trip; those that are dead or out of time are lost."""
    tokens = held.tokens()
    if not tokens:
        return
    began = clock.monotonic()
    try:
        alive = await provider.renew(tokens, lock_timeout)
    except Exception:  # passing or not: until its time is over a lock is still held
        for token in held.expired(clock.monotonic()):
            held.lose(token)
        return
    for token, lives in zip(tokens, alive, strict=True):
        if lives:
            held.renewed(token, began + lock_timeout.total_seconds())
        else:
            held.lose(token)


async def keep_renewing(provider: Work, held: HeldLocks, clock: Clock, lock_timeout: timedelta) -> None:
    """Renew at a third of ``lock_timeout``, until cancelled."""
    while True:
        await clock.sleep(lock_timeout.total_seconds() / 3)
        await renew_once(provider, held, clock, lock_timeout)


class RenewalThread:
    """Runs :func:`keep_renewing` on a thread of its own while it is entered."""

    def __init__(self, provider: Work, held: HeldLocks, clock: Clock, lock_timeout: timedelta) -> None:
        self._arguments = (provider, held, clock, lock_timeout)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="bide-lock-renewal", daemon=True)

    def __enter__(self) -> RenewalThread:
        started = threading.Event()
        self._started = started
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._renewing is not None
        self._loop.call_soon_threadsafe(self._renewing.cancel)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._keep())

    async def _keep(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._renewing = asyncio.ensure_future(keep_renewing(*self._arguments))
        self._started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await self._renewing
