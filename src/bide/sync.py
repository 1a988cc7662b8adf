"""Waiting from synchronous code: ``poll_until`` and ``attempts`` as in ``bide``, without an event loop.

Pauses wait on a ``threading.Event``, so that another thread can end them: give it as ``stopping``.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar, overload

from bide.clock import BlockingClock, present_clock
from bide.core.durations import Duration
from bide.core.judging import Condition
from bide.core.pacing import PollingStrategy
from bide.core.polling import RetryAfter
from bide.core.retrying import RetryRule
from bide.core.waited import AttemptHook, PollResult
from bide.core.waits import wait_settings
from bide.engine.attempts import Attempt, begun
from bide.engine.judging import Judge
from bide.engine.limits import RanOut
from bide.engine.probing import check_probe
from bide.engine.until import ADAPTIVE
from bide.errors import WaitStopped

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


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
    stopping: threading.Event | None = None,
    same_thread: bool = False,
    clock: BlockingClock | None = None,
) -> T: ...


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
    stopping: threading.Event | None = None,
    same_thread: bool = False,
    clock: BlockingClock | None = None,
) -> T: ...


def poll_until(probe: Callable[[], Any], condition: Condition | None = None, **options: Any) -> Any:
    """As ``bide.poll_until``, with its options, for code without an event loop.

    A plain probe is called on a thread that is kept for the whole wait, so that one which blocks is left behind at
    its limit; ``same_thread=True`` calls it in the caller's, where nothing can end it before its time (without any
    limit it is called there anyway). An async probe runs in an event loop of the wait's own. ``stopping`` ends the
    wait between two attempts.

    Raises what ``bide.poll_until`` raises, and ``WaitStopped``.
    """
    return poll_result(probe, condition, **options).value


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
    stopping: threading.Event | None = None,
    same_thread: bool = False,
    clock: BlockingClock | None = None,
) -> PollResult[Any]:
    """As :func:`poll_until`, and answer the value together with the attempts and the times that it took."""
    settings = wait_settings(
        timeout=timeout,
        strategy=strategy,
        attempt_timeout=attempt_timeout,
        times_in_row=times_in_row,
        stable_for=stable_for,
        hint_clamp=hint_clamp,
    )
    check_probe(probe)
    waits_by = clock or present_clock()
    judge = Judge(settings, waits_by, probe, retry_on, condition=condition, failed=failed, hook=on_attempt)
    asker = _Asker(probe, waits_by, same_thread)
    try:
        return _run(judge, asker, stopping or threading.Event())
    finally:
        judge.wait.error = None  # its traceback leads here, and would keep all of it in a circle
        asker.close()


def attempts(
    *,
    timeout: Duration | None,
    retry_on: RetryRule,
    strategy: PollingStrategy = ADAPTIVE,
    attempt_timeout: Duration | None = None,
    hint_clamp: Duration = "1d",
    on_attempt: AttemptHook | None = None,
    name: str = "the loop",
    stopping: threading.Event | None = None,
    clock: BlockingClock | None = None,
) -> Iterator[Attempt]:
    """As ``bide.attempts``, for a plain loop: ``for attempt in attempts(...): with attempt: ...``.

    No block is ended before its time, since nothing can do that; but none begins after the deadline, or later than
    ``attempt_timeout`` before it. ``stopping`` ends the loop between two attempts, with ``WaitStopped``.
    """
    settings = wait_settings(
        timeout=timeout, strategy=strategy, attempt_timeout=attempt_timeout, hint_clamp=hint_clamp
    )
    judge = Judge(settings, clock or present_clock(), name, retry_on, hook=on_attempt)
    return _attempts(judge, stopping or threading.Event())


def _attempts(judge: Judge[BlockingClock], stopping: threading.Event) -> Iterator[Attempt]:
    judge.wait.start(judge.clock.monotonic())
    while not stopping.is_set():
        attempt = begun(judge, None)
        yield attempt
        judge.clock.pause(attempt.settle(), stopping)
    raise WaitStopped(judge.name, last=judge.wait.last, attempts=judge.wait.attempts)


def _run(judge: Judge[BlockingClock], asker: _Asker, stopping: threading.Event) -> PollResult[Any]:
    clock, wait = judge.clock, judge.wait
    while not stopping.is_set():
        began = clock.monotonic()
        if wait.is_late(began):
            raise judge.timeout(began, still_running=asker.still_running) from wait.error
        try:
            value = asker.ask(wait.begin(began))
        except RanOut:
            delay = judge.ran_out(began, clock.monotonic(), still_running=asker.still_running)
        except Exception as error:
            next_in = judge.raised(error, began, clock.monotonic())
            if next_in is None:
                raise
            delay = next_in
        else:
            next_in = judge.answered(value, began, clock.monotonic())
            if next_in is None:
                return judge.result(wait.last)
            delay = next_in
        clock.pause(delay, stopping)
    raise WaitStopped(judge.name, last=wait.last, attempts=wait.attempts)


_IN_A_LOOP = (
    "an async probe needs an event loop of the wait's own, and one runs here: await bide.poll_until instead"
)


class _Asker:
    """Asks a probe of either kind, for no longer than it may take."""

    def __init__(self, probe: Callable[[], Any], clock: BlockingClock, same_thread: bool) -> None:
        self._probe = probe
        self._clock = clock
        self._inline = same_thread or inspect.iscoroutinefunction(probe)
        self._call: _Call | None = None
        self._calls: SimpleQueue[_Call | None] | None = None
        self._runner: asyncio.Runner | None = None

    @property
    def still_running(self) -> bool:
        """Whether a call goes on that was given up."""
        return self._call is not None and not self._call.done.is_set()

    def ask(self, ends_at: float) -> Any:
        """The answer; raises ``RanOut`` where there is none at ``ends_at``, and what the probe raises."""
        no_limit = self._call is None and ends_at == math.inf
        answer = self._probe() if self._inline or no_limit else self._on_thread(ends_at)
        if inspect.isawaitable(answer):
            self._inline = True
            return self._awaited(answer, ends_at)
        return answer

    def close(self) -> None:
        """No other attempt follows."""
        if self._calls is not None:
            self._calls.put(None)
        if self._runner is not None:
            self._runner.close()

    def _on_thread(self, ends_at: float) -> Any:
        if self._call is None:  # else the call that took too long is still the one to wait for
            if self._calls is None:
                self._calls = SimpleQueue()
                name = f"bide-{getattr(self._probe, '__name__', 'probe')}"
                threading.Thread(target=_work, args=(self._calls,), name=name, daemon=True).start()
            self._call = _Call(self._probe)
            self._calls.put(self._call)
        if not self._clock.expect(self._call.done, ends_at - self._clock.monotonic()):
            raise RanOut
        call, self._call = self._call, None
        return call.result()

    def _awaited(self, answer: Awaitable[Any], ends_at: float) -> Any:
        import asyncio

        async def within() -> Any:
            try:
                async with asyncio.timeout(seconds) as limit:
                    return await answer
            except TimeoutError:
                if limit.expired():
                    raise RanOut from None
                raise

        seconds = None if ends_at == math.inf else max(ends_at - self._clock.monotonic(), 0.0)
        if self._runner is None:
            self._runner = asyncio.Runner()
        coroutine = within()
        try:
            return self._runner.run(coroutine)
        except RuntimeError as error:
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                if inspect.iscoroutine(answer):
                    answer.close()
                raise RuntimeError(_IN_A_LOOP) from error
            raise
        finally:
            coroutine.close()  # where it was not begun, since another event loop runs in this thread


class _Call:
    """One call of a probe on the thread of its wait."""

    def __init__(self, probe: Callable[[], Any]) -> None:
        self.done = threading.Event()
        self._probe = probe
        self._context = copy_context()
        self._answer: Any = None
        self._error: BaseException | None = None

    def make(self) -> None:
        """Call the probe and keep what comes of it."""
        try:
            self._answer = self._context.run(self._probe)
        except BaseException as error:  # of whatever kind: its caller is on another thread
            self._error = error
        self.done.set()

    def result(self) -> Any:
        """What the probe answered, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._answer


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        call.make()
