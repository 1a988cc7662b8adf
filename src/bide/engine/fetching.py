"""One fetch at a time: one that can be woken or cancelled, and leaves nothing locked behind when it fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from bide.clock import Clock
from bide.engine.stopping import HURRIED_S, Haste
from bide.engine.waiting import CANCEL_LIMIT_S, answer_of
from bide.errors import ProviderError
from bide.provider import Fetched, Limit, Work


class Fetcher:
    """Fetches from ``queues`` of ``provider`` under the fleet's ``limits``."""

    def __init__(
        self,
        provider: Work,
        queues: Collection[str],
        limits: Mapping[str, Limit],
        clock: Clock,
        haste: Haste,
    ) -> None:
        self._provider = provider
        self._queues = tuple(queues)
        self._limits = dict(limits) or None
        self._clock = clock
        self._haste = haste
        self._unreleased: list[str] = []
        """Tokens of fetches that ended without an answer: what they took is still locked."""
        self._fetching = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._waking: asyncio.Task[None] | None = None

    async def fetch(
        self, names: Mapping[str, int], limit: int, *, lock_timeout: timedelta, poll_timeout: timedelta
    ) -> Fetched:
        """Up to ``limit`` items, and of each of ``names`` no more than it says. Raises ``ProviderError``."""
        self._loop = asyncio.get_running_loop()
        self._woken.clear()
        await self._release()
        if self._woken.is_set():  # meanwhile: ``names`` may not be all that is wanted any more
            poll_timeout = timedelta()
        fetch_token = self._clock.new_id()
        fetching = asyncio.ensure_future(
            answer_of(
                self._provider.fetch_work_items(
                    self._queues,
                    list(names),
                    limit=limit,
                    lock_timeout=lock_timeout,
                    poll_timeout=poll_timeout,
                    fetch_token=fetch_token,
                    most={name: most for name, most in names.items() if most < limit} or None,
                    limits=self._limits,
                )
            )
        )
        self._fetching = True
        try:
            await asyncio.wait({fetching})
            return fetching.result()
        except BaseException:
            self._unreleased.append(fetch_token)
            raise
        finally:
            self._fetching = False
            if not fetching.done():
                await self._haste.end(fetching, CANCEL_LIMIT_S)

    def wake(self) -> None:
        """There may be something to fetch: end the present wait, in the provider or here. From any event loop."""
        if self._loop is None or self._loop is asyncio.get_running_loop():
            self._wake()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._woken.set()
        if self._fetching and (self._waking is None or self._waking.done()):
            self._waking = asyncio.ensure_future(self._wake_provider())

    async def wait_for_wake(self) -> None:
        """Until :meth:`wake` was called since the last fetch began."""
        await self._woken.wait()

    async def close(self, fetching: asyncio.Future[Any] | None = None) -> None:
        """End ``fetching``, which fetches here, and give back what fetches that failed had taken.

        Both within :data:`CANCEL_LIMIT_S` or little more: a store in which no fetch ends hardly answers the rest.
        """
        until = self._clock.monotonic() + CANCEL_LIMIT_S
        if (
            fetching is not None
        ):  # one that swallows its cancellation is given up within it, at the first limit
            await self._haste.end(fetching, 2 * CANCEL_LIMIT_S, hurried_s=2 * HURRIED_S)
        left_s = max(until - self._clock.monotonic(), HURRIED_S)
        with contextlib.suppress(ProviderError):
            await self._haste.run_within(left_s, self._release())

    async def _release(self) -> None:
        while self._unreleased:
            try:
                await answer_of(self._provider.release(self._unreleased[-1]))
            except ProviderError as error:
                if error.retryable:
                    raise
            self._unreleased.pop()

    async def _wake_provider(self) -> None:
        with contextlib.suppress(ProviderError):  # the fetch that it should wake fails as well
            await self._provider.wake()
