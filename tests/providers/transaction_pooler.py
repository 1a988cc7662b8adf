"""A pooler of transactions, as PgBouncer is one, at its worst: each transaction goes to another connection.

Whatever a client leaves on a connection (a prepared statement, a LISTEN, a setting) is gone with the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct

_SSL_REQUEST, _CANCEL_REQUEST = 80877103, 80877102
_DESCRIBED = b"TnE"
CONNECTIONS = 3

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pooler:
    """Stands before the server at ``port``; ``transactions`` counts those that it passed on."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._clients: set[asyncio.Task[None]] = set()
        self.transactions = 0
        self.port = 0

    async def __aenter__(self) -> Pooler:
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listening.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        servers: list[Stream] = []
        try:
            startup = await _startup(reader, writer)
            if startup is not None:
                for number in range(CONNECTIONS):
                    servers.append(await asyncio.open_connection("127.0.0.1", self._server_port))
                    servers[-1][1].write(startup)
                    hello, _ = await _until_ready(servers[-1][0])
                    if number == 0:
                        writer.write(hello)
                await self._relay((reader, writer), servers)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client went away
        finally:
            for _, other in [*servers, (reader, writer)]:
                other.close()
                with contextlib.suppress(ConnectionError):
                    await other.wait_closed()
            self._clients.discard(task)

    async def _relay(self, client: Stream, servers: list[Stream]) -> None:
        reader, writer = client
        turn = 0
        while True:
            kind, message = await _message(reader)
            if kind == b"X":
                return
            from_server, to_server = servers[turn % CONNECTIONS]
            to_server.write(message)
            if kind == b"H":  # the driver asks what it has prepared, and goes on in the same transaction
                answer, _ = await _until(from_server, _DESCRIBED)
                writer.write(answer)
            if kind not in b"SQ":
                continue
            answer, idle = await _until_ready(from_server)
            writer.write(answer)
            if idle:
                turn += 1
                self.transactions += 1


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
    """The startup message of a client; None where it only came to cancel something."""
    while True:
        head = await reader.readexactly(8)
        length, code = struct.unpack("!II", head)
        rest = await reader.readexactly(length - 8)
        if code == _CANCEL_REQUEST:
            return None
        if code != _SSL_REQUEST:
            return head + rest
        writer.write(b"N")


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One message: its kind, and all of it."""
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!I", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)


async def _until_ready(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    """Everything up to ReadyForQuery, and whether no transaction is open then."""
    everything, last = await _until(reader, b"Z")
    return everything, last[5:6] == b"I"


async def _until(reader: asyncio.StreamReader, kinds: bytes) -> tuple[bytes, bytes]:
    """Everything up to a message of one of ``kinds``, and that message."""
    everything = b""
    while True:
        kind, message = await _message(reader)
        everything += message
        if kind in kinds:
            return everything, message
