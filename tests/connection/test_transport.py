"""One exchange with a real server: an answer comes back whole and within its bounds, or not at all."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import zlib
from textwrap import dedent
from typing import Any

import psutil
import pytest

from bide.clock import SystemClock
from bide.connection import HttpClient
from bide.core.http import Request, Response
from bide.errors import CallError
from tests.servers import Answer, RawServer, eventually, gzip_bomb, refused_url, unanswered_url, zipped

MIB = 1 << 20


async def refusal(http: HttpClient, url: str, *, method: str = "GET", **options: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        await http.send(Request(method, url), **options)
    return caught.value


async def answered(http: HttpClient, server: RawServer, *answers: Answer, **options: Any) -> Response:
    server.script("/", *answers)
    return await http.send(Request("GET", server.url("/")), **options)


# --- whole answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_a_whole_answer_comes_back_as_it_was_sent(
    http: HttpClient, server: RawServer, framing: Any
) -> None:
    fields = (("ETag", 'W/"a,b"'), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))
    response = await answered(
        http, server, Answer(status=203, headers=fields, body=b"hello", framing=framing, piece=2)
    )
    assert (response.status, response.body, response.hops) == (203, b"hello", ())
    assert response.url == server.url("/")
    assert response.headers.get("etag") == 'W/"a,b"'
    assert response.headers.all("set-cookie") == ["a=1", "b=2"]


async def test_the_request_goes_out_as_it_was_made(http: HttpClient, server: RawServer) -> None:
    server.script("/", Answer())
    fields = (("X-One", "1"), ("X-One", "2"), ("Content-Type", "text/plain"))
    await http.send(Request("POST", server.url("/?a=1&b=%20"), fields, b"body"))
    (request,) = server.requests
    assert (request.method, request.target, request.body) == ("POST", "/?a=1&b=%20", b"body")
    assert [value for name, value in request.headers if name.lower() == "x-one"] == ["1", "2"]
    assert request.header("accept-encoding") == "gzip, deflate"
    assert (request.header("user-agent") or "").startswith("bide/")
    assert request.header("referer") is None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_a_request_without_its_usual_body_says_so(
    http: HttpClient, server: RawServer, method: str
) -> None:
    server.script("/", Answer())
    await http.send(Request(method, server.url("/")))
    assert server.requests[0].header("content-length") == "0"


async def test_a_proxy_named_in_the_environment_is_not_used(
    server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, refused_url())
    async with HttpClient() as http:
        assert (await answered(http, server, Answer())).status == 200


async def test_every_status_is_an_answer_to_the_transport(http: HttpClient, server: RawServer) -> None:
    for status in (201, 204, 304, 400, 404, 410, 429, 500, 503, 599, 999):
        framing: Any = "none" if status in (204, 304) else "length"
        assert (await answered(http, server, Answer(status=status, framing=framing))).status == status


async def test_a_304_or_an_answer_to_head_with_a_length_is_whole_without_a_body(
    http: HttpClient, server: RawServer
) -> None:
    server.script("/304", Answer.not_modified(("Content-Length", "10000"), ("ETag", '"b"')))
    server.script("/head", Answer(body=b"x" * 10_000))
    for method, path in (("GET", "/304"), ("HEAD", "/head")):
        response = await http.send(Request(method, server.url(path)), timeout=5)
        assert response.body == b""
        assert response.headers.get("content-length") == "10000"
    assert (await http.send(Request("GET", server.url("/304")))).headers.get("etag") == '"b"'
    assert server.connections == 1  # kept, so nothing was left unread on it


async def test_early_hints_before_the_answer_are_passed_over(http: HttpClient, server: RawServer) -> None:
    raw = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert (await answered(http, server, Answer(raw=raw))).body == b"ok"


async def test_header_fields_that_are_not_ascii_do_not_hide_the_others(
    http: HttpClient, server: RawServer
) -> None:
    fields = (("Server", "caf\xe9"), ("ETag", '"a"'), ("X-Two", "\xe9"), ("X-Two", "plain"))
    response = await answered(http, server, Answer(headers=fields, body=b"ok"))
    assert response.body == b"ok"
    assert response.headers.get("etag") == '"a"'
    assert response.headers.get("server") is None


# --- codings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize(
    ("codings", "packed"),
    [
        (("gzip",), zipped(b"hello")),
        (("x-gzip",), zipped(b"hello")),
        (("deflate",), zlib.compress(b"hello")),
        (("gzip",), zipped(b"hel") + zipped(b"lo")),
        (("gzip, gzip",), zipped(zipped(b"hello"))),
        (("deflate", "gzip"), zipped(zlib.compress(b"hello"))),
        (("identity",), b"hello"),
    ],
)
async def test_content_codings_are_undone(
    http: HttpClient, server: RawServer, codings: tuple[str, ...], packed: bytes, framing: Any
) -> None:
    fields = tuple(("Content-Encoding", coding) for coding in codings)
    assert (
        await answered(http, server, Answer(headers=fields, body=packed, framing=framing))
    ).body == b"hello"


@pytest.mark.parametrize(("coding", "body"), [("br", b"\x0b\x02\x80hello\x03"), ("gzip", b"hello")])
async def test_a_body_that_cannot_be_decoded_is_an_error(
    http: HttpClient, server: RawServer, coding: str, body: bytes
) -> None:
    server.script("/", Answer(headers=(("Content-Encoding", coding),), body=body))
    error = await refusal(http, server.url("/"))
    assert (error.kind, error.status, error.retryable) == ("encoding", 200, False)
    assert "'br'" in str(error) or "damaged" in str(error)


async def test_a_transfer_coding_that_was_not_asked_for_is_an_error(
    http: HttpClient, server: RawServer
) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
    packed = zipped(b"hello")
    server.script("/", Answer(raw=head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)))
    assert (await refusal(http, server.url("/"))).kind == "encoding"


async def test_an_error_page_that_cannot_be_decoded_keeps_its_status_and_may_pass(
    http: HttpClient, server: RawServer
) -> None:
    server.script("/", Answer(status=503, headers=(("Content-Encoding", "br"),), body=b"?"))
    error = await refusal(http, server.url("/"))
    assert (error.status, error.retryable) == (503, True)
    assert "503" in str(error)


# --- fault 16: a cut-off body is taken as whole ------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(body=b"x" * 10_000, cut=14), id="fewer bytes than announced"),
        pytest.param(Answer(body=b"x" * 100_000, cut=0), id="closed after the head"),
        pytest.param(Answer(body=b"x" * 100, cut=50, framing="chunked"), id="chunked without its last chunk"),
        pytest.param(Answer(body=b"x" * 10_000, cut=14, abort=True), id="reset in the middle"),
        pytest.param(
            Answer(headers=(("Content-Encoding", "gzip"),), body=zipped(b"hello")[:-8]),
            id="gzip without its trailer",
        ),
        pytest.param(
            Answer(headers=(("Content-Encoding", "gzip"),), body=zipped(b"hello")[:-8], framing="close"),
            id="gzip without its trailer, ended by closing",
        ),
    ],
)
async def test_a_cut_off_body_is_an_error_and_may_pass(
    http: HttpClient, server: RawServer, answer: Answer
) -> None:
    server.script("/", answer)
    error = await refusal(http, server.url("/"))
    assert (error.kind, error.retryable, error.sent) == ("incomplete", True, True)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"hello world\r\n\r\n", id="no HTTP"),
        pytest.param(b"<html>busy</html>", id="a page without a head"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 3\r\n\r\nabc", id="two lengths"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", id="a length below zero"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="a chunk of no size"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 2 * MIB + b"\r\n\r\n", id="an endless head"),
        pytest.param(b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", id="another protocol"),
    ],
)
async def test_what_is_not_http_is_an_error(http: HttpClient, server: RawServer, raw: bytes) -> None:
    server.script("/", Answer(raw=raw))
    error = await refusal(http, server.url("/"), timeout=5)
    assert (error.kind, error.retryable) == ("protocol", False)


# --- fault 14: a body that drips never times out -----------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer.silence(), id="no answer"),
        pytest.param(Answer(body=b"x" * 100, drip=0.05), id="a byte now and then"),
        pytest.param(Answer(endless=b"x", drip=0.02), id="chunks for ever"),
        pytest.param(
            Answer(headers=(("Content-Encoding", "gzip"),), body=gzip_bomb(MIB), drip=0.02),
            id="coded and dripping",
        ),
        pytest.param(Answer(body=b"x" * 100, drip=0.05, framing="close"), id="to be ended by closing"),
    ],
)
async def test_a_body_that_drips_ends_at_the_deadline_of_the_whole_call(
    http: HttpClient, server: RawServer, answer: Answer
) -> None:
    server.script("/", answer)
    began_at = time.monotonic()
    error = await refusal(http, server.url("/"), timeout=0.2)
    assert 0.15 < time.monotonic() - began_at < 5
    assert (error.kind, error.retryable, error.sent) == ("timeout", True, True)
    assert "200ms" in str(error)
    await eventually(lambda: server.open_connections == 0)


async def test_redirects_share_the_deadline_of_the_call(http: HttpClient, server: RawServer) -> None:
    for number in range(5):
        server.script(f"/{number}", Answer.redirect(302, f"/{number + 1}", delay=0.15))
    server.script("/5", Answer(body=b"too late"))
    began_at = time.monotonic()
    assert (await refusal(http, server.url("/0"), timeout=0.4)).kind == "timeout"
    assert time.monotonic() - began_at < 5
    assert server.count("/5") == 0


async def test_a_connection_that_is_not_taken_has_a_deadline_of_its_own() -> None:
    with unanswered_url("/x") as url:
        async with HttpClient(connect_timeout=0.1) as http:
            error = await refusal(http, url, timeout=20)
    assert (error.kind, error.retryable, error.sent) == ("timeout", True, False)
    assert "no connection" in str(error)


async def test_a_tls_handshake_that_never_ends_has_it_too() -> None:
    hung_up = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        hung_up.set()

    listener = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with listener, HttpClient(connect_timeout=0.1) as http:
        port = listener.sockets[0].getsockname()[1]
        error = await refusal(http, f"https://127.0.0.1:{port}/", timeout=20)
        await hung_up.wait()
    assert (error.kind, error.sent) == ("timeout", False)


# --- fault 15: a small compressed answer fills the memory --------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(headers=(("Content-Encoding", "gzip"),), body=gzip_bomb(256 * MIB)), id="gzip"),
        pytest.param(
            Answer(headers=(("Content-Encoding", "gzip, gzip"),), body=zipped(gzip_bomb(256 * MIB))),
            id="gzip twice",
        ),
        pytest.param(
            Answer(headers=(("Content-Encoding", "gzip"),), body=zipped(b"[]") + gzip_bomb(64 * MIB)),
            id="in the second member",
        ),
        pytest.param(Answer(endless=b"x" * 65536), id="plain and endless"),
        pytest.param(
            Answer(headers=(("Content-Encoding", "gzip"),), endless=zipped(b"") * 1000),
            id="coded, endless and empty",
        ),
        pytest.param(Answer(endless=b"x" * 65536, framing="close"), id="ended by closing, never"),
        pytest.param(Answer(length=200 * MIB, body=bytes(128 * 1024)), id="announced, and then nothing"),
    ],
)
async def test_an_answer_that_would_fill_the_memory_is_stopped_at_the_cap(
    http: HttpClient, server: RawServer, answer: Answer
) -> None:
    server.script("/", answer)
    process = psutil.Process()
    before = process.memory_info().rss
    error = await refusal(http, server.url("/"), cap=2 * MIB, timeout=20)
    assert (error.kind, error.retryable) == ("too_large", False)
    assert str(2 * MIB) in str(error)
    assert process.memory_info().rss - before < 64 * MIB
    await eventually(lambda: server.running == 0)


async def test_bodies_up_to_the_cap_are_taken(http: HttpClient, server: RawServer) -> None:
    for framing in ("length", "chunked"):
        answer = Answer(body=b"x" * MIB, framing=framing, piece=50_000)
        assert len((await answered(http, server, answer, cap=MIB)).body) == MIB
        server.script("/more", Answer(body=b"x" * (MIB + 1), framing=framing, piece=50_000))
        assert (await refusal(http, server.url("/more"), cap=MIB)).kind == "too_large"


async def test_very_many_very_small_chunks_are_put_together(http: HttpClient, server: RawServer) -> None:
    answer = Answer(body=bytes(range(256)) * 20, framing="chunked", piece=1)
    assert (await answered(http, server, answer)).body == bytes(range(256)) * 20


# --- connections -------------------------------------------------------------------------------------------


async def test_a_connection_is_kept_for_the_next_request(http: HttpClient, server: RawServer) -> None:
    for _ in range(3):
        await answered(http, server, Answer(body=b"x"))
    assert server.connections == 1


async def test_a_kept_connection_that_the_server_closed_is_noticed(
    http: HttpClient, server: RawServer
) -> None:
    await answered(http, server, Answer(body=b"x"))
    await server.stop()
    await server.start()
    await asyncio.sleep(0.2)  # the client hears of it on a thread of its own
    assert (await http.send(Request("POST", server.url("/"), body=b"x"))).status == 200
    assert [request.method for request in server.requests] == ["GET", "POST"]


@pytest.mark.parametrize("abort", [False, True])
async def test_a_read_lost_on_a_kept_connection_is_asked_again_at_once(
    http: HttpClient, server: RawServer, abort: bool
) -> None:
    for method in ("GET", "HEAD", "OPTIONS"):
        server.script("/", Answer(body=b"first"), Answer.hang_up(abort=abort), Answer(status=201))
        assert (await http.send(Request("GET", server.url("/")))).status == 200
        assert (await http.send(Request(method, server.url("/")))).status == 201
    assert len(server.requests) == 9


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_that_may_have_been_received_is_never_sent_again(
    http: HttpClient, server: RawServer, method: str, abort: bool
) -> None:
    server.script("/", Answer(body=b"first"), Answer.hang_up(abort=abort), Answer(status=201))
    await http.send(Request("GET", server.url("/")))
    error = await refusal(http, server.url("/"), method=method)
    assert (error.kind, error.sent) == ("reset", True)
    assert len(server.requests) == 2


async def test_a_server_that_never_answered_is_not_asked_twice(http: HttpClient, server: RawServer) -> None:
    server.script("/", Answer.hang_up())
    assert (await refusal(http, server.url("/"))).kind == "reset"
    assert len(server.requests) == 1


async def test_a_read_is_asked_again_only_once(http: HttpClient, server: RawServer) -> None:
    server.script("/", Answer(), Answer.hang_up())
    await http.send(Request("GET", server.url("/")))
    assert (await refusal(http, server.url("/"))).kind == "reset"
    assert len(server.requests) == 3


async def test_origins_that_answered_are_not_remembered_without_end(
    http: HttpClient, server: RawServer
) -> None:
    for number in range(5):
        await http.send(Request("GET", f"http://user{number}@127.0.0.1:{server.port}/"))
    http._answered.update(f"http://host{number}" for number in range(1000))
    await http.send(Request("GET", server.url("/")))
    assert http._answered == {server.url()}


# --- leaving -----------------------------------------------------------------------------------------------


async def test_a_closed_client_says_so(server: RawServer) -> None:
    http = HttpClient(clock=SystemClock())
    await http.close()
    error = await refusal(http, server.url("/"))
    assert (error.kind, error.retryable) == ("reset", False)


@pytest.mark.parametrize("closed", [True, False])
def test_the_process_ends_in_order_right_after_a_call(closed: bool) -> None:
    program = dedent(f"""
        import asyncio
        from bide.connection import HttpClient
        from bide.core.http import Request
        async def main():
            http = HttpClient(connect_timeout=0.05)
            for url in ("{refused_url()}", "http://name.invalid/", "https://127.0.0.1:1/"):
                try:
                    await http.send(Request("GET", url), timeout=0.05)
                except Exception:
                    pass
            if {closed}:
                await http.close()
        asyncio.run(main())
    """)
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=False)
        assert (ended.returncode, ended.stderr) == (0, b"")
