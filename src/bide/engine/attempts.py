"""The loop first: ``async for attempt in attempts(...)``, for those who would rather see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from types import TracebackType
from typing import Any

from bide.clock import Clock, present_clock
from bide.core.durations import Duration, parse_duration
from bide.core.pacing import PollingStrategy
from bide.core.retrying import RetryRule
from bide.core.waited import AttemptHook
from bide.core.waits import wait_settings
from bide.engine.judging import Judge
from bide.engine.limits import Limit
from bide.engine.until import ADAPTIVE


def attempts(
    *,
    timeout: Duration | None,
    retry_on: RetryRule,
    strategy: PollingStrategy = ADAPTIVE,
    attempt_timeout: Duration | None = None,
    hint_clamp: Duration = "1d",
    on_attempt: AttemptHook | None = None,
    name: str = "the loop",
    clock: Clock | None = None,
) -> Attempts:
    """Attempts of a loop of the caller's own, which goes on until it is left::

        async for attempt in attempts(timeout="10m", retry_on=ConnectionError):
            with attempt:
                job = await api.job(7)
                if job.state == "done":
                    break

    A block that is not left is "not yet": the next attempt comes by the ``strategy``, or no sooner than
    ``attempt.not_yet(after)`` asked for. What the block raises is retried by ``retry_on`` or raised. The block is
    cancelled at the deadline, and after ``attempt_timeout``. Settings are those of ``poll_until``; ``name`` is what
    errors and hooks call the loop. Raises ``WaitTimeout`` when no other attempt may follow.
    """
    settings = wait_settings(
        timeout=timeout, strategy=strategy, attempt_timeout=attempt_timeout, hint_clamp=hint_clamp
    )
    return Attempts(Judge(settings, clock or present_clock(), name, retry_on, hook=on_attempt))


class Attempts(AsyncIterator["Attempt"]):
    """What :func:`attempts` answers. For one loop of one ``asyncio.Task``; time counts from its first attempt."""

    def __init__(self, judge: Judge[Clock]) -> None:
        self._judge = judge
        self._limit = Limit(judge.clock)
        self._present: Attempt | None = None

    def __aiter__(self) -> Attempts:
        return self

    async def __anext__(self) -> Attempt:
        judge, clock = self._judge, self._judge.clock
        if self._present is None:
            judge.wait.start(clock.monotonic())
        else:
            await clock.sleep(self._present.settle())
        self._present = begun(judge, self._limit)
        return self._present


def begun(judge: Judge[Any], limit: Limit | None) -> Attempt:
    """The next attempt of a loop, which begins now. Raises ``WaitTimeout`` where it is too late for one."""
    began = judge.clock.monotonic()
    if judge.wait.is_late(began):
        raise judge.timeout(began) from judge.wait.error
    return Attempt(judge, limit, began, judge.wait.begin(began))


class Attempt:
    """One attempt of a loop: a block to put the asking in. ``number`` counts from 1.

    Without a ``limit``, as in synchronous code, nothing ends the block before its time.
    """

    def __init__(self, judge: Judge[Any], limit: Limit | None, began: float, ends_at: float) -> None:
        self.number = judge.wait.attempts
        self._judge = judge
        self._limit = limit
        self._began = began
        self._ends_at = ends_at
        self._hint: timedelta | None = None
        self._is_over = False
        self._delay: float | None = None

    def not_yet(self, after: Duration | None = None, *, last: Any = None) -> None:
        """Say that the next attempt shall come no sooner than ``after``, and what was seen, for the error's text."""
        self._hint = None if after is None else parse_duration(after, "after", zero=True)
        if last is not None:
            self._judge.wait.last = last

    def settle(self) -> float:
        """Seconds until the next attempt, for the loop. Raises ``WaitTimeout`` where none may follow."""
        if not self._is_over:  # an attempt without its block
            self._end()
        if self._delay is None:
            raise self._judge.timeout(self._judge.clock.monotonic())
        return self._delay

    def __enter__(self) -> Attempt:
        if self._limit is not None:
            self._limit.begin(self._ends_at)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        limit, ran_out = self._limit, False
        if limit is not None:
            ran_out = isinstance(error, asyncio.CancelledError) and limit.is_what_cancelled()
            limit.end()
            limit.close()
        if error is None:
            self._end()
            return False
        if ran_out:
            self._delay = self._judge.ran_out(self._began, self._judge.clock.monotonic())
        elif isinstance(error, Exception):
            self._delay = self._judge.raised(error, self._began, self._judge.clock.monotonic())
        self._is_over = True
        return self._delay is not None

    def _end(self) -> None:
        self._is_over = True
        self._delay = self._judge.ended(self._began, self._judge.clock.monotonic(), self._hint)
