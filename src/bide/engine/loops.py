"""Loops that run together: until they are asked to stop, or one of them ends by an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bide.telemetry import EngineState, Telemetry

Loop = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""Runs until the event is set, and then stops gracefully."""


async def run_together(stopping: asyncio.Event, telemetry: Telemetry, *loops: Loop) -> None:
    """Run ``loops`` until ``stopping`` is set or one of them ends; then stop all of them, and wait until they have.

    Raises what one of them raised, and ``RuntimeError`` where one was cancelled from within.
    """
    telemetry.emit(EngineState("running"))
    stop = asyncio.Event()  # also set when one of the loops ends by an error
    running = [asyncio.ensure_future(loop(stop)) for loop in loops]
    waiting = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({*running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        cancelled = any(loop.cancelled() for loop in running)
        telemetry.emit(EngineState("stopping"))
        stop.set()
        await asyncio.wait(running)
    finally:
        for each in (*running, waiting):
            each.cancel()
        await asyncio.wait({*running, waiting})
        telemetry.emit(EngineState("stopped"))
    for loop in running:
        if not loop.cancelled():
            loop.result()
    if cancelled:
        raise RuntimeError("a loop was cancelled by something that it had called, and could not go on")


async def until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until ``stop`` is set, then cancel it.

    What it raises is raised, and so is a cancellation by something that it had called.
    """
    running = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        cancelled = running.cancelled()
    finally:
        running.cancel()
        waiting.cancel()
        await asyncio.wait({running, waiting})
    if cancelled or not running.cancelled():
        running.result()
