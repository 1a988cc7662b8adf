"""The server's clock, as this process knows it."""

from __future__ import annotations

import asyncio
import threading

from bide.clock import Clock
from bide.core.server_time import ServerTime
from bide.errors import ProviderError
from bide.providers.s3.bucket import Bucket
from bide.providers.s3.names import CLOCK

LEARN_AGAIN_MS = 600_000
"""Once it is known well, it is asked for again after so long: clocks drift, and may be set."""

LEARN_MORE_MS = 5_000
"""While it is known badly, it is asked for once in so long."""

WELL_MS = 150
"""An error of so much is good enough."""

_PLACES = 16
_TRIES = 5


class StoreClock:
    """Instants of the server, from objects that it stamped. Safe to use from any thread."""

    def __init__(self, bucket: Bucket, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock
        self._guard = threading.Lock()
        self._known: ServerTime | None = None
        self._asked_at = 0
        self._learning: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        self.steps = 0
        """How often the server's clock was found to have been set."""

    async def now(self, *, roughly: bool = False) -> int:
        """The likeliest instant, in ms since the epoch. Raises ``ProviderError`` where none is known.

        ``roughly``: what is known will do, however old it is.
        """
        at = self._monotonic_ms()
        known = self._known
        if known is None or (not roughly and at - self._asked_at >= self._patience_ms(known, at)):
            await self._learn_once()
            known, at = self._known, self._monotonic_ms()
        assert known is not None
        return known.now(at)

    def error_ms(self) -> int:
        """By how much :meth:`now` may be off, either way."""
        return 0 if self._known is None else self._known.error_ms(self._monotonic_ms())

    def forget(self) -> None:
        """Ask the server when next an instant is needed, and believe nothing from before."""
        with self._guard:
            self._known = None
            self.steps += 1

    def _patience_ms(self, known: ServerTime, at: int) -> int:
        return LEARN_AGAIN_MS if known.error_ms(at) <= WELL_MS else LEARN_MORE_MS

    async def _learn_once(self) -> None:
        """Of callers at one moment one asks, and the others of its event loop wait for it."""
        loop = asyncio.get_running_loop()
        with self._guard:
            learning = self._learning.get(loop)
            if learning is None:
                self._asked_at = self._monotonic_ms()
                learning = self._learning[loop] = loop.create_task(self._learn())
                learning.add_done_callback(lambda _: self._learning.pop(loop, None))
        await asyncio.shield(learning)

    async def _learn(self) -> None:
        for tried in range(_TRIES):
            place = int(self._clock.new_id()[-4:], 16) % _PLACES
            asked_at = self._monotonic_ms()
            try:
                stamp = await self._bucket.stamp(f"{CLOCK}{place:x}", self._clock.new_id().encode())
            except ProviderError:
                if self._known is None or tried + 1 < _TRIES:
                    raise
                return
            if stamp is not None:
                heard_at = self._monotonic_ms()
                self._add(ServerTime.of(stamp, asked_at, heard_at, drift_ppm=self._bucket.drift_ppm))
                return
        if self._known is None:
            raise ProviderError(f"{self._bucket.place}: the store's clock cannot be read", retryable=True)

    def _add(self, newer: ServerTime) -> None:
        with self._guard:
            if self._known is not None and self._known.contradicts(newer):
                self.steps += 1
            self._known = newer if self._known is None else self._known.joined(newer)

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1_000_000 + 0.5) // 1000
