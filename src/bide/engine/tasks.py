"""Tasks: the handler of work items that call a function.

The way of an item whose function is async, without a timeout and without hooks, is short: its arguments are read, the
function is awaited, and its outcome told. Everything else is done only for tasks that ask for it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from bide.clock import Clock, is_cancelled
from bide.core.context import Context, Discard, GiveBack, Retry
from bide.core.durations import format_duration, to_ms
from bide.core.work import TaskDeclaration
from bide.engine.functions import FunctionCalls, told_of
from bide.engine.outcome import CALLED_OFF, Dead, GivenBack, Outcome, Retried, Succeeded
from bide.engine.waiting import end, ends_within
from bide.errors import ArgumentError, ResultError
from bide.provider import WorkItem

THREAD_LIMIT_S = 1.0
"""Seconds that a plain function has to see that its attempt is cancelled."""

END_LIMIT_S = 3.0
"""Seconds that an async function may take to end once its attempt's timeout is over."""

THREADS_RETRY = timedelta(seconds=1)
"""An item whose task has too many threads of given up attempts is due again so much later."""

GOES_ON = "its thread goes on, and what it returns is discarded"
DONE = Succeeded()


class TaskHandler:
    """Calls the functions of the tasks that this process declares.

    ``places`` is how many items are handled at a time; ``lock_timeout`` that of tasks which do not say. ``before``
    and ``after`` are the hooks of the app.
    """

    def __init__(
        self,
        tasks: Mapping[str, TaskDeclaration],
        *,
        clock: Clock,
        places: int = 20,
        lock_timeout: timedelta = timedelta(seconds=30),
        before: Sequence[Callable[..., Any]] = (),
        after: Sequence[Callable[..., Any]] = (),
        hide: Callable[[str], str] = str,
    ) -> None:
        self._runs = {name: _Run(task, places, lock_timeout) for name, task in tasks.items()}
        self._clock = clock
        self._before = tuple(before)
        self._after = tuple(after)
        self._hooked = bool(before or after)
        self._hide = hide

    async def handle(self, item: WorkItem) -> Outcome:
        """One attempt. Arguments that do not fit cost an attempt each; what is no JSON is dead at once."""
        run = self._runs[item.name]
        if item.unreadable is not None:
            return Dead(f"the stored arguments of item {item.id} cannot be read: {item.unreadable}")
        try:
            arguments = run.decode(item.payload)
        except ArgumentError as error:
            reason = self._hide(f"item {item.id}: {error}")
            return Dead(reason) if error.damaged else self._retried(run, item, reason)
        except Exception as error:  # of a validator of the user's
            return self._retried(run, item, self._hide(told_of(error)))
        if self._hooked:
            return await self._with_hooks(run, item, arguments)
        context = self._context(run, item) if run.needs_context else None
        return await self._outcome(run, item, arguments, context)

    async def _outcome(
        self, run: _Run, item: WorkItem, arguments: dict[str, Any], context: Context | None
    ) -> Outcome:
        if run.context_name is not None:
            arguments[run.context_name] = context
        try:
            if run.is_short:
                result = await run.function(**arguments)
            else:
                result = await self._call(run, arguments, context or self._context(run, item))
        except _NoEnd as error:
            return self._retried(run, item, str(error))
        except _Stopped as stopped:
            return stopped.outcome
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            return self._failed(run, item, error, context)
        if not item.keeps_result:
            return DONE
        try:
            return Succeeded(run.results.encode(result))
        except ResultError as error:
            return Dead(self._hide(str(error)))

    def _failed(self, run: _Run, item: WorkItem, error: BaseException, context: Context | None) -> Outcome:
        match error:
            case Retry(after=after, reason=reason):
                return self._retried(run, item, self._hide(reason or "asked to be tried again"), after)
            case GiveBack(after=after, reason=reason) if item.given_back < run.task.max_give_backs:
                return GivenBack(self._hide(reason or "given back"), after)
            case GiveBack(reason=reason):
                why = f": {reason}" if reason else ""
                return Dead(self._hide(f"given back more than {item.given_back} times{why}"))
            case Discard(reason=reason):
                return Dead(self._hide(reason))
            case asyncio.CancelledError() if is_cancelled():
                if context is not None:
                    context.cancelled = True
                raise error  # we did: a stop, or a lost lock
        return self._retried(run, item, self._hide(told_of(error)))

    def _retried(self, run: _Run, item: WorkItem, reason: str, after: timedelta | None = None) -> Retried:
        delay = run.task.retry.delay(item.attempt, self._clock.draw()) if after is None else after
        return Retried(reason, delay)

    def _context(self, run: _Run, item: WorkItem) -> Context:
        deadline = item.expires_at
        if run.timeout_ms is not None:
            ends = self._clock.utc_ms() + run.timeout_ms
            deadline = ends if deadline is None else min(deadline, ends)
        return Context(
            item.id, item.name, item.queue, item.attempt, item.max_attempts, item.enqueued_at, deadline
        )

    # --- what only some tasks need ---------------------------------------------------------------------------

    async def _call(self, run: _Run, arguments: dict[str, Any], context: Context) -> Any:
        if run.is_async:
            calling = run.function(**arguments)
        elif run.calls.lingering >= run.most_lingering:
            reason = "threads of its attempts that were given up are still running"
            raise _Stopped(GivenBack(reason, THREADS_RETRY))
        else:
            calling = self._on_thread(run, arguments, context)
        limit = run.task.timeout
        return await (calling if limit is None else self._within(limit, calling, context))

    async def _on_thread(self, run: _Run, arguments: dict[str, Any], context: Context) -> Any:
        answer = run.calls.start(run.function, **arguments)
        try:
            await asyncio.wait({answer})
        except asyncio.CancelledError:
            context.cancelled = True  # which is all that can be done about a thread
            if await ends_within(self._clock, THREAD_LIMIT_S, answer):
                answer.exception()
                raise
            run.calls.give_up(answer)
            # Nobody else gets it sooner than if its lock had expired.
            raise _Stopped(GivenBack(f"{CALLED_OFF.reason}; {GOES_ON}", run.lock_timeout)) from None
        result = answer.result()
        return await result if inspect.isawaitable(result) else result

    async def _within(self, limit: timedelta, calling: Any, context: Context) -> Any:
        running = asyncio.ensure_future(calling)
        try:
            if await ends_within(self._clock, limit.total_seconds(), running):
                return running.result()
        except asyncio.CancelledError:
            context.cancelled = True
            await end(running, self._clock, END_LIMIT_S)
            raise _stopped(running) or asyncio.CancelledError from None
        context.cancelled = True
        await end(running, self._clock, END_LIMIT_S)
        goes_on = not running.done() or _stopped(running) is not None
        raise _NoEnd(f"no end after {format_duration(limit)}{f'; {GOES_ON}' if goes_on else ''}")

    # --- hooks -------------------------------------------------------------------------------------------------

    async def _with_hooks(self, run: _Run, item: WorkItem, arguments: dict[str, Any]) -> Outcome:
        context = self._context(run, item)
        try:
            for hook in self._before:
                said = hook(context)
                if inspect.isawaitable(said):
                    await said
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            outcome = self._failed(run, item, error, context)
        else:
            try:
                outcome = await self._outcome(run, item, arguments, context)
            except asyncio.CancelledError:
                await self._call_after(context, CALLED_OFF)
                raise
        await self._call_after(context, outcome)
        return outcome

    async def _call_after(self, context: Context, outcome: Outcome) -> None:
        """Whatever a hook raises, the outcome stands, also at a stop: what it is about has happened."""
        for hook in self._after:
            try:
                said = hook(context, outcome)
                if inspect.isawaitable(said):
                    await said
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException:
                logging.getLogger("bide").exception("a hook failed after task %s", context.task)


class _Run:
    """A task made ready to run: nothing is looked up or inspected for an item."""

    __slots__ = (
        *("calls", "context_name", "decode", "function", "is_async", "is_short", "lock_timeout"),
        *("most_lingering", "needs_context", "results", "task", "timeout_ms"),
    )

    def __init__(self, task: TaskDeclaration, places: int, lock_timeout: timedelta) -> None:
        self.task = task
        self.function = task.function
        self.decode = task.signature.decode
        self.results = task.signature.results
        self.context_name = task.signature.context
        self.timeout_ms = None if task.timeout is None else to_ms(task.timeout)
        self.is_async = inspect.iscoroutinefunction(task.function)
        self.is_short = self.is_async and task.timeout is None
        self.needs_context = self.context_name is not None
        self.calls = FunctionCalls()
        self.most_lingering = task.max_concurrent or places
        self.lock_timeout = task.lock_timeout or lock_timeout


class _NoEnd(Exception):
    """The attempt's timeout is over."""


class _Stopped(Exception):
    """The attempt ended with an ``outcome`` that its function did not give."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        super().__init__()


def _stopped(running: asyncio.Future[Any]) -> _Stopped | None:
    """Why a cancelled call did not end, where it did not."""
    error = running.exception() if running.done() and not running.cancelled() else None
    return error if isinstance(error, _Stopped) else None
