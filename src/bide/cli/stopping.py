"""Signals: the first asks for a graceful stop, the second cuts it short."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

from bide.clock import SystemClock

ECHO_S = 0.25
"""Seconds in which a further signal is the first one again.

Programs that start others, such as ``timeout`` and process managers, pass a signal on that the terminal or the
process group has delivered already; nobody has asked twice then.
"""


@contextlib.contextmanager
def stop_on_signals(stopping: asyncio.Event, stop_now: Callable[[], None]) -> Iterator[None]:
    """While the block runs, SIGINT and SIGTERM set ``stopping``, and call ``stop_now`` where it is set already.

    Needs a running event loop.
    """
    loop = asyncio.get_running_loop()
    now, echoes_until = SystemClock().monotonic, 0.0

    def stop() -> None:
        nonlocal echoes_until
        if not stopping.is_set():
            echoes_until = now() + ECHO_S
            stopping.set()
        elif now() >= echoes_until:
            stop_now()

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
