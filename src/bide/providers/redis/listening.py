"""Wake-ups from other processes: a blocking read of one small stream, on a connection of its own.

Wake-ups are hints. A function tells one only where somebody looked in vain before and waits, so that a busy queue
costs nothing. The id of the last one that was heard is kept, so that none is lost while a lost connection is made
again; that is done with a back-off, and then everybody looks at once. While there is none, waiting fetches look as
often as without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import Any

from bide.clock import Clock
from bide.core.pacing import FETCH_BACKOFF
from bide.core.redis_address import RedisAddress
from bide.errors import ProviderError
from bide.providers.longpoll import Bell
from bide.providers.redis.connections import Client, client_of
from bide.providers.redis.faults import FAULTS, explained
from bide.providers.redis.rows import shown
from bide.providers.redis.session import wake_key

BLOCK_S = 60.0
"""Seconds that one read waits: one command a minute while nothing happens, and proof that the connection lives."""

MARGIN_S = 10.0
"""Seconds beyond :data:`BLOCK_S` after which a server that did not answer counts as gone."""

CANCEL_AGAIN_S = 0.1
"""Seconds after which a cancellation that had no effect is tried again."""

_LOG = logging.getLogger("bide.redis")


class Listener:
    """The listening connection. ``hears`` is False while there is none. ``told`` is the last wake-up so far."""

    def __init__(
        self,
        address: RedisAddress,
        told: str,
        *,
        sender: bytes,
        bell: Bell,
        clock: Clock,
        requests: Counter[str],
    ) -> None:
        self._address = address
        self._told = told
        self._sender = sender
        self._bell = bell
        self._clock = clock
        self._requests = requests
        self._keeping: asyncio.Task[None] | None = None
        self.hears = False

    async def open(self) -> None:
        """Listen from now on. Where that fails it goes on trying."""
        first = asyncio.Event()
        self._keeping = asyncio.ensure_future(self._keep(first))
        self._keeping.add_done_callback(lambda _: first.set())
        await first.wait()

    async def close(self) -> None:
        """Listen no more."""
        keeping = self._keeping
        while keeping is not None and not keeping.done():
            keeping.cancel()  # which the driver may lose: asyncio.wait_for of Python 3.11 does
            await asyncio.wait({keeping}, timeout=CANCEL_AGAIN_S)

    async def _keep(self, first: asyncio.Event) -> None:
        backoff: timedelta | None = None
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
        client = client_of(self._address, 1, BLOCK_S + MARGIN_S)
        try:
            await self._read(client, block_s=None)  # proves that it can be done, before anybody relies on it
            self.hears = True
            if lost:
                _LOG.warning("wake-ups from other processes are back: %s", self._address.place)
                self._bell.ring_everywhere()  # for what was told meanwhile
            first.set()
            while True:
                if await self._read(client, block_s=BLOCK_S):
                    self._ring()
        finally:
            with suppress(ProviderError, *FAULTS):
                await client.aclose()

    def _ring(self) -> None:
        """Wake whoever waits: those on this event loop at once."""
        here = asyncio.get_running_loop()
        self._bell.ring(here)
        if self._bell.loops() not in ([], [here]):
            self._bell.ring_everywhere()

    async def _read(self, client: Client, *, block_s: float | None) -> bool:
        """Read what was told since the last time, waiting so long for it; whether somebody else told anything."""
        self._requests["command"] += 1
        block = () if block_s is None else ("BLOCK", round(block_s * 1000))
        streams = await client.execute("XREAD", *block, "STREAMS", wake_key(self._address), self._told)
        told = [entry for _, entries in _pairs(streams) for entry in entries]
        if told:
            self._told = shown(told[-1][0])
        return any(self._sender not in _values(fields) for _, fields in told)


def _pairs(streams: Any) -> list[Any]:
    if not streams:
        return []
    return list(streams.items()) if isinstance(streams, dict) else list(streams)


def _values(fields: Any) -> list[bytes]:
    return list(fields.values()) if isinstance(fields, dict) else list(fields)
