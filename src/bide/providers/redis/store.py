"""The store as the parts of the provider use it: from any event loop, with wake-ups.

The loop that opened it has the pool. Calls from other loops, such as that of lock renewal, go to a thread with
connections of its own, so that they are answered also while the first loop is blocked.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from bide import __version__
from bide.clock import Clock
from bide.core.redis_address import RedisAddress
from bide.errors import ProviderCorrupt, ProviderError, ProviderNewer
from bide.providers.longpoll import LOOK_AGAIN_S, Bell
from bide.providers.redis.listening import Listener
from bide.providers.redis.rows import shown
from bide.providers.redis.session import Session, meta_key

SCHEMA = 1
"""The layout of keys that this program knows. A change of it is a numbered step of the function ``open``."""

ASIDE_SIZE = 2
"""Connections for calls from other event loops."""

LOOK_AGAIN_WOKEN_S = 30.0
"""A waiting fetch looks at least so often while others wake it: in case a hint was lost."""

_R = TypeVar("_R")

_LOG = logging.getLogger("bide.redis")


class Store:
    """One store, for one provider."""

    def __init__(self, address: RedisAddress, clock: Clock) -> None:
        self.address = address
        self.clock = clock
        self.bell = Bell()
        self.requests: Counter[str] = Counter()
        self._sender = b""
        self._home: Session | None = None
        self._aside: Session | None = None
        self._listener: Listener | None = None
        self._guard = threading.Lock()
        self._pending = 0

    async def open(self) -> None:
        """Connect, bring the store up to date, and wait for wake-ups; unless that is done."""
        if self._home is not None:
            return
        session = self._made(self.address.pool)
        await session.open()
        try:
            told = await self._prepare(session)
        except BaseException:
            await session.close()
            raise
        self._sender = self.clock.new_id().encode()
        if self.address.wake:
            self._listener = Listener(
                self.address,
                told,
                sender=self._sender,
                bell=self.bell,
                clock=self.clock,
                requests=self.requests,
            )
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
            await home.close()
            return
        closing = asyncio.run_coroutine_threadsafe(aside.close(), aside.loop)
        try:
            await home.close()
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
    def hears(self) -> bool:
        """Whether others can wake this process."""
        return self._listener is not None and self._listener.hears

    def look_again_s(self) -> float:
        """How often a waiting fetch looks though nobody woke it."""
        return LOOK_AGAIN_WOKEN_S if self.hears else LOOK_AGAIN_S

    async def run(self, name: str, *arguments: Any) -> Any:
        """What a function answers. Raises ``ProviderError``."""
        return await self.on(lambda session: self.asked(session, name, *arguments))

    async def on(self, act: Callable[[Session], Awaitable[_R]]) -> _R:
        """What ``act`` answers with the connections for whoever runs on this event loop.

        Once begun it is finished, also where whoever waits is cancelled. Raises ``ProviderError``.
        """
        return await asyncio.shield(await self.begin(act))

    async def begin(self, act: Callable[[Session], Awaitable[_R]]) -> asyncio.Future[_R]:
        """As :meth:`on`, under way. Raises ``ProviderError`` where it cannot be begun."""
        session = await self._session()
        if asyncio.get_running_loop() is session.loop:
            return session.start(self._counted(act, session))

        async def begun() -> _R:
            return await session.start(self._counted(act, session))

        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(begun(), session.loop))

    async def asked(self, session: Session, name: str, *arguments: Any) -> Any:
        """What a function answers. A server that lost everything is begun with anew, and this is said."""
        given = (str(SCHEMA), self._sender, *arguments)
        try:
            return await session.run(name, *given)
        except ProviderError as error:
            version = _other_version(error)
            if version is None:
                raise
            if version != "none":
                raise self._newer(version, "a newer bide") from error
        _LOG.warning(
            "%s: the store is empty: the server lost what it kept (a restart without persistence, FLUSHALL?); "
            "beginning with an empty one",
            self.address.place,
        )
        await self._prepare(session)
        return await session.run(name, *given)

    async def _prepare(self, session: Session) -> str:
        """Bring the store up to this version; the id of the last wake-up."""
        kept, written_by, told = map(shown, await session.run("open", str(SCHEMA), __version__))
        if kept == "foreign":
            raise ProviderCorrupt(
                f"{self.address.place}: its key {meta_key(self.address)!r} is not bide's (a {written_by}), or was "
                "damaged; nothing was changed; choose another prefix with ?prefix="
            )
        if int(kept) > SCHEMA:
            raise self._newer(kept, f"bide {written_by}")
        await session.forget_others()
        return told

    def _newer(self, version: str, writer: str) -> ProviderNewer:
        return ProviderNewer(
            f"{self.address.place}: it was written by {writer} (schema {version}), and this is bide {__version__}, "
            f"which knows schemas up to {SCHEMA}; nothing was changed; upgrade bide, or choose another prefix "
            "with ?prefix="
        )

    async def _session(self) -> Session:
        home = self._home
        if home is None:
            raise ProviderError(f"{self.address.place}: the provider is not open")
        if asyncio.get_running_loop() is home.loop:
            return home
        return await asyncio.to_thread(self._open_aside)

    async def _counted(self, act: Callable[[Session], Awaitable[_R]], session: Session) -> _R:
        with self._guard:
            self._pending += 1
        try:
            return await act(session)
        finally:
            with self._guard:
                self._pending -= 1

    def _made(self, size: int) -> Session:
        return Session(self.address, size, self.requests)

    def _open_aside(self) -> Session:
        with self._guard:
            if self._aside is None:
                session = self._made(ASIDE_SIZE)
                loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(loop,), name="bide-redis", daemon=True).start()
                asyncio.run_coroutine_threadsafe(session.open(), loop).result()
                self._aside = session
            return self._aside


def _other_version(error: ProviderError) -> str | None:
    """The version that a function found instead of its own; None where that is not what went wrong."""
    words = str(error.__cause__).split()
    return words[1] if len(words) > 1 and words[0] == "BIDESCHEMA" else None


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run ``loop`` until it is stopped; what is left on it then is cancelled."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()
