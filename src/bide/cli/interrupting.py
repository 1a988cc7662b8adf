"""Signals that end a command at once: what it was doing is cancelled, and cleans up behind itself."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_NUMBERS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupted(Exception):
    """A signal came. ``status`` is the exit status that says so to a shell."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.status = 128 + number
        super().__init__(signal.Signals(number).name)


async def unless_interrupted(work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` answers; it is cancelled at SIGINT, SIGTERM or SIGHUP, and once more at each further one.

    Raises :class:`Interrupted` then. A signal that is ignored (as under ``nohup``) stays so.
    """
    loop = asyncio.get_running_loop()
    working = asyncio.ensure_future(work)
    came: list[int] = []

    def stop(number: int) -> None:
        came.append(number)
        working.cancel()

    heard = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {}
    for number in heard:
        try:
            loop.add_signal_handler(number, stop, number)
        except NotImplementedError:  # an event loop without signal handlers, as on Windows
            before[number] = signal.signal(number, lambda number, _: loop.call_soon_threadsafe(stop, number))
    try:
        return await working
    except asyncio.CancelledError:
        if came:
            raise Interrupted(came[0]) from None
        raise
    finally:
        for number in heard:
            if number in before:
                signal.signal(number, before[number])
            else:
                loop.remove_signal_handler(number)
