"""Waiting until a condition holds: ask, judge, wait.

The probe runs in the caller's own ``asyncio.Task``. A wait that sleeps is that task, one timer and a few hundred
bytes; a probe that answers without having to wait costs no timer at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar, overload

from bide.clock import Clock, present_clock
from bide.core.durations import Duration
from bide.core.judging import Condition
from bide.core.pacing import PollingStrategy
from bide.core.polling import RetryAfter
from bide.core.retrying import RetryRule
from bide.core.waited import AttemptHook, PollResult
from bide.core.waits import WaitSettings, wait_settings
from bide.engine.judging import Judge
from bide.engine.limits import Limit, RanOut
from bide.engine.probing import as_coroutine, asker, still_running

T = TypeVar("T")

ADAPTIVE = PollingStrategy.adaptive()
"""The strategy of whoever names none: 100 ms, twice as long each time, to 5 s."""


@overload
def poll_until(
    probe: Callable[[], Awaitable[T | RetryAfter]],
    condition: Callable[[T], object] | None = None,
    *,
    timeout: Duration | None,
    retry_on: RetryRule,
    strategy: PollingStrategy = ...,
    failed: Callable[[T], object] | None = None,
    attempt_timeout: Duration | None = None,
    times_in_row: int = 1,
    stable_for: Duration | None = None,
    hint_clamp: Duration = "1d",
    on_attempt: AttemptHook | None = None,
    clock: Clock | None = None,
) -> Coroutine[Any, Any, T]: ...


@overload
def poll_until(
    probe: Callable[[], T | RetryAfter],
    condition: Callable[[T], object] | None = None,
    *,
    timeout: Duration | None,
    retry_on: RetryRule,
    strategy: PollingStrategy = ...,
    failed: Callable[[T], object] | None = None,
    attempt_timeout: Duration | None = None,
    times_in_row: int = 1,
    stable_for: Duration | None = None,
    hint_clamp: Duration = "1d",
    on_attempt: AttemptHook | None = None,
    clock: Clock | None = None,
) -> Coroutine[Any, Any, T]: ...


def poll_until(
    probe: Callable[[], Any],
    condition: Condition | None = None,
    *,
    timeout: Duration | None,
    retry_on: RetryRule,
    strategy: PollingStrategy = ADAPTIVE,
    failed: Condition | None = None,
    attempt_timeout: Duration | None = None,
    times_in_row: int = 1,
    stable_for: Duration | None = None,
    hint_clamp: Duration = "1d",
    on_attempt: AttemptHook | None = None,
    clock: Clock | None = None,
) -> Coroutine[Any, Any, Any]:
    """Ask ``probe`` until ``condition`` holds of its answer, and answer that.

    ``probe``: a function without arguments; a plain one is called on a thread of its own. It may answer a
    ``RetryAfter``: not yet, and no sooner than then. ``condition``: a plain function of the answer, whose own
    answer counts as true or not or is a verdict, as that of ``Acceptors`` is; without one, any answer does that
    counts as true. ``failed`` is asked first, and ends the wait where it holds.

    ``timeout``: the whole wait's limit; None is for ever. Probes are cancelled at it and none starts after it.
    ``attempt_timeout``: that of one attempt, which is left to the last one in full. ``retry_on``: the exceptions
    that mean "not yet" (classes, or a function of the exception that answers true, false or a ``RetryAfter``);
    programming errors do only where they are named themselves. ``strategy``: how long to wait between attempts.
    ``times_in_row``, ``stable_for``: how often in a row, and for how long, the condition must hold.
    ``hint_clamp``: the longest delay that hints are believed; 0 ignores them. ``on_attempt`` is called with an
    ``AttemptEnded`` after each attempt.

    Settings are read at the call, which raises ``SettingError`` for those that cannot be; time counts from the
    ``await``. Raises ``WaitTimeout`` when a limit is over, ``WaitFailed`` where it will never hold, what the
    conditions raise, and what the probe raises that is not retried.
    """
    settings = wait_settings(
        timeout=timeout,
        strategy=strategy,
        attempt_timeout=attempt_timeout,
        times_in_row=times_in_row,
        stable_for=stable_for,
        hint_clamp=hint_clamp,
    )
    waiting = _Waiting(
        probe,
        settings=settings,
        condition=condition,
        failed=failed,
        retry_on=retry_on,
        hook=on_attempt,
        clock=clock,
    )
    return waiting.run()


@overload
def poll_result(
    probe: Callable[[], Awaitable[T | RetryAfter]],
    condition: Callable[[T], object] | None = None,
    *,
    timeout: Duration | None,
    retry_on: RetryRule,
    strategy: PollingStrategy = ...,
    failed: Callable[[T], object] | None = None,
    attempt_timeout: Duration | None = None,
    times_in_row: int = 1,
    stable_for: Duration | None = None,
    hint_clamp: Duration = "1d",
    on_attempt: AttemptHook | None = None,
    clock: Clock | None = None,
) -> Coroutine[Any, Any, PollResult[T]]: ...


@overload
def poll_result(
    probe: Callable[[], T | RetryAfter],
    condition: Callable[[T], object] | None = None,
    *,
    timeout: Duration | None,
    retry_on: RetryRule,
    strategy: PollingStrategy = ...,
    failed: Callable[[T], object] | None = None,
    attempt_timeout: Duration | None = None,
    times_in_row: int = 1,
    stable_for: Duration | None = None,
    hint_clamp: Duration = "1d",
    on_attempt: AttemptHook | None = None,
    clock: Clock | None = None,
) -> Coroutine[Any, Any, PollResult[T]]: ...


def poll_result(
    probe: Callable[[], Any],
    condition: Condition | None = None,
    *,
    timeout: Duration | None,
    retry_on: RetryRule,
    strategy: PollingStrategy = ADAPTIVE,
    failed: Condition | None = None,
    attempt_timeout: Duration | None = None,
    times_in_row: int = 1,
    stable_for: Duration | None = None,
    hint_clamp: Duration = "1d",
    on_attempt: AttemptHook | None = None,
    clock: Clock | None = None,
) -> Coroutine[Any, Any, PollResult[Any]]:
    """As :func:`poll_until`, and answer the value together with the attempts and the times that it took."""
    settings = wait_settings(
        timeout=timeout,
        strategy=strategy,
        attempt_timeout=attempt_timeout,
        times_in_row=times_in_row,
        stable_for=stable_for,
        hint_clamp=hint_clamp,
    )
    waiting = _Waiting(
        probe,
        settings=settings,
        condition=condition,
        failed=failed,
        retry_on=retry_on,
        hook=on_attempt,
        clock=clock,
    )
    return waiting.run_to_result()


class _Waiting(Judge[Clock]):
    """One wait of one ``asyncio.Task``."""

    __slots__ = ("_ask", "_limit")

    def __init__(
        self,
        probe: Callable[[], Any],
        *,
        settings: WaitSettings,
        condition: Condition | None,
        failed: Condition | None,
        retry_on: RetryRule,
        hook: AttemptHook | None,
        clock: Clock | None,
    ) -> None:
        waits_by = clock or present_clock()
        super().__init__(settings, waits_by, probe, retry_on, condition=condition, failed=failed, hook=hook)
        self._ask = asker(probe)
        self._limit: Limit | None = None

    async def run(self) -> Any:
        """Go on until the condition holds; the value of which it does."""
        clock, wait = self.clock, self.wait
        wait.start(clock.monotonic())
        try:
            while True:
                began = clock.monotonic()
                if wait.is_late(began):
                    raise self.timeout(began, still_running=still_running(self._ask)) from wait.error
                try:
                    value = await self._asked(began)
                except RanOut:
                    running = still_running(self._ask)
                    delay = self.ran_out(began, clock.monotonic(), still_running=running)
                except Exception as error:
                    next_in = self.raised(error, began, clock.monotonic())
                    if next_in is None:
                        raise
                    delay = next_in
                else:
                    next_in = self.answered(value, began, clock.monotonic())
                    if next_in is None:
                        return wait.last
                    delay = next_in
                await clock.sleep(delay)
        finally:
            wait.error = None  # its traceback leads here, and would keep all of it in a circle
            if self._limit is not None:
                self._limit.close()

    async def run_to_result(self) -> PollResult[Any]:
        """As :meth:`run`, with what it took."""
        return self.result(await self.run())

    @coroutine
    def _asked(self, began: float) -> Generator[Any, Any, Any]:
        """The answer of one attempt, which is cancelled at its limit.

        The probe is driven by hand, as ``await`` would: so it is known whether it has to wait at all.
        """
        ends_at = self.wait.begin(began)
        probe = as_coroutine(self._ask())
        try:
            waits_for = probe.send(None)
        except StopIteration as done:
            return done.value
        limit = self._limit
        if limit is None:
            limit = self._limit = Limit(self.clock)
        limit.begin(ends_at)
        try:
            while True:
                try:
                    yield waits_for
                except BaseException as error:
                    waits_for = probe.throw(error)
                else:
                    return (yield from probe)
        except StopIteration as done:  # it answered although something was thrown into it
            return done.value
        except asyncio.CancelledError as error:
            if limit.is_what_cancelled():
                raise RanOut from error
            raise
        finally:
            limit.end()
