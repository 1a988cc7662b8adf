"""The S3 provider on its bench: a real server, whose stamps are those of a virtual clock."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from types import MappingProxyType
from typing import Any

from bide.clock import Clock
from bide.core.abilities import S3
from bide.core.s3_address import S3Address, s3_address
from bide.core.server_time import Stamp
from bide.provider import Provider
from bide.providers.s3 import S3Provider
from bide.providers.s3.bucket import Bucket, Found, Lost, Written
from bide.providers.s3.names import ITEMS, META, token_of
from bide.providers.s3.records import decoded, encoded
from bide.testing.clock import VirtualClock
from bide.testing.conformance import Bench
from bide.testing.skew import SkewedClock

_NO_WAIT = "a fetch answers at once; waiting is the dispatcher's, by its strategy"
_NO_ORDER = "items of an order key would need somebody who sees all that runs"
_NO_LIMIT = "places would need somebody who sees all that runs"


class StampedBucket(Bucket):
    """Requests go to the server; only the instants that it stamps are those of ``stamps``, exactly."""

    drift_ppm = 0  # the two clocks are one

    def __init__(self, address: S3Address, clock: Clock, stamps: Stamps) -> None:
        super().__init__(address, clock)
        self._stamps = stamps

    async def _written(self, key: str, body: bytes, mode: Any) -> Written | Lost:
        written = await super()._written(key, body, mode)
        if isinstance(written, Written):
            self._stamps.put(key)
        return written

    def _stamp_of(self, key: str, modified: datetime) -> Stamp:
        return self._stamps.of(key)


class Stamps:
    """When each object was written, by a virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._instants: dict[str, int] = {}

    def put(self, key: str) -> None:
        self._instants[key] = self._clock.utc_ms()

    def of(self, key: str) -> Stamp:
        instant = self._instants.setdefault(key, self._clock.utc_ms())
        return Stamp(instant, instant + 1)


class S3Bench(Bench):
    """A store of its own under the prefix of ``address``."""

    absent = MappingProxyType(
        {
            1: _NO_WAIT,
            "test_02_a_cancelled_wait_takes_nothing_with_it": _NO_WAIT,
            "test_02_a_cancelled_wait_leaves_the_others_waiting": _NO_WAIT,
            "test_02_a_fetch_cancelled_as_its_item_comes_loses_nothing": _NO_WAIT,
            "test_03_the_lock_starts_when_items_are_taken": _NO_WAIT,
            "test_03_the_lock_ends_when_it_is_over_however_long_the_wait_was": _NO_WAIT,
            "test_13_an_event_ends_the_wait_for_deliveries": _NO_WAIT,
            "test_15_a_blocked_fetch_outlives_a_lost_connection": _NO_WAIT,
        }
    )
    lacks = MappingProxyType({"ordered": _NO_ORDER, "limits": _NO_LIMIT})

    def __init__(self, address: str, clock: VirtualClock | None = None) -> None:
        assert S3.lacks == set(self.lacks)
        self.address = s3_address(address)
        self.s3_text = address
        self.clock = clock or VirtualClock()
        self.clock.busy_while(lambda: any(provider.pending for provider in self.watched))
        self.stamps = Stamps(self.clock)
        self.watched: list[S3Provider] = []
        self.provider = self.s3 = self.made(self.clock)

    async def open(self) -> None:
        await self.provider.open()

    async def close(self) -> None:
        await self.provider.close()

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        self.clock.step_wall(-seconds)
        for provider in self.watched:
            provider.distrust_clock()

    async def corrupt(self, item_id: str) -> None:
        key = f"{ITEMS}{token_of(item_id)}"
        bucket = await self.bucket()
        found = await bucket.get(key)
        assert isinstance(found, Found)
        record = decoded(found.body, key)
        record.raw = b"{\xff}"
        await bucket.put(key, encoded(record))

    async def reopen(self) -> None:
        await self.provider.close()
        self.watched.remove(self.s3)
        self.provider = self.s3 = self.made(self.clock)
        await self.provider.open()

    @asynccontextmanager
    async def another(self, *, ahead: float = 0) -> AsyncIterator[Provider]:
        provider = self.made(SkewedClock(self.clock, ahead))
        await provider.open()
        try:
            yield provider
        finally:
            await provider.close()
            self.watched.remove(provider)

    async def open_as_older(self) -> None:
        bucket = await self.bucket()
        found = await bucket.get(META)
        assert isinstance(found, Found)
        head = json.loads(found.body)
        await bucket.put(META, json.dumps({**head, "version": head["version"] + 1}).encode())
        try:
            async with self.another():
                pass
        finally:
            await bucket.put(META, found.body)

    def now_ms(self) -> int:
        return self.clock.utc_ms()

    def made(self, clock: Clock) -> S3Provider:
        """A provider on this store; to be opened and closed by the caller."""
        bucket = StampedBucket(self.address, clock, self.stamps)
        provider = S3Provider(self.s3_text, clock=clock, bucket=bucket)
        self.watched.append(provider)
        return provider

    async def remove(self) -> None:
        """Leave nothing of the store."""
        bucket = await self.bucket()
        await bucket.delete([one.key for one in await bucket.all("")])

    async def bucket(self) -> Bucket:
        """One to go round the provider with."""
        bucket = Bucket(self.address, self.clock)
        bucket.open()
        return bucket
