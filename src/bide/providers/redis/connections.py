"""Connections of one event loop, a few at most, each for one command at a time.

The driver makes them, with its handshake and its TLS, and reads and writes its protocol. Who may have one, and how
long an answer may take, is decided here: the driver's own pool and timeouts cost more than the rest of a command.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Protocol

from redis.asyncio import RedisCluster
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import MaxConnectionsError, RedisError, ResponseError

from bide.core.redis_address import RedisAddress


class Client(Protocol):
    """What sends commands."""

    async def execute(self, *arguments: Any) -> Any:
        """What the server answers; the driver's errors, never tried again."""
        ...

    async def aclose(self) -> None:
        """Cut every connection."""
        ...


def client_of(address: RedisAddress, size: int, timeout_s: float) -> Client:
    """A client of up to ``size`` connections that answers or fails after ``timeout_s``."""
    return (
        ClusterClient(address, size, timeout_s) if address.cluster else Connections(address, size, timeout_s)
    )


class Connections:
    """Connections to one server, made as they are needed; the one that was used last is used next."""

    def __init__(self, address: RedisAddress, size: int, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._free = asyncio.Semaphore(size)
        self._idle: list[Any] = []
        self._all: set[Any] = set()
        self._is_closed = False

    async def execute(self, *arguments: Any) -> Any:
        await self._acquire()
        try:
            connection = await self._connected()
            try:
                async with asyncio.timeout(self._timeout_s):
                    await connection.send_command(*arguments)
                    answer = await connection.read_response()
            except ResponseError:
                self._keep(connection)
                raise
            except BaseException:
                await self._drop(connection)
                raise
            self._keep(connection)
            return answer
        finally:
            self._free.release()

    async def aclose(self) -> None:
        self._is_closed = True
        for connection in list(self._all):
            await self._drop(connection)

    async def _acquire(self) -> None:
        """Until there may be one connection more."""
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._free.acquire()
        except TimeoutError as error:
            raise MaxConnectionsError("every connection was in use") from error

    async def _connected(self) -> Any:
        """A connection that lives, as far as can be seen."""
        while self._idle:
            connection = self._idle.pop()
            if not _has_ended(connection):
                return connection
            await self._drop(connection)
        connection = _made(self._address)
        self._all.add(connection)
        try:
            async with asyncio.timeout(self._address.timeout_s):
                await connection.connect()
        except BaseException:
            await self._drop(connection)
            raise
        return connection

    def _keep(self, connection: Any) -> None:
        if connection.is_connected and not self._is_closed:
            self._idle.append(connection)

    async def _drop(self, connection: Any) -> None:
        self._all.discard(connection)
        with suppress(OSError, RedisError, TimeoutError):
            await connection.disconnect(nowait=True)


class ClusterClient:
    """A client of a cluster: the driver's, which knows where the keys are."""

    def __init__(self, address: RedisAddress, size: int, timeout_s: float) -> None:
        self._client: Any = RedisCluster(
            host=address.host,
            port=address.port,
            ssl=address.tls,
            max_connections=size,
            socket_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            **_options(address),
        )

    async def execute(self, *arguments: Any) -> Any:
        return await self._client.execute_command(*arguments)

    async def aclose(self) -> None:
        await self._client.aclose()


def _has_ended(connection: Any) -> bool:
    """Whether its end was noticed already. The driver has no public word for that."""
    reader: asyncio.StreamReader | None = getattr(connection, "_reader", None)
    return reader is None or reader.at_eof() or reader.exception() is not None


def _made(address: RedisAddress) -> Any:
    options = _options(address) | {"db": address.db, "socket_timeout": None, "retry": Retry(NoBackoff(), 0)}
    if address.socket:
        return UnixDomainSocketConnection(path=address.socket, **options)
    kind = SSLConnection if address.tls else Connection
    return kind(host=address.host, port=address.port, **options)


def _options(address: RedisAddress) -> dict[str, Any]:
    options: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "socket_connect_timeout": address.timeout_s,
        "client_name": address.name,
        "protocol": 2,
        "driver_info": None,
    }
    if address.tls:
        options |= {"ssl_ca_certs": address.ca, "ssl_certfile": address.cert, "ssl_keyfile": address.key}
    return options
