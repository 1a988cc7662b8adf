"""Calling a subscriber's own function: an async one on the event loop, a plain one on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import traceback
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from typing import Any


class FunctionCalls:
    """Calls of one subscriber's function. ``lingering``: those given up whose thread still runs."""

    def __init__(self) -> None:
        self.lingering = 0

    async def make(self, function: Callable[..., Any], argument: object) -> None:
        """Call ``function`` with ``argument``, and await what it answers if that can be awaited.

        Raises what it raises, and ``TypeError`` for a generator, whose body no call runs.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{_name_of(function)} is a generator (it has a yield), which a call does not run"
            )
        if inspect.iscoroutinefunction(function):
            await function(argument)
            return
        result = await self._on_thread(function, argument)
        if inspect.isawaitable(result):
            await result

    async def _on_thread(self, function: Callable[..., Any], argument: object) -> Any:
        answer = self.start(function, argument)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                self.lingering += 1
            raise

    def start(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Run ``function`` where it may block; the answer is what it returned or raised.

        The thread is its own and not one of a pool: as many may block as there are places for handlers, and one
        that never returns keeps no process from ending. Cancelling the answer stops no thread: see :meth:`give_up`.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        context = copy_context()

        def tell(result: Any, error: BaseException | None) -> None:
            if answer.done():  # given up meanwhile
                self.lingering -= 1
            elif error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        def work() -> None:
            result: Any = None
            failed: BaseException | None = None
            try:
                result = context.run(function, *args, **kwargs)
            except (StopIteration, KeyboardInterrupt, GeneratorExit) as error:
                # The first no future can hold; the others would end more than this call on the event loop.
                failed = RuntimeError(f"{type(error).__name__}: {error}")
            except BaseException as error:  # of whatever kind: its caller is on another thread
                failed = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(tell, result, failed)

        threading.Thread(target=work, name=f"bide-{_name_of(function)}", daemon=True).start()
        return answer

    def give_up(self, answer: asyncio.Future[Any]) -> None:
        """Wait no more for an answer; what its thread still says is discarded."""
        if answer.cancel():
            self.lingering += 1


def told_of(error: BaseException) -> str:
    """What ``error`` is, and where in the user's code it was raised."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    ours = Path(__file__).parent
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if ours not in Path(frame.filename).parents]
    if not theirs:
        return text
    last = theirs[-1]
    return f"{text} ({Path(last.filename).name}:{last.lineno}, in {last.name})"


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
