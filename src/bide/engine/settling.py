"""Settlements in batches: while one batch is on its way to the provider, the next one gathers."""

from __future__ import annotations

import asyncio

from bide.clock import Clock
from bide.core.pacing import FETCH_BACKOFF, about
from bide.errors import ProviderError
from bide.provider import Settled, Settlement, Work


class Settler:
    """Hands settlements to ``provider``, as many as have gathered at a time.

    While the provider cannot be reached a settlement is tried again with back-off; the item's lock may expire
    meanwhile, and then the answer is ``"stale"`` and another worker has the item.
    """

    def __init__(self, provider: Work, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock
        self._waiting: list[tuple[Settlement, asyncio.Future[Settled]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def settle(self, settlement: Settlement) -> Settled:
        """Settle one item. Raises ``ProviderError`` where the provider refuses for good."""
        answer: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._waiting.append((settlement, answer))
        if self._flushing is None:
            self._flushing = asyncio.ensure_future(self._flush())
        return await answer

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._send(batch)
        finally:
            self._flushing = None

    async def _send(self, batch: list[tuple[Settlement, asyncio.Future[Settled]]]) -> None:
        backoff = None
        while True:
            try:
                settled = await self._provider.settle([settlement for settlement, _ in batch])
            except Exception as error:
                if not isinstance(error, ProviderError) or not error.retryable:
                    for _, answer in batch:
                        if not answer.done():
                            answer.set_exception(error)
                    return
                backoff = FETCH_BACKOFF.next(backoff)
                await self._clock.sleep(about(backoff, self._clock.draw()).total_seconds())
                continue
            for (_, answer), each in zip(batch, settled, strict=True):
                if not answer.done():
                    answer.set_result(each)
            return
