"""Redirects are followed within bounds, keep each hop's status, and carry no credentials away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trustme

from bide.connection import HttpClient
from bide.core.http import Request, Response
from bide.errors import CallError
from tests.servers import Answer, RawServer, Received, server_tls, trusted

SECRETS = (
    ("Authorization", "Bearer canary"),
    ("Cookie", "canary"),
    ("Proxy-Authorization", "canary"),
    ("X-Key", "canary"),
)
FIELDS = (*SECRETS, ("If-None-Match", '"a"'), ("Accept", "application/json"))


@pytest.fixture
async def other() -> AsyncIterator[RawServer]:
    """Another origin: the same host, another port."""
    async with RawServer() as running:
        yield running


async def send(http: HttpClient, url: str, method: str = "GET", **options: Any) -> Response:
    body = options.pop("body", None)
    fields = options.pop("headers", ())
    return await http.send(Request(method, url, fields, body), **options)


async def refusal(http: HttpClient, url: str, method: str = "GET", **options: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        await send(http, url, method, **options)
    assert caught.value.kind == "redirects"
    assert not caught.value.retryable
    return caught.value


def carried(request: Received) -> set[str]:
    return {name.lower() for name, _ in request.headers}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_and_its_status_kept(
    http: HttpClient, server: RawServer, status: int
) -> None:
    server.script("/a", Answer.redirect(status, "/b?x=1", body=b"moved"))
    server.script("/b", Answer(body=b"here"))
    response = await send(http, server.url("/a"), headers=FIELDS)
    assert (response.status, response.body, response.hops) == (200, b"here", (status,))
    assert response.url == server.url("/b?x=1")
    assert carried(server.requests[1]) >= {name.lower() for name, _ in FIELDS}


async def test_a_permanent_redirect_is_not_remembered(http: HttpClient, server: RawServer) -> None:
    server.script("/a", Answer.redirect(301, "/b"), Answer.redirect(308, "/b"), Answer(body=b"back"))
    server.script("/b", Answer(body=b"maintenance"))
    bodies = [(await send(http, server.url("/a"))).body for _ in range(3)]
    assert bodies == [b"maintenance", b"maintenance", b"back"]


async def test_304_at_the_end_of_a_redirect_is_304(http: HttpClient, server: RawServer) -> None:
    server.script("/a", Answer.redirect(301, "/b"))
    server.script("/b", Answer.not_modified())
    response = await send(http, server.url("/a"), headers=FIELDS)
    assert (response.status, response.hops) == (304, (301,))
    assert server.requests[1].header("if-none-match") == '"a"'


@pytest.mark.parametrize("status", [300, 304, 305, 306])
async def test_other_statuses_of_the_300s_are_not_followed(
    http: HttpClient, server: RawServer, status: int
) -> None:
    server.script("/a", Answer(status=status, headers=(("Location", "/b"),), framing="none", close=True))
    assert (await send(http, server.url("/a"))).status == status
    assert server.count("/b") == 0


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("b", "/dir/b"),
        ("../b", "/b"),
        ("?q=1", "/dir/a?q=1"),
        ("/b#part", "/b"),
        ("//{host}/b", "/b"),
        ("{origin}/b", "/b"),
        ("/with space", "/with%20space"),
        ("", "/dir/a"),
    ],
)
async def test_a_location_is_read_from_where_it_was_given(
    http: HttpClient, server: RawServer, location: str, target: str
) -> None:
    host = f"{server.host}:{server.port}"
    there = location.format(host=host, origin=server.url())
    server.script("/dir/a", Answer.redirect(302, there), Answer())
    for path in ("/b", "/with%20space"):
        server.script(path, Answer())
    await send(http, server.url("/dir/a"))
    assert server.requests[1].target == target


# --- bounds ------------------------------------------------------------------------------------------------


async def test_five_redirects_are_followed_and_a_sixth_is_not(http: HttpClient, server: RawServer) -> None:
    for number in range(6):
        server.script(f"/{number}", Answer.redirect(302, f"/{number + 1}"))
    server.script("/6", Answer(body=b"end"))
    assert (await send(http, server.url("/1"))).hops == (302,) * 5
    error = await refusal(http, server.url("/0"))
    assert error.status == 302
    assert "more than 5" in str(error)


async def test_a_loop_ends(http: HttpClient, server: RawServer) -> None:
    server.script("/a", Answer.redirect(302, "/b"))
    server.script("/b", Answer.redirect(302, "/a"))
    await refusal(http, server.url("/a"))
    assert len(server.requests) == 6


async def test_the_bound_can_be_set(http: HttpClient, server: RawServer) -> None:
    server.script("/a", Answer.redirect(302, "/b"))
    await refusal(http, server.url("/a"), redirects=0)
    assert server.count("/b") == 0


@pytest.mark.parametrize(
    "location",
    [
        None,
        "ftp://127.0.0.1/x",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:,x",
        "http://",
        "http://127.0.0.1:99999/",
        "http://[::1",
        "///127.0.0.1:1/x",
    ],
)
async def test_a_redirect_to_nowhere_or_another_scheme_is_refused(
    http: HttpClient, server: RawServer, location: str | None
) -> None:
    server.script("/a", Answer.redirect(301, location))
    error = await refusal(http, server.url("/a"))
    assert (error.status, len(server.requests)) == (301, 1)
    assert server.url("/a") in str(error)
    assert "301" in str(error)


# --- methods (RFC 9110, 15.4) ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "status", "then"),
    [
        ("POST", 301, "GET"),
        ("POST", 302, "GET"),
        ("POST", 303, "GET"),
        ("PUT", 303, "GET"),
        ("DELETE", 303, "GET"),
        ("HEAD", 303, "HEAD"),
        ("HEAD", 302, "HEAD"),
        ("POST", 307, "POST"),
        ("POST", 308, "POST"),
        ("PUT", 301, "PUT"),
        ("PATCH", 302, "PATCH"),
        ("DELETE", 307, "DELETE"),
    ],
)
async def test_the_method_and_the_body_follow_the_rules(
    http: HttpClient, server: RawServer, method: str, status: int, then: str
) -> None:
    server.script("/a", Answer.redirect(status, "/b"))
    server.script("/b", Answer())
    body = b"{}" if method in ("POST", "PUT", "PATCH") else None
    fields = (("X-Keep", "1"), *((("Content-Type", "application/json"),) if body else ()))
    await send(http, server.url("/a"), method, body=body, headers=fields)
    request = server.requests[1]
    assert request.method == then
    assert request.body == (body if then == method and body else b"")
    assert (request.header("content-type") is not None) == bool(request.body)
    assert request.header("x-keep") == "1"


# --- other origins -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_credentials_stay_with_their_origin(
    http: HttpClient, server: RawServer, other: RawServer, status: int
) -> None:
    server.script("/a", Answer.redirect(status, other.url("/b")))
    other.script("/b", Answer(body=b"there"))
    response = await send(http, server.url("/a"), headers=FIELDS, bound=frozenset({"x-key"}))
    assert response.body == b"there"
    assert not carried(other.requests[0]) & {name.lower() for name, _ in SECRETS}
    assert "canary" not in repr(other.requests)
    assert other.requests[0].header("if-none-match") == '"a"'


async def test_credentials_do_not_come_back_by_a_detour(
    http: HttpClient, server: RawServer, other: RawServer
) -> None:
    server.script("/a", Answer.redirect(302, other.url("/b")))
    other.script("/b", Answer.redirect(302, server.url("/c")))
    server.script("/c", Answer())
    response = await send(http, server.url("/a"), headers=FIELDS, bound=frozenset({"x-key"}))
    assert response.hops == (302, 302)
    assert "canary" in repr(server.requests[0])
    assert "canary" not in repr(server.requests[1])


async def test_a_user_in_the_address_stays_with_its_origin(
    http: HttpClient, server: RawServer, other: RawServer
) -> None:
    server.script("/a", Answer.redirect(302, other.url("/b")))
    other.script("/b", Answer())
    await send(http, server.url("/a").replace("://", "://user:canary@"))
    assert server.requests[0].header("authorization") is not None
    assert other.requests[0].header("authorization") is None


async def test_another_host_name_of_the_same_machine_is_another_origin(
    http: HttpClient, server: RawServer
) -> None:
    server.script("/a", Answer.redirect(302, f"http://localhost:{server.port}/b"))
    server.script("/b", Answer())
    await send(http, server.url("/a"), headers=FIELDS)
    assert server.requests[1].header("authorization") is None


@pytest.mark.parametrize("location", ["\\\\{there}\\b", "/\\{there}/b", "http:\\\\{there}/b"])
async def test_odd_slashes_do_not_pass_for_the_same_origin(
    http: HttpClient, server: RawServer, other: RawServer, location: str
) -> None:
    server.script("/a", Answer.redirect(302, location.format(there=f"{other.host}:{other.port}")))
    other.script("/b", Answer())
    await send(http, server.url("/a"), headers=FIELDS, bound=frozenset({"x-key"}))
    assert "canary" not in repr(other.requests)
    assert len(other.requests) == 1


async def test_a_body_is_not_sent_to_another_origin(
    http: HttpClient, server: RawServer, other: RawServer
) -> None:
    server.script("/a", Answer.redirect(307, other.url("/b")))
    await refusal(http, server.url("/a"), "POST", body=b"canary")
    assert other.requests == []


async def test_another_origin_can_be_ruled_out(http: HttpClient, server: RawServer, other: RawServer) -> None:
    server.script("/a", Answer.redirect(302, "/b"))
    server.script("/b", Answer.redirect(302, other.url("/c?key=canary")))
    error = await refusal(http, server.url("/a"), same_origin=True)
    assert server.count("/b") == 1
    assert other.requests == []
    assert other.url("/c") in str(error)
    assert "canary" not in str(error)


async def test_a_secure_call_is_not_continued_in_the_clear(other: RawServer) -> None:
    authority = trustme.CA()
    async with (
        RawServer(tls=server_tls(authority, "127.0.0.1")) as secure,
        HttpClient(trust=trusted(authority)) as http,
    ):
        secure.script("/a", Answer.redirect(302, other.url("/b")))
        secure.script("/c", Answer.redirect(302, "/d"))
        secure.script("/d", Answer(body=b"ok"))
        assert "in the clear" in str(await refusal(http, secure.url("/a")))
        assert (await send(http, secure.url("/c"))).body == b"ok"
    assert other.requests == []


async def test_a_path_that_holds_a_secret_is_not_shown_on_the_way(
    http: HttpClient, server: RawServer
) -> None:
    server.script("/canary/a", Answer.redirect(302, "/canary/b"))
    server.script("/canary/b", Answer.redirect(302, None))
    error = await refusal(http, server.url("/canary/a"), shown=server.url("/${TOKEN}/a"))
    assert "canary" not in str(error)
    assert server.url() in str(error)
