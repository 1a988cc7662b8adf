"""Several requests at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

_R = TypeVar("_R")


async def gathered(requests: Sequence[Awaitable[_R]]) -> list[_R]:
    """What all of ``requests`` answer; the first error only when all have ended."""
    results = await asyncio.gather(*requests, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
