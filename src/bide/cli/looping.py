"""The event loop that commands run on."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable
from typing import Any


def run_quickly(work: Callable[[], Awaitable[None]]) -> None:
    """Run ``work`` on a new event loop: uvloop's where it is installed (``pip install bide[speed]``)."""
    factory: Callable[[], Any] | None = None
    with contextlib.suppress(ImportError):
        factory = importlib.import_module("uvloop").new_event_loop

    async def main() -> None:
        await work()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
