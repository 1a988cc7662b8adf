"""Signals: the first asks for a graceful stop, the second cuts it short."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stop_on_signals(stopping: asyncio.Event, stop_now: Callable[[], None]) -> Iterator[None]:
    """While the block runs, SIGINT and SIGTERM set ``stopping``, and call ``stop_now`` where it is set already.

    Needs a running event loop.
    """
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if stopping.is_set():
            stop_now()
        stopping.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        for number in numbers:
            loop.add_signal_handler(number, stop)
    except NotImplementedError:  # an event loop without signal handlers, as on Windows
        with _plain_handlers(numbers, lambda: loop.call_soon_threadsafe(stop)):
            yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _plain_handlers(numbers: tuple[signal.Signals, ...], stop: Callable[[], object]) -> Iterator[None]:
    before = {number: signal.signal(number, lambda *_: stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
