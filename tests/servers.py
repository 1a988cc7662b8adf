"""A raw HTTP/1.1 server for tests, on loopback, in the test's own event loop, that misbehaves on demand.

It speaks bytes, not a framework, so that a test can say exactly what goes over the wire::

    async with RawServer() as server:
        server.script("/price", Answer.json({"price": 1}), Answer(status=503))  # the last one repeats
        server.script("/moved", Answer.redirect(301, "/price"))
        server.script("/slow", Answer(delay=0.2))                       # head after 0.2 s
        server.script("/drip", Answer(body=b"x" * 100, drip=0.05))      # a byte each 0.05 s
        server.script("/cut", Answer(body=b"x" * 100, cut=14))          # closes after 14 of 100 bytes
        server.script("/endless", Answer(endless=b"x" * 65536))         # never ends
        server.script("/silent", Answer.silence())                      # reads the request, says nothing
        server.script("/gone", Answer.hang_up())                        # closes without an answer
        server.script("/odd", Answer(raw=b"hello\\r\\n\\r\\n"))         # exactly these bytes, then closes
        server.script("/poll", Resource(b'{"price": 1}'))               # ETag, and 304 where it matches
        server.script("/asked", lambda request: Answer.json({"you": request.header("user-agent")}))
        ... server.url("/price") ...
        assert server.count("/price") == 1

What was seen: ``server.requests`` (each a ``Received``: method, target, path, query, headers, body, the
number of its connection), ``server.count(path)``, ``server.connections`` (ever accepted),
``server.open_connections`` (now), ``server.running`` and ``server.peak`` (requests being answered now, and
the most at a time). A path without a script is answered 404.

Bodies: ``zipped(data)`` is one gzip member, ``gzip_bomb(size)`` is ``size`` zero bytes as gzip, made without
holding them. Addresses: ``refused_url()`` is one where nobody listens; ``unanswered_url()`` (a context manager)
one that never accepts. TLS: ``RawServer(tls=server_tls(trustme.CA(), "127.0.0.1"))``; the port's ``url`` is then
``https``. ``await eventually(lambda: server.running == 0)`` waits a little for what happens on the other side.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import ssl
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    import trustme

Fields = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Received:
    """One request as the server read it. ``connection`` numbers the connections from 1."""

    method: str
    target: str
    headers: Fields
    body: bytes
    connection: int

    @property
    def path(self) -> str:
        return self.target.split("?", 1)[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    def header(self, name: str) -> str | None:
        """The first value of ``name``, matched without regard to case, or None."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, right or wrong. Times are in seconds.

    ``framing``: how the end of the body is told: ``"length"`` (Content-Length), ``"chunked"``, ``"close"`` (by
    closing) or ``"none"`` (no body is sent and nothing said, as for 304). ``length`` overrides the Content-Length
    that is announced. ``drip`` waits so long before each ``piece`` bytes of the body. ``cut`` closes after so many
    bytes of the body; ``abort`` makes every close a reset. ``hold`` delays the head until the event is set.
    """

    status: int = 200
    headers: Fields = ()
    body: bytes = b""
    framing: Literal["length", "chunked", "close", "none"] = "length"
    length: int | None = None
    delay: float = 0.0
    hold: asyncio.Event | None = None
    drip: float | None = None
    piece: int = 1
    cut: int | None = None
    close: bool = False
    abort: bool = False
    endless: bytes | None = None
    raw: bytes | None = None

    @classmethod
    def json(cls, value: Any, *, status: int = 200, headers: Fields = (), **rest: Any) -> Answer:
        """``value`` as a JSON body with its Content-Type."""
        body = json.dumps(value).encode()
        return cls(status=status, headers=(("Content-Type", "application/json"), *headers), body=body, **rest)

    @classmethod
    def redirect(cls, status: int, location: str | None, *, body: bytes = b"", **rest: Any) -> Answer:
        """A redirect to ``location``; without a Location where that is None."""
        fields = () if location is None else (("Location", location),)
        return cls(status=status, headers=fields, body=body, **rest)

    @classmethod
    def not_modified(cls, *headers: tuple[str, str]) -> Answer:
        """A 304 with these header fields (a Content-Length among them is legal) and no body."""
        return cls(status=304, headers=headers, framing="none")

    @classmethod
    def silence(cls) -> Answer:
        """Nothing at all, until the client goes away or the server stops."""
        return cls(delay=3600.0)

    @classmethod
    def hang_up(cls, *, abort: bool = False) -> Answer:
        """Close (or reset) the connection without a byte."""
        return cls(raw=b"", abort=abort)


Script = Answer | Callable[[Received], Answer]


@dataclass(slots=True)
class Resource:
    """A body with a strong ETag of its content; answers 304 to a request that has it. Change ``body`` at will."""

    body: bytes
    headers: Fields = (("Content-Type", "application/json"),)
    fresh: int = 0
    """How many answers had a body."""
    not_modified: int = 0

    @property
    def etag(self) -> str:
        return f'"{zlib.crc32(self.body):08x}"'

    def __call__(self, request: Received) -> Answer:
        fields = (("ETag", self.etag), *self.headers)
        if request.header("if-none-match") == self.etag:
            self.not_modified += 1
            return Answer.not_modified(*fields)
        self.fresh += 1
        return Answer(headers=fields, body=self.body)


@dataclass(slots=True)
class _Scripted:
    answers: list[Script]
    at: int = 0

    def next(self, request: Received) -> Answer:
        script = self.answers[min(self.at, len(self.answers) - 1)]
        self.at += 1
        return script if isinstance(script, Answer) else script(request)


class _Hung(Exception):
    """The connection is to be closed now."""


@dataclass(slots=True)
class RawServer:
    """The server; an async context manager. ``tls``: serve HTTPS with this context."""

    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    port: int = 0
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    open_connections: int = 0
    running: int = 0
    peak: int = 0
    _scripts: dict[str, _Scripted] = field(default_factory=dict)
    _server: asyncio.Server | None = None
    _handlers: set[asyncio.Task[None]] = field(default_factory=set)

    def script(self, path: str, *answers: Script) -> None:
        """Answer requests for ``path`` (without query) with these in turn; the last one repeats."""
        self._scripts[path] = _Scripted(list(answers))

    def url(self, path: str = "") -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{self.host}:{self.port}{path}"

    def count(self, path: str) -> int:
        """How many requests for ``path`` (without query) came."""
        return sum(request.path == path for request in self.requests)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, self.host, self.port, ssl=self.tls, backlog=512
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and drop every connection. ``start`` again listens on the same port."""
        if self._server is not None:
            self._server.close()
        for handler in list(self._handlers):
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def start(self) -> None:
        """Listen again after ``stop``, on the same port."""
        await self.__aenter__()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        handler = asyncio.get_running_loop().create_task(self._serve(reader, writer, self.connections))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.open_connections += 1
        try:
            while True:
                request = await _read_request(reader, number)
                self.requests.append(request)
                scripted = self._scripts.get(request.path)
                answer = scripted.next(request) if scripted else Answer(status=404)
                self.running += 1
                self.peak = max(self.peak, self.running)
                try:
                    await _unless_gone(reader, _send(writer, request, answer))
                finally:
                    self.running -= 1
        except (OSError, EOFError, _Hung, asyncio.CancelledError):
            pass
        finally:
            self.open_connections -= 1
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await asyncio.wait_for(writer.wait_closed(), 0.2)


async def _read_request(reader: asyncio.StreamReader, number: int) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    method, target, _ = first.split(" ", 2)
    fields = tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))
    length = next((int(value) for name, value in fields if name.lower() == "content-length"), 0)
    return Received(method, target, fields, await reader.readexactly(length), number)


async def _unless_gone(reader: asyncio.StreamReader, sending: Any) -> None:
    """Await ``sending``, but give up once the client has closed its end (a client here never half-closes)."""
    work = asyncio.ensure_future(sending)
    try:
        while not work.done():
            await asyncio.wait({work}, timeout=0.01)
            if reader.at_eof():
                raise _Hung
        await work
    finally:
        work.cancel()


async def _send(writer: asyncio.StreamWriter, request: Received, answer: Answer) -> None:
    if answer.hold is not None:
        await answer.hold.wait()
    if answer.delay:
        await asyncio.sleep(answer.delay)
    if answer.raw is not None:
        writer.write(answer.raw)
        await writer.drain()
        _hang_up(writer, answer)
    writer.write(_head(answer))
    await writer.drain()
    if request.method != "HEAD" and answer.framing != "none":
        await _send_body(writer, answer)
    if answer.close or answer.framing == "close":
        _hang_up(writer, answer)


def _head(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} Scripted", *(f"{name}: {value}" for name, value in answer.headers)]
    if answer.framing == "length":
        length = len(answer.body) if answer.length is None else answer.length
        if answer.endless is None:
            lines.append(f"Content-Length: {length}")
        else:
            lines.append("Transfer-Encoding: chunked")
    if answer.framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
    if answer.close or answer.framing == "close":
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _send_body(writer: asyncio.StreamWriter, answer: Answer) -> None:
    chunked = answer.framing == "chunked" or (answer.framing == "length" and answer.endless is not None)
    while answer.endless is not None:
        await _send_piece(writer, answer.endless, chunked, answer.drip)
    body = answer.body if answer.cut is None else answer.body[: answer.cut]
    step = answer.piece if answer.drip is not None or chunked else max(len(body), 1)
    for start in range(0, len(body), step):
        await _send_piece(writer, body[start : start + step], chunked, answer.drip)
    if answer.cut is not None:
        _hang_up(writer, answer)
    if chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _send_piece(writer: asyncio.StreamWriter, piece: bytes, chunked: bool, drip: float | None) -> None:
    if drip is not None:
        await asyncio.sleep(drip)
    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
    await writer.drain()


def _hang_up(writer: asyncio.StreamWriter, answer: Answer) -> None:
    if answer.abort:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        writer.transport.abort()
    raise _Hung


def zipped(data: bytes) -> bytes:
    """``data`` as one gzip member."""
    return gzip.compress(data, mtime=0)


def gzip_bomb(size: int) -> bytes:
    """``size`` zero bytes as one gzip member (about a thousandth of it), made piece by piece."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    packed = [packer.compress(zeros) for _ in range(size >> 20)]
    return b"".join([*packed, packer.compress(bytes(size & 0xFFFFF)), packer.flush()])


def with_header(answer: Answer, name: str, value: str) -> Answer:
    """``answer`` with one more header field."""
    return replace(answer, headers=(*answer.headers, (name, value)))


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait up to five seconds for what happens on the other side."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come about within five seconds")


def refused_url(path: str = "") -> str:
    """An address on loopback where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}{path}"


@contextlib.contextmanager
def unanswered_url(path: str = "") -> Iterator[str]:
    """An address that takes no connection and refuses none: its queue of waiting connections is full."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}{path}"


def server_tls(authority: trustme.CA, *names: str, **options: Any) -> ssl.SSLContext:
    """A server context with a certificate of ``authority`` for ``names``; ``options`` go to ``issue_cert``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, **options).configure_cert(context)
    return context


def trusted(authority: trustme.CA) -> Sequence[bytes]:
    """The PEM certificates to trust so that ``authority``'s servers are."""
    return (authority.cert_pem.bytes(),)
