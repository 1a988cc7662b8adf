"""Wake-ups between processes: LISTEN on a connection of its own, and NOTIFY, both no more than hints.

A lost connection is made again with a back-off, and then everybody looks at once for what was missed. While there
is none, waiting fetches look as often as without it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import asyncpg

from bide.clock import Clock
from bide.core.pacing import FETCH_BACKOFF
from bide.errors import ProviderError
from bide.providers.longpoll import Bell
from bide.providers.postgres.faults import FAULTS, explained
from bide.providers.postgres.session import CONNECT_S, Session, connection_options

DEBOUNCE_S = 0.02
"""Seconds after a notification in which no other is sent; what happens in them is told at their end."""

PROBE_S = 60.0
"""Seconds between looks whether a silent connection still lives."""

NOTIFY = "SELECT pg_notify($1, $2) FROM set_config('synchronous_commit', 'off', true)"
"""A hint need not be on disk."""

_LOG = logging.getLogger("bide.postgres")


def channel_of(schema: str) -> str:
    """The channel on which processes of one store tell each other."""
    return f"bide:{schema}"


class Herald:
    """Tells other processes that work may have become eligible, soon but not too often."""

    def __init__(self, session: Session, sender: str) -> None:
        self._session = session
        self._arguments = (channel_of(session.address.schema), sender)
        self._silent = False
        self._again = False
        self._closed = False

    def begin(self) -> tuple[str, ...]:
        """Channel and sender for a statement that shall tell others itself; nothing where they were told just now."""
        if self._silent or self._closed:
            return ()
        self._silent = True
        asyncio.get_running_loop().call_later(DEBOUNCE_S, self._hear_again)
        return self._arguments

    def tell(self) -> None:
        """To be called on the session's event loop."""
        if self._silent and not self._closed:
            self._again = True
            return
        self._silent = True
        self._session.start(self._notify())

    def close(self) -> None:
        """Tell now what was to be told later."""
        self._closed = True
        if self._again:
            self._again = False
            self._session.start(self._notify())

    async def _notify(self) -> None:
        with suppress(ProviderError):  # nobody is lost by it: they look now and then
            await self._session.rows(NOTIFY, *self._arguments)
        if not self._closed:
            asyncio.get_running_loop().call_later(DEBOUNCE_S, self._hear_again)

    def _hear_again(self) -> None:
        self._silent = False
        if self._again:
            self._again = False
            self.tell()


class Listener:
    """The listening connection. ``hears`` is False while there is none."""

    def __init__(self, session: Session, sender: str, bell: Bell, clock: Clock) -> None:
        self._address = session.address
        self._sender = sender
        self._bell = bell
        self._clock = clock
        self._keeping: asyncio.Task[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        self._again = False
        self.hears = False
        self.statements = 0
        """Those that it sent so far."""

    async def open(self) -> None:
        """Listen from now on. Where that fails it goes on trying."""
        first = asyncio.Event()
        self._keeping = asyncio.ensure_future(self._keep(first))
        self._keeping.add_done_callback(lambda _: first.set())
        await first.wait()

    async def close(self) -> None:
        """Listen no more."""
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        if self._due is not None:
            self._due.cancel()

    async def _keep(self, first: asyncio.Event) -> None:
        backoff = None
        lost = False
        while True:
            try:
                await self._listen(first, lost)
            except FAULTS as error:
                if not lost or self.hears:
                    reason = explained(error, self._address.place)
                    _LOG.warning("no wake-ups from other processes until it is back: %s", reason)
            if self.hears:
                backoff = None
            lost, self.hears = True, False
            first.set()
            backoff = FETCH_BACKOFF.next(backoff)
            await self._clock.sleep(backoff.total_seconds() * (0.9 + 0.2 * self._clock.draw()))

    async def _listen(self, first: asyncio.Event, lost: bool) -> None:
        """Listen until the connection is lost, which raises."""
        ended = asyncio.Event()
        connection: Any = await asyncpg.connect(self._address.dsn, **connection_options(self._address))
        try:
            connection.add_termination_listener(lambda _: ended.set())
            self.statements += 1
            await connection.add_listener(channel_of(self._address.schema), self._heard)
            self.hears = True
            if lost:
                _LOG.warning("wake-ups from other processes are back: %s", self._address.place)
                self._bell.ring_everywhere()  # for what was told meanwhile
            first.set()
            while not await self._ends_within(ended, PROBE_S):
                self.statements += 1
                await connection.execute("SELECT 1", timeout=CONNECT_S)
            raise ConnectionResetError("the listening connection ended")
        finally:
            connection.terminate()

    async def _ends_within(self, ended: asyncio.Event, seconds: float) -> bool:
        """Whether the connection is lost before so much time has passed."""
        losing = asyncio.ensure_future(ended.wait())
        resting = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({losing, resting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            losing.cancel()
            resting.cancel()
        return ended.is_set()

    def _heard(self, _connection: object, _pid: int, _channel: str, sender: str) -> None:
        """Ring for what others did, at once and then at most so often."""
        if sender == self._sender:
            return
        if self._due is not None:
            self._again = True
            return
        self._due = asyncio.get_running_loop().call_later(DEBOUNCE_S, self._rest)
        self._bell.ring_everywhere()

    def _rest(self) -> None:
        self._due = None
        if self._again:
            self._again = False
            self._heard(None, 0, "", "")
