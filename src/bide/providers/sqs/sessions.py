"""Which session serves which event loop: the one that opened the provider, and another for all the rest.

Renewing locks goes on while the application's own event loop is blocked: it runs on a loop and a client of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from bide.clock import Clock
from bide.core.sqs_address import SqsAddress
from bide.errors import ProviderError
from bide.providers.sqs.server_clock import ServerClock
from bide.providers.sqs.session import Queue, Session
from bide.providers.sqs.traffic import Traffic

_R = TypeVar("_R")


class Sessions:
    """The sessions of one provider."""

    def __init__(self, address: SqsAddress, clock: Clock) -> None:
        self.address = address
        self.clock = clock
        self.hour = ServerClock()
        self.traffic = Traffic()
        self._queues: dict[str, Queue] = {}
        self._home: Session | None = None
        self._aside: Session | None = None
        self._guard = threading.Lock()

    async def open(self) -> None:
        """Make a client for this event loop, and see that SQS answers it; unless that is done."""
        if self._home is not None:
            return
        session = self._made()
        await session.open()
        try:
            if not await session.has_queue(self.address.prefix) and self.address.create:
                await session.queue(self.address.prefix)
        except BaseException:
            await session.close()
            raise
        self._home = session

    async def close(self) -> None:
        """Finish what was begun, and close every connection."""
        home, self._home = self._home, None
        with self._guard:
            aside, self._aside = self._aside, None
        try:
            if home is not None:
                await home.close()
        finally:
            if aside is not None:
                closing = asyncio.run_coroutine_threadsafe(aside.close(), aside.loop)
                try:
                    await asyncio.wrap_future(closing)
                finally:
                    aside.loop.call_soon_threadsafe(aside.loop.stop)

    def opened(self) -> list[Session]:
        """Those that are open."""
        with self._guard:
            return [session for session in (self._home, self._aside) if session is not None]

    async def session(self) -> Session:
        """That of whoever runs on this event loop. Raises ``ProviderError`` where the provider is not open."""
        home = self._home
        if home is None:
            raise self._not_open()
        if asyncio.get_running_loop() is home.loop:
            return home
        return await asyncio.to_thread(self.open_aside)

    async def run(self, act: Callable[[Session], Coroutine[Any, Any, _R]]) -> _R:
        """What ``act`` answers. Once begun it is finished, also where whoever waits is cancelled."""
        session = await self.session()
        return await finished(await begun(session, lambda: act(session)))

    def _made(self) -> Session:
        return Session(self.address, self.clock, self.hour, self.traffic, self._queues)

    def open_aside(self) -> Session:
        """That of all other event loops, made when it is first needed; not to be called on one.

        Raises ``ProviderError`` where the provider is not open.
        """
        with self._guard:
            if self._aside is not None:
                return self._aside
            if self._home is None:  # closed meanwhile: nobody would close this one
                raise self._not_open()
            session = self._made()
            loop = asyncio.new_event_loop()
            threading.Thread(target=_serve, args=(loop,), name="bide-sqs", daemon=True).start()
            try:
                asyncio.run_coroutine_threadsafe(session.open(), loop).result()
            except BaseException:
                loop.call_soon_threadsafe(loop.stop)
                raise
            self._aside = session
            return session

    def _not_open(self) -> ProviderError:
        return ProviderError(f"{self.address.place}: the provider is not open")


async def begun(session: Session, act: Callable[[], Coroutine[Any, Any, _R]]) -> asyncio.Future[_R]:
    """``act`` under way on the event loop of ``session``; its outcome is for this one."""
    if asyncio.get_running_loop() is session.loop:
        return session.start(act())

    async def whole() -> _R:
        return await session.start(act())

    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(whole(), session.loop))


async def finished(begun: Awaitable[_R]) -> _R:
    """What ``begun`` answers. It goes on where this is cancelled; then nobody is told if it fails."""
    future = asyncio.ensure_future(begun)
    try:
        await asyncio.wait({future})
    except asyncio.CancelledError:
        future.add_done_callback(_hear)
        raise
    return future.result()


def _hear(ended: asyncio.Future[Any]) -> None:
    if not ended.cancelled():
        ended.exception()  # asked for, so that it is not logged as an error that nobody heard of


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run ``loop`` until it is stopped; what is left on it then is cancelled."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()
