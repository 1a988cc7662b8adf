"""The database as the parts of the provider use it: from any event loop, with wake-ups.

The loop that opened it has the pool. Calls from other loops, such as that of lock renewal, go to a thread with
connections of its own, so that they are answered also while the first loop is blocked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from bide.clock import Clock
from bide.core.addresses import PostgresAddress
from bide.errors import ProviderError
from bide.providers.longpoll import LOOK_AGAIN_S, Bell
from bide.providers.postgres.listening import Herald, Listener
from bide.providers.postgres.migrations import migrate
from bide.providers.postgres.session import Session

ASIDE_SIZE = 2
"""Connections for calls from other event loops."""

LOOK_AGAIN_WOKEN_S = 30.0
"""A waiting fetch looks at least so often while others wake it: in case a hint was lost."""

_R = TypeVar("_R")


class Database:
    """One database, for one provider."""

    def __init__(self, address: PostgresAddress, clock: Clock) -> None:
        self.address = address
        self.clock = clock
        self.bell = Bell()
        self._sender = ""
        self._home: Session | None = None
        self._aside: Session | None = None
        self._listener: Listener | None = None
        self._counting: list[Session | Listener] = []
        """Everybody who sends statements, or did before it was closed."""
        self._guard = threading.Lock()
        self._pending = 0

    async def open(self) -> None:
        """Connect, bring the tables up to date, and listen; unless that is done."""
        if self._home is not None:
            return
        session = self._made(self.address.pool)
        self._counting.append(session)
        await session.open()
        try:
            await session.prepare(migrate)
        except BaseException:
            await session.close()
            raise
        self._sender = self.clock.new_id()
        session.herald = Herald(session, self._sender)
        if self.address.listen:
            self._listener = Listener(session, self._sender, self.bell, self.clock)
            self._counting.append(self._listener)
            await self._listener.open()
        self._home = session

    async def close(self) -> None:
        """Finish what was begun, and close every connection."""
        home, self._home = self._home, None
        if home is None:
            return
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        with self._guard:
            aside, self._aside = self._aside, None
        if aside is None:
            await _shut(home)
            return
        closing = asyncio.run_coroutine_threadsafe(_shut(aside), aside.loop)
        try:
            await _shut(home)
        finally:
            try:
                await asyncio.wrap_future(closing)
            finally:
                aside.loop.call_soon_threadsafe(aside.loop.stop)

    @property
    def pending(self) -> int:
        """How many calls are under way at this moment."""
        return self._pending

    @property
    def statements(self) -> int:
        """How many were sent so far. From any thread."""
        return sum(sender.statements for sender in list(self._counting))

    @property
    def hears(self) -> bool:
        """Whether others can wake this process."""
        return self._listener is not None and self._listener.hears

    def look_again_s(self) -> float:
        """How often a waiting fetch looks though nobody woke it."""
        return LOOK_AGAIN_WOKEN_S if self.hears else LOOK_AGAIN_S

    async def session(self) -> Session:
        """The connections for whoever runs on this event loop. Raises ``ProviderError`` where it is not open."""
        home = self._home
        if home is None:
            raise ProviderError(f"{self.address.place}: the provider is not open")
        if asyncio.get_running_loop() is home.loop:
            return home
        return await asyncio.to_thread(self._open_aside)

    async def on(self, session: Session, act: Callable[[], Awaitable[_R]]) -> _R:
        """What ``act`` answers on the event loop of ``session``. Once begun it is finished, also where whoever waits
        is cancelled."""
        if asyncio.get_running_loop() is session.loop:
            return await finished(session.start(self._counted(act)))

        async def begin() -> _R:
            return await session.start(self._counted(act))

        return await finished(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(begin(), session.loop)))

    async def run(self, act: Callable[[Session], Awaitable[_R]]) -> _R:
        """What ``act`` answers, with the connections of :meth:`session`."""
        session = await self.session()
        return await self.on(session, lambda: act(session))

    async def rows(self, statement: str, *arguments: Any) -> list[Any]:
        """Run one statement; all its rows."""
        return await self.run(lambda session: session.rows(statement, *arguments))

    async def value(self, statement: str, *arguments: Any) -> Any:
        """Run one statement; the first column of its first row, or None."""
        return await self.run(lambda session: session.value(statement, *arguments))

    def wake(self, session: Session) -> None:
        """Work may have become eligible: wake fetches that wait here, and tell other processes."""
        self.bell.ring_everywhere()
        _call_on(session.loop, session.herald.tell)

    async def _counted(self, act: Callable[[], Awaitable[_R]]) -> _R:
        with self._guard:
            self._pending += 1
        try:
            return await act()
        finally:
            with self._guard:
                self._pending -= 1

    def _made(self, size: int) -> Session:
        return Session(self.address, size)

    def _open_aside(self) -> Session:
        with self._guard:
            if self._aside is None:
                session = self._made(ASIDE_SIZE)
                self._counting.append(session)
                loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(loop,), name="bide-postgres", daemon=True).start()
                asyncio.run_coroutine_threadsafe(session.open(), loop).result()
                session.herald = Herald(session, self._sender)
                self._aside = session
            return self._aside


async def finished(begun: asyncio.Future[_R]) -> _R:
    """What ``begun`` answers. It goes on where this is cancelled; then nobody is told if it fails."""
    try:
        await asyncio.wait({begun})
    except asyncio.CancelledError:
        begun.add_done_callback(_hear)
        raise
    return begun.result()


def _hear(ended: asyncio.Future[Any]) -> None:
    if not ended.cancelled():
        ended.exception()  # asked for, so that it is not logged as an error that nobody heard of


async def _shut(session: Session) -> None:
    session.herald.close()
    await session.close()


def _call_on(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if loop is asyncio.get_running_loop():
        call()
    else:
        loop.call_soon_threadsafe(call)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run ``loop`` until it is stopped; what is left on it then is cancelled."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()
