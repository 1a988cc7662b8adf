"""Every way a call fails has its kind, says what to do, and gives no secret away."""

from __future__ import annotations

import asyncio
import logging
import socket
import traceback
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
import trustme
from pyreqwest.exceptions import (
    CauseErrorDetails,
    ConnectError,
    PyreqwestError,
    RequestPanicError,
    WriteError,
)

from bide.connection import CallErrorKind, HttpClient
from bide.connection.failures import RETRYABLE, failure_of
from bide.core.http import Request
from bide.errors import CallError
from tests.servers import Answer, RawServer, refused_url, server_tls, trusted, unanswered_url, zipped

CANARY = "canary-7d31"


async def refusal(http: HttpClient, url: str, *, timeout: float = 5.0) -> CallError:
    with pytest.raises(CallError) as caught:
        await http.send(Request("GET", url), timeout=timeout)
    return caught.value


async def test_a_refused_connection(http: HttpClient) -> None:
    url = refused_url("/x")
    error = await refusal(http, url)
    assert (error.kind, error.retryable, error.sent) == ("refused", True, False)
    assert str(error).startswith(f"GET {url}: connection refused; is the server running")


async def test_a_name_that_does_not_resolve(http: HttpClient) -> None:
    error = await refusal(http, "http://no.such.host.invalid/x")
    assert (error.kind, error.retryable, error.sent) == ("unresolved", True, False)
    assert "does not resolve" in str(error)


@pytest.mark.parametrize(
    "url",
    ["", "price", "/price", "http://", "http://127.0.0.1:99999/", "http://a b/", "ftp://h/x", "mailto:a@b"],
)
async def test_what_is_no_address(http: HttpClient, url: str) -> None:
    error = await refusal(http, url)
    assert (error.kind, error.retryable, error.sent) == ("address", False, False)


@pytest.mark.parametrize("field", [("A b", "x"), ("A", "x\r\nB: y"), ("", "x")])
async def test_a_header_that_cannot_be_sent(
    http: HttpClient, server: RawServer, field: tuple[str, str]
) -> None:
    with pytest.raises(CallError) as caught:
        await http.send(Request("GET", server.url("/"), (field,)))
    assert (caught.value.kind, caught.value.sent) == ("address", False)
    assert server.requests == []


async def test_a_connection_that_is_closed_or_reset_before_an_answer(
    http: HttpClient, server: RawServer
) -> None:
    for abort in (False, True):
        server.script("/", Answer.hang_up(abort=abort))
        error = await refusal(http, server.url("/"))
        assert (error.kind, error.retryable, error.sent) == ("reset", True, True)


# --- TLS ---------------------------------------------------------------------------------------------------

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
FAR_AHEAD = datetime(2099, 1, 1, tzinfo=UTC)


async def tls_failure(served: trustme.CA, name: str, trust: trustme.CA, **options: datetime) -> CallError:
    async with (
        RawServer(tls=server_tls(served, name, **options)) as server,
        HttpClient(trust=trusted(trust)) as http,
    ):
        server.script("/", Answer(body=b"secret"))
        error = await refusal(http, server.url("/"))
        assert server.requests == []
    assert (error.kind, error.retryable, error.sent) == ("tls", False, False)
    return error


async def test_a_trusted_certificate_is_taken() -> None:
    authority = trustme.CA()
    async with (
        RawServer(tls=server_tls(authority, "127.0.0.1")) as server,
        HttpClient(trust=trusted(authority)) as http,
    ):
        server.script("/", Answer(body=b"ok"))
        assert (await http.send(Request("GET", server.url("/")))).body == b"ok"


async def test_a_certificate_signed_by_nobody_trusted() -> None:
    assert "nobody trusted" in str(await tls_failure(trustme.CA(), "127.0.0.1", trustme.CA()))


async def test_a_certificate_for_another_name() -> None:
    authority = trustme.CA()
    assert "another name" in str(await tls_failure(authority, "example.org", authority))


async def test_a_certificate_that_has_expired() -> None:
    authority = trustme.CA()
    day = LONG_AGO + timedelta(days=1)
    error = await tls_failure(authority, "127.0.0.1", authority, not_before=LONG_AGO, not_after=day)
    assert "has expired" in str(error)


async def test_a_certificate_that_is_not_valid_yet() -> None:
    authority = trustme.CA()
    day = FAR_AHEAD + timedelta(days=1)
    error = await tls_failure(authority, "127.0.0.1", authority, not_before=FAR_AHEAD, not_after=day)
    assert "not valid yet" in str(error)


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "tls", "speaks no TLS"), (b"", "tls", "broke off")],
)
async def test_a_server_without_tls(http: HttpClient, said: bytes, kind: str, words: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(said)
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        error = await refusal(http, f"https://127.0.0.1:{port}/")
    assert (error.kind, error.sent) == (kind, False)
    assert words in str(error)


async def test_a_connection_reset_during_the_handshake(http: HttpClient) -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        writer.transport.abort()

    listener = await asyncio.start_server(reset, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        error = await refusal(http, f"https://127.0.0.1:{port}/")
    assert (error.kind, error.retryable, error.sent) == ("reset", True, False)


# --- the rest of what the client library can raise ---------------------------------------------------------


def mapped(error: Exception, status: int | None = None) -> CallError:
    return failure_of(error, "GET http://h/x", allowed="30s", status=status)


def causes(*messages: str) -> CauseErrorDetails:
    return {"causes": [{"message": message} for message in messages]}


@pytest.mark.parametrize(
    ("last", "kind", "words"),
    [
        ("Network is unreachable (os error 101)", "refused", "no connection: Network is unreachable"),
        ("No route to host (os error 113)", "refused", "No route to host"),
        ("invalid peer certificate: certificate revoked", "tls", "was revoked"),
        ("invalid peer certificate: BadEncoding", "tls", "is invalid"),
        ("received fatal alert: HandshakeFailure", "tls", "refused the TLS handshake"),
        ("peer is incompatible: NoCipherSuitesInCommon", "tls", "in common"),
    ],
)
def test_failures_to_connect_that_are_hard_to_bring_about(last: str, kind: str, words: str) -> None:
    error = mapped(
        ConnectError("connection error", causes("url", "client error (Connect)", "tcp connect error", last))
    )
    assert (error.kind, error.sent) == (kind, False)
    assert words in str(error)
    assert "os error" not in str(error)


def test_failures_that_nobody_foresaw_have_a_kind_too() -> None:
    first = f"error sending request for url (http://h/x?key={CANARY})"
    assert mapped(WriteError("w", causes(first, "Broken pipe (os error 32)"))).kind == "reset"
    panic = mapped(RequestPanicError("p", causes(first)))
    assert panic.kind == "reset"
    assert CANARY not in str(panic)
    assert "RequestPanicError" in str(panic)
    assert mapped(PyreqwestError("odd")).kind == "reset"
    assert mapped(WriteError("w", {"causes": None})).kind == "reset"


def test_the_kinds_that_may_pass_are_kinds() -> None:
    assert set(get_args(CallErrorKind)) > RETRYABLE


# --- secrets -----------------------------------------------------------------------------------------------


async def test_no_failure_shows_a_secret(server: RawServer, caplog: pytest.LogCaptureFixture) -> None:
    """Header values, query, user and password are in no message, no representation and no traceback."""
    caplog.set_level(logging.DEBUG)
    server.script("/reset", Answer.hang_up())
    server.script("/cut", Answer(body=b"x" * 100, cut=10))
    server.script("/garbage", Answer(raw=b"hello\r\n\r\n"))
    server.script("/slow", Answer.silence())
    server.script("/br", Answer(headers=(("Content-Encoding", "br"),), body=b"x"))
    server.script("/bomb", Answer(headers=(("Content-Encoding", "gzip"),), body=zipped(bytes(10_000))))
    server.script("/loop", Answer.redirect(302, f"/loop?key={CANARY}"))
    server.script("/scheme", Answer.redirect(302, f"ftp://user:{CANARY}@h/x?{CANARY}"))
    paths = ("/reset", "/cut", "/garbage", "/slow", "/br", "/bomb", "/loop", "/scheme")
    origins = [server.url(path) for path in paths]
    seen = set()
    with unanswered_url("/x") as unanswered:
        origins += [
            refused_url("/x"),
            "http://no.such.host.invalid/x",
            "ftp://h/x",
            "http://h:99999/x",
            unanswered,
        ]
        async with HttpClient(connect_timeout=0.1) as http:
            for url in origins:
                secret = url.replace("://", f"://user:{CANARY}@") + f"?key={CANARY}#{CANARY}"
                request = Request("GET", secret, (("Authorization", CANARY), ("X", CANARY)), CANARY.encode())
                assert CANARY not in repr(request)
                with pytest.raises(CallError) as caught:
                    await http.send(request, timeout=0.15, cap=1000)
                seen.add(caught.value.kind)
                told = "".join(traceback.format_exception(caught.value))
                assert CANARY not in told + repr(caught.value)
                assert caught.value.__cause__ is None
                assert caught.value.__context__ is None
    assert seen == {
        "reset", "incomplete", "protocol", "timeout", "encoding", "too_large", "redirects", "refused", "unresolved",
        "address",
    }  # fmt: skip
    assert CANARY not in caplog.text
