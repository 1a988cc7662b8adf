"""Waits with an end, by the injected clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from bide.clock import Clock, is_cancelled
from bide.errors import ProviderError

T = TypeVar("T")

CANCEL_LIMIT_S = 5.0
"""Seconds that what was cancelled may take to end; what swallows its cancellation is left behind."""


async def ends_within(clock: Clock, seconds: float, *futures: asyncio.Future[Any]) -> bool:
    """Wait until one of ``futures`` is done, for up to ``seconds``; whether one is. None of them is cancelled."""
    if any(future.done() for future in futures):
        return True
    limit = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({*futures, limit}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        limit.cancel()
    return any(future.done() for future in futures)


async def end(task: asyncio.Future[Any], clock: Clock, seconds: float) -> None:
    """Cancel ``task`` and wait for its end; one that swallows its cancellation is left behind after ``seconds``."""
    task.cancel()
    await ends_within(clock, seconds, task)


async def answer_of(asked: Coroutine[Any, Any, T]) -> T:
    """What a provider was ``asked``. That it was cancelled by nobody here is an error that will pass.

    Otherwise it would end the loop that asked, and nobody would be told. Raises ``ProviderError``.
    """
    try:
        return await asked
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise ProviderError("the call was cancelled within the provider", retryable=True) from error
