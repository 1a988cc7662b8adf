"""The Redis provider on its bench: functions are told what time it is by a virtual clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

from redis.exceptions import RedisError, ResponseError

from bide.clock import Clock
from bide.core.redis_address import RedisAddress, redis_address
from bide.provider import Provider
from bide.providers.redis import RedisProvider
from bide.providers.redis.connections import Client, client_of
from bide.providers.redis.library import Library, library
from bide.providers.redis.session import Session, meta_key
from bide.providers.redis.store import Store
from bide.testing.clock import VirtualClock
from bide.testing.conformance import Bench
from bide.testing.skew import SkewedClock

_NOW = """local function now_ms(ARGV)
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
"""

_SHIFTED = "local function now_ms(ARGV) return tonumber(ARGV[#ARGV]) end\n"

REFUSALS = (OSError, RedisError)
"""What is raised where a command of the side door cannot be run."""


class ShiftedSession(Session):
    """Tells each call what time it is."""

    def __init__(self, address: RedisAddress, size: int, requests: Counter[str], clock: VirtualClock) -> None:
        super().__init__(address, size, requests)
        self._clock = clock

    def _library(self) -> Library:
        return _shifted()

    async def _call(self, client: Client, name: str, *arguments: Any) -> Any:
        return await super()._call(client, name, *arguments, self._clock.utc_ms())

    async def forget_others(self) -> None:
        """That of the server's own time is not to be loaded again for each test."""


class ShiftedStore(Store):
    """Its sessions are shifted to ``servers``; ``clock`` is the process's."""

    def __init__(self, address: RedisAddress, clock: Clock, servers: VirtualClock) -> None:
        super().__init__(address, clock)
        self._servers = servers

    def _made(self, size: int) -> Session:
        return ShiftedSession(self.address, size, self.requests, self._servers)


class ShiftedProvider(RedisProvider):
    """The provider, on a virtual clock; the process's own wall clock is ``ahead`` seconds before the server's."""

    def __init__(self, address: str, clock: VirtualClock, ahead: float = 0) -> None:
        own = SkewedClock(clock, ahead)
        super().__init__(address, clock=own)
        self._store = ShiftedStore(redis_address(address), own, clock)


class RedisBench(Bench):
    """The prefix that ``address`` names, emptied: it must be one that holds nothing of anybody's.

    ``drop`` ends the connections that have the ``name`` that the address gives.
    """

    def __init__(self, address: str, clock: VirtualClock | None = None) -> None:
        self.address = address
        self._parsed = redis_address(address)
        self.clock = clock or VirtualClock()
        self.clock.busy_while(lambda: any(provider.pending for provider in self._open))
        self._open: list[ShiftedProvider] = []
        self.provider = self._made()

    async def open(self) -> None:
        await self.remove()
        await self.provider.open()

    async def close(self) -> None:
        await self.provider.close()

    async def command(self, *arguments: Any) -> Any:
        """Go round the provider. In a cluster only commands of the store's keys."""
        client = client_of(self._parsed, 1, self._parsed.timeout_s)
        try:
            if not self._parsed.cluster:
                await client.execute("CLIENT", "SETNAME", "bench")
            return await client.execute(*arguments)
        finally:
            await client.aclose()

    def key(self, rest: str) -> str:
        """A key of the store."""
        return meta_key(self._parsed).removesuffix("meta") + rest

    async def keys(self) -> set[str]:
        """Every key of the store, without the prefix."""
        begin = self.key("")
        found = await self.command("KEYS", begin.replace("[", "\\[").replace("*", "\\*") + "*")
        return {key.decode(errors="replace").removeprefix(begin) for key in found}

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        self.clock.step_wall(-seconds)

    async def corrupt(self, item_id: str) -> None:
        await self.command("HSET", self.key(f"i:{item_id}"), "p", b"{\xff\xfe}")

    async def reopen(self) -> None:
        await self.provider.close()
        self._open.clear()
        self.provider = self._made()
        await self.provider.open()

    @asynccontextmanager
    async def another(self, *, ahead: float = 0) -> AsyncIterator[Provider]:
        provider = self._made(ahead)
        await provider.open()
        try:
            yield provider
        finally:
            await provider.close()
            self._open.remove(provider)

    async def drop(self) -> bool:
        for line in (await self.command("CLIENT", "LIST")).decode().splitlines():
            fields = dict(part.partition("=")[::2] for part in line.split())
            if fields.get("name") == self._parsed.name:
                await self.command("CLIENT", "KILL", "ID", fields["id"])
        return True

    async def open_as_older(self) -> None:
        await self.command("HINCRBY", self.key("meta"), "schema", 1)
        try:
            async with self.another():
                pass
        finally:
            await self.command("HINCRBY", self.key("meta"), "schema", -1)

    async def remove(self) -> None:
        """Leave nothing under the prefix."""
        keys = [self.key(rest) for rest in await self.keys()]
        if keys:
            await self.command("DEL", *keys)

    async def leave_nothing(self) -> None:
        """As :meth:`remove`, and the library that tells the bench's time goes too."""
        await self.remove()
        with suppress(ResponseError):  # it is not there
            await self.command("FUNCTION DELETE", _shifted().name)

    def now_ms(self) -> int:
        return self.clock.utc_ms()

    def _made(self, ahead: float = 0) -> ShiftedProvider:
        provider = ShiftedProvider(self.address, self.clock, ahead)
        self._open.append(provider)
        return provider


@cache
def _shifted() -> Library:
    original = library().body
    body = original.replace(_NOW, _SHIFTED)
    assert body != original, "the library does not tell the time as it did"
    return Library(body)
