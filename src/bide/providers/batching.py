"""Calls that go together: whoever asks while the last ones are on their way shares the next transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from bide.errors import ProviderError

LINGER_S = 0.01
"""Seconds that calls without haste wait for others to share a transaction with."""

MOST_CALLS = 500
"""Calls that are made together, so that one transaction stays short."""

_A = TypeVar("_A")
_R = TypeVar("_R")


class Batch(Generic[_A, _R]):
    """Arguments for one function that takes many and answers as many; an answer may be an error to raise.

    For one event loop.
    """

    def __init__(
        self,
        call: Callable[[list[_A]], Awaitable[Sequence[_R | Exception]]],
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._call = call
        self._start = start
        self._waiting: list[tuple[_A, asyncio.Future[_R]]] = []
        self._flying = False
        self._lingering: asyncio.TimerHandle | None = None

    def submit(self, argument: _A, *, haste: bool) -> asyncio.Future[_R]:
        """The future answer for ``argument``."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_R] = loop.create_future()
        self._waiting.append((argument, future))
        if haste:
            self._take_off()
        elif self._lingering is None and not self._flying:
            self._lingering = loop.call_later(LINGER_S, self._take_off)
        return future

    def _take_off(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if not self._flying:
            self._flying = True
            self._start(self._fly())

    async def _fly(self) -> None:
        """Make calls until nobody waits."""
        try:
            while self._waiting:
                taken, self._waiting = self._waiting[:MOST_CALLS], self._waiting[MOST_CALLS:]
                await self._make(taken)
        finally:
            self._flying = False

    async def _make(self, taken: list[tuple[_A, asyncio.Future[_R]]]) -> None:
        """Make one call for all of ``taken``; where it cannot be had, one for each, so that one harms no other."""
        try:
            answers: Sequence[Any] = await self._call([argument for argument, _ in taken])
        except ProviderError as error:
            if len(taken) > 1 and not error.retryable:
                for one in taken:
                    await self._make([one])
                return
            answers = [error] * len(taken)
        except BaseException as error:
            _tell(taken, [error] * len(taken))
            raise
        _tell(taken, answers)


def _tell(taken: list[tuple[Any, asyncio.Future[Any]]], answers: Sequence[Any]) -> None:
    for (_, future), answer in zip(taken, answers, strict=True):
        if future.done():
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
