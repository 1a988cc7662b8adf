"""One HTTP call over the network, whole or not at all.

Built on pyreqwest with everything that it would do by itself switched off: it decodes no body (a small one could
become gigabytes before anybody looks), follows no redirect (credentials would travel), takes no proxy from the
environment and sends no Referer. What is kept of it: its connection pool, its TLS and its deadline.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence
from datetime import timedelta
from functools import cache, lru_cache
from types import TracebackType
from typing import Self

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.http import Url
from pyreqwest.request import StreamRequest
from pyreqwest.response import Response as WireResponse

from bide import __version__
from bide.clock import Clock, SystemClock
from bide.connection.decoding import ACCEPTED, Body, BodyError, codings_of
from bide.connection.failures import failure, failure_of
from bide.connection.redirects import STATUSES, next_hop
from bide.core.durations import format_duration
from bide.core.http import READS, Headers, Request, Response, shown_url

CALL_DEADLINE = 30.0
"""Seconds from the first connection to the last byte, redirects included."""

CONNECT_TIMEOUT = 5.0
"""Seconds for one connection: name, TCP and TLS."""

CAP = 10 * 1024 * 1024
"""Most bytes of a decoded body."""

REDIRECTS = 5
"""Most redirects of one call."""

_BODILESS = frozenset({204, 304})
_AT_ONCE = 1 << 16
"""Bodies announced to be no longer than this are read in one go."""

_MOST_ORIGINS = 1000
"""Redirects may lead to ever new origins; those remembered do not grow without bound."""

_TAKES_BODY = frozenset({"POST", "PUT", "PATCH"})


class HttpClient:
    """Sends requests and brings back whole answers; one for an app, shared by all its connections.

    ``trust`` are PEM certificates of authorities trusted besides those of the machine. An async context manager,
    or to be closed by hand.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        user_agent: str = f"bide/{__version__}",
        trust: Sequence[bytes] = (),
    ) -> None:
        _settle_at_exit()
        self._clock = clock or SystemClock()
        self._client = _wire_client(connect_timeout, user_agent, trust)
        self._answered: set[str] = set()
        """Origins that have answered before, to which a kept connection may be open."""

    async def send(
        self,
        request: Request,
        *,
        timeout: float = CALL_DEADLINE,
        cap: int = CAP,
        redirects: int = REDIRECTS,
        same_origin: bool = False,
        bound: frozenset[str] = frozenset(),
        shown: str | None = None,
    ) -> Response:
        """Send ``request`` and read the whole answer, whatever its status, within ``timeout`` seconds.

        ``cap``: most bytes of the body, decoded and on the wire. ``redirects``: how many are followed;
        ``same_origin``: only to the same scheme, host and port. ``bound``: lower-case names of headers that
        another origin must not see, besides Authorization, Cookie and Proxy-Authorization. ``shown``: the address
        for messages where the real path holds a secret.

        A cancelled call whose answer has not begun leaves its request running in the client library, which cannot
        call it back; the connection is then closed at the end of ``timeout``. (Once a body comes, it is closed
        at once.)

        Raises ``CallError`` of the kinds in :data:`bide.connection.failures.CallErrorKind`, but for ``"status"``,
        ``"environment"`` and ``"function"``.
        """
        hidden = shown is not None
        ends_at = self._clock.monotonic() + timeout
        answer = await self._exchange(request, timeout, ends_at, cap, shown)
        if answer.status not in STATUSES:
            return answer
        hops: tuple[int, ...] = ()
        while answer.status in STATUSES:
            here = shown or shown_url(request.url)
            if len(hops) == redirects:
                reason = f"redirected more than {redirects} times; is it a loop?"
                raise failure("redirects", f"{request.method} {here}", reason, status=answer.status)
            hops = (*hops, answer.status)
            hop = next_hop(
                request,
                answer.status,
                answer.headers.get("location"),
                shown=here,
                hidden=hidden,
                bound=bound,
                same_origin=same_origin,
            )
            request, shown = hop.request, hop.shown
            answer = await self._exchange(request, timeout, ends_at, cap, shown)
        return Response(answer.status, answer.headers, answer.body, answer.url, hops)

    async def _exchange(
        self, request: Request, allowed: float, ends_at: float, cap: int, shown: str | None
    ) -> Response:
        """One request and its answer; asked a second time at once where the first was lost to a kept connection.

        A server may close a connection in the moment in which it is used again. Where nothing was sent the client
        library uses another one; where something was, only a read is asked for again.
        """
        end = request.url.find("/", len("https://"))
        origin = request.url[:end] if end > 0 else request.url
        again = False
        while True:
            status: int | None = None
            try:
                async with self._wired(request, ends_at) as wire:
                    status = wire.status
                    headers = _headers(wire)
                    if status in _BODILESS or status in STATUSES or request.method == "HEAD":
                        body = b""
                    elif status < 200:
                        raise BodyError("protocol", "is an interim one and ended the exchange")
                    else:
                        body = await _read(wire, headers, cap)
            except (PyreqwestError, BodyError, ValueError) as error:
                failed = failure_of(
                    error,
                    f"{request.method} {shown or shown_url(request.url)}",
                    allowed=format_duration(timedelta(seconds=allowed)),
                    status=status,
                )
            else:
                self._remember(origin)
                return Response(status, headers, body, request.url)
            kept = failed.kind == "reset" and origin in self._answered
            if again or not kept or request.method not in READS:
                raise failed  # here, so that no traceback shows the library's error, which names the whole address
            again = True

    def _wired(self, request: Request, ends_at: float) -> StreamRequest:
        """``request`` as the client library sends it. Raises ``ValueError`` for one that cannot be sent."""
        within = timedelta(seconds=max(ends_at - self._clock.monotonic(), 0.001))
        building = self._client.request(request.method, _url(request.url)).timeout(within)
        if request.headers:
            building = building.headers(request.headers)
        if request.body is not None:
            building = building.body_bytes(request.body)
        elif request.method in _TAKES_BODY:
            building = building.header("Content-Length", "0")  # RFC 9110, 8.6
        return building.build_streamed()

    def _remember(self, origin: str) -> None:
        if origin in self._answered:
            return
        if len(self._answered) >= _MOST_ORIGINS:
            self._answered.clear()
        self._answered.add(origin)

    async def close(self) -> None:
        """Close every connection. What is being sent meanwhile fails."""
        await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _wire_client(connect_timeout: float, user_agent: str, trust: Sequence[bytes]) -> Client:
    builder = ClientBuilder().gzip(False).deflate(False).brotli(False).zstd(False)
    builder = builder.follow_redirects(False).referer(False).no_proxy()
    builder = builder.connect_timeout(timedelta(seconds=connect_timeout)).user_agent(user_agent)
    builder = builder.default_headers({"Accept-Encoding": ACCEPTED})
    for certificate in trust:
        builder = builder.add_root_certificate_pem(certificate)
    return builder.build()


@lru_cache(maxsize=20_000)
def _url(address: str) -> Url:
    """``address`` as the client library reads it, which takes longer than all else that is done to send it."""
    return Url(address)


def _headers(wire: WireResponse) -> Headers:
    """The header fields; those that are not ASCII cannot be had from the client library and are left out."""
    try:
        return Headers(wire.headers.items())
    except ValueError:
        return Headers(pair for name in wire.headers for pair in _readable(wire, name))


def _readable(wire: WireResponse, name: str) -> list[tuple[str, str]]:
    try:
        return [(name, value) for value in wire.get_header_all(name)]
    except ValueError:
        return []


async def _read(wire: WireResponse, headers: Headers, cap: int) -> bytes:
    """The decoded body, whole. The client library sees to it that no byte that was announced is missing."""
    transfer = headers.get("transfer-encoding")
    if transfer is not None and transfer.strip().lower() != "chunked":
        raise BodyError("encoding", "came in a transfer coding that was not asked for")
    codings = codings_of(headers.all("content-encoding"))
    body = Body(codings, cap)
    if transfer is None and (length := _length(headers)) is not None:
        body.expect(length)
        if length <= _AT_ONCE:
            data = bytes(await wire.bytes())
            if not codings:
                return data
            body.feed(data)
            return body.finish()
    reader = wire.body_reader
    while (piece := await reader.read(_AT_ONCE)) is not None:
        body.feed(bytes(piece))
    return body.finish()


def _length(headers: Headers) -> int | None:
    announced = headers.get("content-length")
    return int(announced) if announced is not None and announced.isdecimal() and len(announced) < 20 else None


@cache
def _settle_at_exit() -> None:
    """Give the client library's thread a moment to let go of the interpreter before that is taken down.

    It may still be on its way out of the call that woke the event loop, and the interpreter of Python 3.11 aborts
    the process when such a thread comes back to it too late.
    """
    atexit.register(threading.Event().wait, 0.02)
