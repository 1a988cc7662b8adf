"""A small HTTP/1.1 server on the loopback interface, for the sample API and the demo's webhook receiver.

It is made for this program's own clients: no TLS, no chunked requests, small bodies only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType

from bide.core.http import Headers

_BODY_LIMIT = 1 << 20
_IDLE_S = 75.0
"""A connection without a request for so long is closed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came. ``path`` is without its query."""

    method: str
    path: str
    headers: Headers
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back; the length is added."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class LoopbackServer:
    """Serves ``answer`` on 127.0.0.1 while its ``async with`` block runs; ``port`` 0 takes a free one.

    Raises ``OSError`` on entering where the port is taken.
    """

    def __init__(self, answer: Callable[[Asked], Answer], *, port: int = 0) -> None:
        self._answer = answer
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it listens, such as ``"http://127.0.0.1:9000"``."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> LoopbackServer:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broken = (
            ConnectionError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            TimeoutError,
            ValueError,
        )
        try:
            with contextlib.suppress(*broken):
                while asked := await asyncio.wait_for(_read(reader), _IDLE_S):
                    writer.write(_written(self._answer(asked)))
                    await writer.drain()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    """The next request, or None where the client closed. Raises ``ValueError`` for what is no request."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise
    start, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _version = start.split(" ")
    fields = (line.partition(":") for line in lines)
    headers = Headers((name.strip(), value.strip()) for name, _, value in fields)
    length = int(headers.get("content-length") or 0)
    if not 0 <= length <= _BODY_LIMIT:
        raise ValueError(f"a body of {length} bytes")
    return Asked(method, target.partition("?")[0], headers, await reader.readexactly(length))


def _written(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    if answer.status not in (204, 304):
        lines.append(f"content-length: {len(answer.body)}")
    return "\r\n".join((*lines, "", "")).encode("latin-1") + answer.body
