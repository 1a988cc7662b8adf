"""Scratch places of stores that are servers: a schema, a prefix of keys, a prefix of a bucket, names of queues."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from bide.clock import SystemClock
from bide.core.addresses import postgres_address
from bide.core.redis_address import redis_address
from bide.core.s3_address import s3_address
from bide.errors import ProviderError
from bide.provider import Provider
from bide.stores import open_provider

if TYPE_CHECKING:
    from bide.testing.conformance import Bench


class PostgresScratch:
    """A new schema of the database."""

    def __init__(self, address: str, folder: Path) -> None:
        self._schema = new_name()
        parts = urlsplit(address)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        options |= {"schema": self._schema, "application_name": self._schema, "pool": "4"}
        self._address = urlunsplit(parts._replace(query=urlencode(options)))
        self.place = postgres_address(self._address).place

    async def prepare(self) -> None:
        await look(open_provider(self._address, Path(), SystemClock()))

    @asynccontextmanager
    async def bench(self) -> AsyncIterator[Bench]:
        from bide.testing.benches.postgres import PostgresBench

        bench = PostgresBench(self._address)
        await bench.open()
        try:
            yield bench
        finally:
            await bench.close()

    async def remove(self) -> None:
        from bide.testing.benches.postgres import REFUSALS, PostgresBench

        try:
            await PostgresBench(self._address).remove()
        except REFUSALS as error:
            raise ProviderError(
                f"the schema {self._schema} may be left behind ({error}); drop it with DROP SCHEMA … CASCADE"
            ) from error


class RedisScratch:
    """Keys of a new prefix."""

    def __init__(self, address: str, folder: Path) -> None:
        parts = urlsplit(address)
        name = new_name()
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        options |= {"prefix": name, "name": name, "pool": "4"}
        self._address = urlunsplit(parts._replace(query=urlencode(options)))
        self.place = redis_address(self._address).place

    async def prepare(self) -> None:
        await look(open_provider(self._address, Path(), SystemClock()))

    @asynccontextmanager
    async def bench(self) -> AsyncIterator[Bench]:
        from bide.testing.benches.redis import RedisBench

        bench = RedisBench(self._address)
        await bench.open()
        try:
            yield bench
        finally:
            await bench.close()

    async def remove(self) -> None:
        from bide.testing.benches.redis import REFUSALS, RedisBench

        try:
            await RedisBench(self._address).leave_nothing()
        except REFUSALS as error:
            raise ProviderError(
                f"keys of {self.place} may be left behind ({error}); remove those that begin as it says"
            ) from error


class S3Scratch:
    """A new prefix of the bucket, under the one that the address names."""

    def __init__(self, address: str, folder: Path) -> None:
        parts = urlsplit(address)
        self._parts = parts._replace(path=f"{parts.path.rstrip('/')}/{new_name()}")
        self._made = 0
        self.place = s3_address(urlunsplit(self._parts)).place

    async def prepare(self) -> None:
        await look(open_provider(self._address("first"), Path(), SystemClock()))

    @asynccontextmanager
    async def bench(self) -> AsyncIterator[Bench]:
        from bide.testing.benches.s3 import S3Bench

        self._made += 1
        bench = S3Bench(self._address(str(self._made)))
        await bench.open()
        try:
            yield bench
        finally:
            await bench.close()
            await bench.remove()

    async def remove(self) -> None:
        from bide.testing.benches.s3 import S3Bench

        await S3Bench(urlunsplit(self._parts)).remove()

    def _address(self, name: str) -> str:
        return urlunsplit(self._parts._replace(path=f"{self._parts.path}/{name}"))


def new_name() -> str:
    """One that nobody has."""
    return f"bide_test_{SystemClock().new_id()[-12:]}"


async def look(provider: Provider) -> None:
    """Open and close it: what is wrong with the store is said once, and not by every test."""
    await provider.open()
    await provider.close()
