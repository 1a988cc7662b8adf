"""Asking a probe, whatever it is made of: an async function, a plain one, or one that answers something to await."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from types import CoroutineType
from typing import Any

from bide.engine.functions import FunctionCalls

Ask = Callable[[], Coroutine[Any, Any, Any]]


def asker(probe: Callable[[], Any]) -> Ask:
    """``probe`` as a function that answers a coroutine; a plain one is called on a thread of its own.

    Raises what :func:`check_probe` raises.
    """
    check_probe(probe)
    if inspect.iscoroutinefunction(probe) or inspect.iscoroutinefunction(_called(probe)):
        return probe
    return ThreadedProbe(probe).ask


def check_probe(probe: Callable[[], Any]) -> None:
    """Raise ``TypeError`` for what cannot be called, and for a generator, whose body no call runs."""
    if not callable(probe):
        raise TypeError(f"a probe is a function to call without arguments, not {probe!r}")
    called = _called(probe)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise TypeError(f"{name_of(probe)} is a generator (it has a yield), which a call does not run")


def _called(probe: Callable[[], Any]) -> Any:
    """The function behind ``probe``, which may be an object with a method ``__call__``."""
    return probe if inspect.isroutine(probe) else type(probe).__call__


class ThreadedProbe:
    """A plain function that may block.

    One call is made at a time. An attempt that begins while the call of the last one, which took too long, still
    runs, waits for that call's answer instead of making another beside it. Once the function has answered
    something to await (``lambda: api.job(7)``), it is known not to block and is called in the event loop itself.
    """

    __slots__ = ("_call", "_inline", "_is_forgotten", "_probe")

    def __init__(self, probe: Callable[[], Any]) -> None:
        self._probe = probe
        self._call: asyncio.Future[Any] | None = None
        self._inline = False
        self._is_forgotten = False

    @property
    def still_running(self) -> bool:
        """Whether a call goes on that was given up."""
        return self._call is not None and not self._call.done()

    async def ask(self) -> Any:
        """The answer of the function; raises what it raises."""
        answer = self._probe() if self._inline else await self._on_thread()
        if inspect.isawaitable(answer):
            self._inline = True
            return await answer
        return answer

    def forget(self) -> None:
        """Nobody wants the answer of the call that runs; the next one is made when it has ended."""
        self._is_forgotten = self.still_running

    async def _on_thread(self) -> Any:
        if self._is_forgotten and self._call is not None:
            await asyncio.wait({self._call})
            self._call, self._is_forgotten = None, False
        if self._call is None:
            self._call = FunctionCalls().start(self._probe)
            self._call.add_done_callback(_heard)
        await asyncio.wait({self._call})  # which does not cancel the call where it is cancelled itself
        call, self._call = self._call, None
        return call.result()


def _heard(call: asyncio.Future[Any]) -> None:
    """What a call given up raises at last is nobody's business any more."""
    if not call.cancelled():
        call.exception()


def still_running(ask: Ask) -> bool:
    """Whether a call of a plain probe goes on in its thread."""
    threaded = getattr(ask, "__self__", None)
    return isinstance(threaded, ThreadedProbe) and threaded.still_running


def forget(ask: Ask) -> None:
    """Let no later attempt take the answer of a plain probe's call that goes on."""
    threaded = getattr(ask, "__self__", None)
    if isinstance(threaded, ThreadedProbe):
        threaded.forget()


def as_coroutine(answer: Awaitable[Any]) -> Coroutine[Any, Any, Any]:
    """What an async function answered, as a coroutine: it may be another thing that can be awaited."""
    if isinstance(answer, CoroutineType):
        return answer
    return _awaited(answer)


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


def name_of(probe: object) -> str:
    """``probe`` as errors name it, with the place where it is written."""
    while hasattr(probe, "func"):  # functools.partial
        probe = probe.func
    name = getattr(probe, "__qualname__", None) or type(probe).__qualname__
    code = getattr(probe, "__code__", None)
    if code is None:
        return str(name)
    return f"{name.rpartition('<locals>.')[2]} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"
