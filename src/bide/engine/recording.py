"""Recording what polls answered: while one batch is on its way to the provider, the next one gathers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from bide.clock import Clock
from bide.core.pacing import FETCH_BACKOFF, about
from bide.errors import ProviderError
from bide.provider import Answered, Claim, NotModified, Polls, Recorded

RECORD_TRIES = 6
"""Times that recording is tried while the provider is away. A claim not recorded comes round by itself."""

Answer = tuple[Claim, Answered | NotModified]
Told = Callable[[Recorded | Exception], None]

_T = TypeVar("_T")


class AnswerRecorder:
    """Hands answers to ``provider``, as many as have gathered at a time, and tells what came of each."""

    def __init__(self, provider: Polls, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock
        self._waiting: list[tuple[Answer, Told]] = []
        self._flushing: asyncio.Task[None] | None = None

    def record(self, claim: Claim, answer: Answered | NotModified, told: Told) -> None:
        """Record ``answer``; ``told`` is called with what came of it, or with the error that lasted."""
        self._waiting.append(((claim, answer), told))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.ensure_future(self._flush())

    def cancel(self) -> None:
        """Record nothing more; the claims come round by themselves."""
        self._waiting.clear()
        if self._flushing is not None:
            self._flushing.cancel()

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            answers = [answer for answer, _ in batch]
            for (_, told), outcome in zip(batch, await self._record(answers), strict=True):
                told(outcome)

    async def _record(self, answers: Sequence[Answer]) -> Sequence[Recorded | Exception]:
        """What came of ``answers``. One that the provider refuses for good is found by giving them one by one."""
        backoff = None
        for again in range(RECORD_TRIES):
            try:
                return await self._provider.record_answers(answers)
            except Exception as error:
                passes = isinstance(error, ProviderError) and error.retryable
                if not passes and len(answers) > 1:
                    return [outcome for answer in answers for outcome in await self._record([answer])]
                if not passes or again == RECORD_TRIES - 1:
                    return [error] * len(answers)
            backoff = FETCH_BACKOFF.next(backoff)
            await self._clock.sleep(about(backoff, self._clock.draw()).total_seconds())
        raise AssertionError("unreachable")
