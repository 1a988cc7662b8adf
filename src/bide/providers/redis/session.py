"""Connections on one event loop: calls of the library, and calls that share one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from bide.core.redis_address import RedisAddress
from bide.errors import ProviderError
from bide.providers.batching import Batch
from bide.providers.redis.connections import Client, client_of
from bide.providers.redis.faults import FAULTS, explained
from bide.providers.redis.library import NAMES, Library, library
from bide.providers.redis.rows import shown

CLOSE_S = 5.0
"""Seconds for what is under way to end when the provider is closed; then connections are cut."""

CUT_S = 1.0
"""Seconds for what is under way to notice that its connection was cut."""

_R = TypeVar("_R")
_A = TypeVar("_A")


class Session:
    """Up to ``size`` connections, for the event loop on which it is opened. ``requests`` counts commands."""

    def __init__(self, address: RedisAddress, size: int, requests: Counter[str]) -> None:
        self.address = address
        self._size = size
        self._requests = requests
        self._client: Client | None = None
        self._batches: dict[Callable[..., Any], Batch[Any, Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Make the client, whose connections are made as they are needed."""
        self.loop = asyncio.get_running_loop()
        self._client = client_of(self.address, self._size, self.address.timeout_s)

    async def close(self) -> None:
        """Finish what is under way, and close every connection.

        What a server has not answered after :data:`CLOSE_S` is cut off, and fails with ``ProviderError``.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
        client, self._client = self._client, None
        if client is not None:
            with suppress(*FAULTS):
                await client.aclose()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CUT_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.sleep(0)  # in which the transports end

    def start(self, act: Coroutine[Any, Any, _R]) -> asyncio.Task[_R]:
        """Run ``act`` whoever waits for it; closing waits. To be called on the session's event loop."""
        task = self.loop.create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self, name: str, *arguments: Any) -> Any:
        """Call a function; what it answers. Raises ``ProviderError``."""
        client = self._opened()
        try:
            return await self._call(client, name, *arguments)
        except FAULTS as error:
            raise explained(error, self.address.place) from error

    def batched(
        self, call: Callable[[Session, list[_A]], Awaitable[Sequence[_R | Exception]]], argument: _A
    ) -> asyncio.Future[_R]:
        """What ``call`` answers for ``argument``, given together with those of everybody who asks just now."""
        batch: Batch[_A, _R] | None = self._batches.get(call)
        if batch is None:
            batch = self._batches[call] = Batch(partial(call, self), self.start)
        return batch.submit(argument, haste=True)

    async def forget_others(self) -> None:
        """Remove libraries of other versions; programs that still run load theirs again."""
        client = self._opened()
        with suppress(*FAULTS):  # no harm is done by those that stay
            self._requests["command"] += 1
            for kept in await client.execute("FUNCTION LIST", "LIBRARYNAME", f"{NAMES}*"):
                name = shown(kept[1])
                if name != self._library().name:
                    self._requests["command"] += 1
                    await client.execute("FUNCTION DELETE", name)

    def _opened(self) -> Client:
        if self._client is None:
            raise ProviderError(f"{self.address.place}: the provider is not open")
        return self._client

    def _library(self) -> Library:
        return library()

    async def _call(self, client: Client, name: str, *arguments: Any) -> Any:
        """Call a function; where the server does not know the library (any more), it is loaded first."""
        given = ("FCALL", self._library().function(name), 1, meta_key(self.address), *arguments)
        self._requests["command"] += 1
        try:
            return await client.execute(*given)
        except ResponseError as error:
            if "Function not found" not in str(error):
                raise
        await self._load(client)
        self._requests["command"] += 1
        return await client.execute(*given)

    async def _load(self, client: Client) -> None:
        self._requests["command"] += 1
        try:
            await client.execute("FUNCTION LOAD", self._library().text)
        except ResponseError as error:
            if "already exists" not in str(error):  # another was first
                raise


def meta_key(address: RedisAddress) -> str:
    """The key that says which version wrote the store; every other begins as it does, with the hash tag."""
    return f"{{{address.prefix}}}:meta"


def wake_key(address: RedisAddress) -> str:
    """The stream of wake-ups."""
    return f"{{{address.prefix}}}:wake"
