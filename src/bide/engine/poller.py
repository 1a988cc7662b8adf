"""The polling machine under way: a request at a time, waits between them, and what they say as an iterator."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, TypeVar, assert_never, overload

from bide.clock import Clock, present_clock
from bide.core.durations import Duration, parse_duration
from bide.core.polling import (
    CancelWait,
    Input,
    Machine,
    PollingDecision,
    PollingSettings,
    PollingState,
    PollOne,
    QuitPolling,
    Request,
    Result,
    RetryAfter,
    Start,
    Stop,
    Wait,
    WaitOver,
    step,
)
from bide.engine.probing import as_coroutine, asker, forget, name_of

M = TypeVar("M")

MOST_WAITING = 100
"""Messages that wait to be taken; with as many, the next request waits too."""


_REQUEST_IS_OUT = (PollingState.Polling, PollingState.QuittingPolling)


class Poller(AsyncIterator[M], Generic[M]):
    """Polls while its block runs, and is an iterator of what came::

        async with Poller(api.job, decide) as messages:
            async for message in messages:
                ...

    ``request``: an async function without arguments, or a plain one, which is called on a thread of its own.
    ``decide`` sees what each request answered, or the exception that it raised, and says what that means:
    ``PollOne()`` (again now), ``RetryAfter()`` (later, ever more so), ``RetryAfter(30)`` or ``QuitPolling()``.
    ``create_message`` makes of the same what the iterator yields; without it that is the answer or exception itself.

    Polling begins with the block. :meth:`stop` lets the request that is out finish, and its message is still
    yielded; :meth:`stop_now` cancels it. The iterator ends when nothing is out and everything was taken; after
    another :meth:`start` it can be used again. At most one request is out at any time. What ``decide`` or
    ``create_message`` raise ends the polling and is raised by the iterator.

    ``min_retry_after`` (10 s), ``max_retry_after`` (160 s), ``back_off_rate`` (2): the waits of ``RetryAfter()``.
    ``min_cycle`` (100 ms): the least time from one request to the next. Raises ``SettingError`` for what these
    cannot be. For one event loop.
    """

    @overload
    def __init__(
        self: Poller[Any],
        request: Callable[[], Any],
        decide: Callable[[Any], PollingDecision],
        create_message: None = None,
        *,
        min_retry_after: Duration = "10s",
        max_retry_after: Duration = "160s",
        back_off_rate: float = 2.0,
        min_cycle: Duration = "100ms",
        clock: Clock | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        request: Callable[[], Any],
        decide: Callable[[Any], PollingDecision],
        create_message: Callable[[Any], M],
        *,
        min_retry_after: Duration = "10s",
        max_retry_after: Duration = "160s",
        back_off_rate: float = 2.0,
        min_cycle: Duration = "100ms",
        clock: Clock | None = None,
    ) -> None: ...

    def __init__(
        self,
        request: Callable[[], Any],
        decide: Callable[[Any], PollingDecision],
        create_message: Callable[[Any], M] | None = None,
        *,
        min_retry_after: Duration = "10s",
        max_retry_after: Duration = "160s",
        back_off_rate: float = 2.0,
        min_cycle: Duration = "100ms",
        clock: Clock | None = None,
    ) -> None:
        self._settings = PollingSettings(
            parse_duration(min_retry_after, "min_retry_after"),
            parse_duration(max_retry_after, "max_retry_after"),
            back_off_rate,
            parse_duration(min_cycle, "min_cycle"),
        )
        self._request = request
        self._ask = asker(request)
        self._decide = decide
        self._create_message = create_message
        self._clock = clock or present_clock()
        self._machine = Machine()
        self._messages: deque[M] = deque()
        self._error: BaseException | None = None
        self._out: asyncio.Task[None] | None = None
        self._wait: asyncio.Task[None] | None = None
        self._held: int | None = None
        self._changed = asyncio.Event()
        self._is_open = False

    @property
    def state(self) -> PollingState:
        """Where the polling is, for whoever shows it."""
        return self._machine.state

    # --- what others ask for ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin polling, or end the present wait and ask now. Ignored while a request is out.

        Raises ``RuntimeError`` outside of the block.
        """
        if not self._is_open:
            raise RuntimeError("a Poller polls inside of its block: async with Poller(...) as messages")
        self._feed(Start())

    def stop(self) -> None:
        """Stop once nothing is out: at once, or when the present request has been answered."""
        self._feed(Stop())
        if self._held is not None:  # a request that was not made yet
            self._quit(self._held)

    def stop_now(self) -> None:
        """Stop at once; a request that is out is cancelled, and yields no message."""
        self._feed(Stop())
        if self._machine.state is PollingState.QuittingPolling:
            if self._out is not None:
                self._out.cancel()
            forget(self._ask)
            self._quit(self._machine.generation)

    async def __aenter__(self) -> Poller[M]:
        if self._is_open:
            raise RuntimeError("this Poller is in use; make another one")
        self._is_open = True
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        self.stop_now()
        self._messages.clear()
        left = [each for each in (self._out, self._wait) if each is not None]
        if left:
            await asyncio.wait(left)

    # --- what came -------------------------------------------------------------------------------------------

    def __aiter__(self) -> Poller[M]:
        return self

    async def __anext__(self) -> M:
        while not self._messages:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._machine.state is PollingState.NotPolling:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        message = self._messages.popleft()
        if self._held is not None:
            held, self._held = self._held, None
            self._send(held)
        return message

    # --- carrying out what the machine decides -----------------------------------------------------------------

    def _feed(self, happened: Input) -> None:
        self._machine, effects = step(self._machine, happened, self._settings)
        for effect in effects:
            match effect:
                case Request(generation):
                    if len(self._messages) >= MOST_WAITING:
                        self._held = generation
                    else:
                        self._send(generation)
                case Wait(generation, delay):
                    self._wait = asyncio.ensure_future(self._wait_out(generation, delay))
                case CancelWait():
                    if self._wait is not None:
                        self._wait.cancel()
                case _ as unreachable:
                    assert_never(unreachable)
        self._changed.set()

    async def _wait_out(self, generation: int, delay: timedelta) -> None:
        try:
            await self._clock.sleep(delay.total_seconds())
        except Exception as error:  # of a clock that lets nobody wait any more
            self._error = error
            self._feed(Stop())
        self._feed(WaitOver(generation))

    def _quit(self, generation: int) -> None:
        self._held = None
        self._feed(Result(generation, QuitPolling(), timedelta()))

    def _send(self, generation: int) -> None:
        self._out = asyncio.ensure_future(self._answer(generation, self._out))

    async def _answer(self, generation: int, before: asyncio.Task[None] | None) -> None:
        """Make the request, and feed the machine with what it means."""
        try:
            if before is not None:
                await _over(before)  # where it was cancelled by stop_now, it need not be at its end
            began = self._clock.monotonic()
            try:
                outcome = await as_coroutine(self._ask())
            except Exception as error:
                outcome = error
            if not self._is_out(generation):
                return  # it came too late: polling was stopped at once
            elapsed = timedelta(seconds=self._clock.monotonic() - began)
            decision = self._decided(outcome)
            self._messages.append(outcome if self._create_message is None else self._create_message(outcome))
        except BaseException as error:
            if self._is_out(generation):
                self._error = self._told(error)
                self._quit(generation)
            if isinstance(error, Exception):
                return
            raise
        self._feed(Result(generation, decision, elapsed))

    def _is_out(self, generation: int) -> bool:
        """Whether the request of ``generation`` is what the machine waits for."""
        machine = self._machine
        return generation == machine.generation and machine.state in _REQUEST_IS_OUT

    def _decided(self, outcome: Any) -> PollingDecision:
        decision = self._decide(outcome)
        if isinstance(decision, PollOne | RetryAfter | QuitPolling):
            return decision
        raise TypeError(
            f"{name_of(self._decide)} answered {decision!r:.100}, which is no decision; "
            "answer PollOne(), RetryAfter() or QuitPolling()"
        )

    def _told(self, error: BaseException) -> BaseException:
        """What the iterator raises for ``error``: a request cancelled by others is no cancellation of its user."""
        if isinstance(error, asyncio.CancelledError):
            return RuntimeError(f"{name_of(self._request)} was cancelled from elsewhere")
        return error


async def _over(before: asyncio.Task[None]) -> None:
    """Wait for the end of ``before``, also where the present task is cancelled: it is raised after that."""
    cancelled: asyncio.CancelledError | None = None
    while not before.done():
        try:
            await asyncio.wait({before})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
