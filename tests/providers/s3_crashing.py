"""A process that dies in the middle of an operation on S3: after any number of its requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from bide.clock import Clock
from bide.core.s3_address import S3Address
from bide.providers.s3 import S3Provider
from bide.providers.s3.bucket import Class
from bide.testing.benches.s3 import StampedBucket, Stamps
from tests.providers.s3_bench import S3Bench

_R = TypeVar("_R")


class Died(BaseException):
    """What ends everything in a process that has died."""


class MortalBucket(StampedBucket):
    """Makes so many requests from :meth:`count_down` on, and dies with the next, before that is sent."""

    def __init__(self, address: S3Address, clock: Clock, stamps: Stamps) -> None:
        super().__init__(address, clock, stamps)
        self.left: int | None = None
        self.made = 0

    def count_down(self, left: int) -> None:
        self.left, self.made = left, 0

    async def _asked(self, kind: Class, request: Callable[[], Awaitable[_R]]) -> _R:
        if self.left is not None:
            if self.made >= self.left:
                raise Died
            self.made += 1
        return await super()._asked(kind, request)


@asynccontextmanager
async def mortal(bench: S3Bench) -> AsyncIterator[tuple[S3Provider, MortalBucket]]:
    """A process beside the bench's own, open, that may die. Its clock and marker have been used once."""
    bucket = MortalBucket(bench.address, bench.clock, bench.stamps)
    provider = S3Provider(bench.s3_text, clock=bench.clock, bucket=bucket)
    bench.watched.append(provider)
    await provider.open()
    await provider.now()
    yield provider, bucket
    bucket.left = 0
    bench.watched.remove(provider)
