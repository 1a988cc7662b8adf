"""The event loop that commands run on, which ends although a coroutine of its user does not.

A coroutine may swallow its cancellation. What was asked to stop has had its grace by then, and its work item is given
back; so it keeps nobody waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from bide.cli.ending import LEAVE_S

_TELL = "_log_destroy_pending"
"""The attribute of an ``asyncio.Task`` by which its loss is logged."""


def run_quickly(work: Callable[[], Awaitable[None]]) -> None:
    """Run ``work`` on a new event loop: uvloop's where it is installed (``pip install bide[speed]``)."""
    factory: Callable[[], Any] | None = None
    with contextlib.suppress(ImportError):
        factory = importlib.import_module("uvloop").new_event_loop

    async def main() -> None:
        await work()

    _run_and_leave(main, factory)


def _run_and_leave(
    work: Callable[[], Coroutine[Any, Any, None]], factory: Callable[[], asyncio.AbstractEventLoop] | None
) -> None:
    """Run ``work`` on a loop of its own, as ``asyncio.run`` does but for coroutines and threads that never end."""
    runner = asyncio.Runner(loop_factory=factory)
    try:
        runner.run(work())
    finally:
        loop = runner.get_loop()
        try:
            loop.run_until_complete(_end_all())
            with contextlib.suppress(TimeoutError):
                loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), LEAVE_S))
        finally:
            asyncio.set_event_loop(None)
            loop.close()  # which, unlike the runner's own end, waits for no thread


async def _end_all() -> None:
    """Cancel what is left on the loop; what does not end in time is left behind without a word."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, going_on = await asyncio.wait(left, timeout=LEAVE_S)
        for task in going_on:
            setattr(task, _TELL, False)
