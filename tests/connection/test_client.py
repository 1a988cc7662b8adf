"""The client of a connection, over real sockets: operations, users' requests, functions, cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bide.clock import SystemClock
from bide.connection import Client, ConnectionClient, HttpClient
from bide.connection.preparing import joined
from bide.core.answer import Reader
from bide.core.conditional import Validators
from bide.core.declaration import Connection, Operation, RequestTemplate
from bide.core.http import Request
from bide.core.template import Template
from bide.errors import AnswerError, CallError, NoFreeSlot
from bide.slots import Slots
from bide.telemetry import CallAttempted, Record, Telemetry
from tests.servers import Answer, RawServer, Received, Resource, eventually, refused_url

CANARY = "canary-51c0"


def templates(texts: Mapping[str, str]) -> dict[str, Template]:
    return {name: Template(text) for name, text in texts.items()}


def operation(
    path: str = "/price",
    *,
    method: str = "GET",
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    **rest: Any,
) -> Operation:
    request = RequestTemplate(method, Template(path), templates(query or {}), templates(headers or {}), body)
    return Operation("price", {}, Reader({}), request=request, **rest)


def function(work: Callable[[Client], Awaitable[Any]], **rest: Any) -> Operation:
    return Operation("report", {}, Reader({}), function=work, **rest)


class Rig:
    """A connection ``eu`` whose client and slots are real; ``records`` is what telemetry heard."""

    def __init__(
        self,
        http: HttpClient,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        environment: dict[str, str] | None = None,
        cap: int | None = None,
    ) -> None:
        self.records: list[Record] = []
        self.slots = Slots("eu", cap)
        self.environment = {} if environment is None else environment
        telemetry = Telemetry()
        telemetry.listen(self.records.append)
        self.client = ConnectionClient(
            Connection("eu", "shop", Template(base_url), templates(headers or {}), cap),
            transport=http,
            slots=self.slots,
            clock=SystemClock(),
            telemetry=telemetry,
            environment=self.environment,
        )

    @property
    def attempts(self) -> list[CallAttempted]:
        return [record for record in self.records if isinstance(record, CallAttempted)]


async def failure(awaitable: Awaitable[object]) -> CallError:
    with pytest.raises(CallError) as caught:
        await awaitable
    return caught.value


@pytest.fixture
def rig(http: HttpClient, server: RawServer) -> Rig:
    return Rig(http, server.url())


# --- addresses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "path", "query", "url"),
    [
        ("http://h", "/price", {}, "http://h/price"),
        ("http://h/", "/price", {}, "http://h/price"),
        ("http://h/api", "/price", {}, "http://h/api/price"),
        ("http://h/api/", "price", {}, "http://h/api/price"),
        ("http://h/api", "", {}, "http://h/api"),
        ("http://h/api/", "", {}, "http://h/api/"),
        ("http://h/api", "/", {}, "http://h/api/"),
        ("http://h/api?key=1", "/price?a=2", {"b": "3"}, "http://h/api/price?key=1&a=2&b=3"),
        ("http://h/api?key=1", "", {}, "http://h/api?key=1"),
        ("http://h#top", "/price#part", {}, "http://h/price"),
        ("http://h", "//evil.example/x", {}, "http://h//evil.example/x"),
        ("http://h", "/p", {"q": "a b&c=ü/?#"}, "http://h/p?q=a+b%26c%3D%C3%BC%2F%3F%23"),
        ("http://h", "/p", {"a": [1, None, 2.5], "b": True, "c": None, "d": Decimal("1.50")}, "http://h/p?a=1&a=2.5&b=true&d=1.50"),
    ],
)  # fmt: skip
def test_a_path_and_a_query_are_put_behind_the_base(base: str, path: str, query: Any, url: str) -> None:
    assert joined(base, path, query) == url


# --- declared operations -----------------------------------------------------------------------------------


async def test_an_operation_is_sent_as_declared_with_variables_filled(
    http: HttpClient, server: RawServer
) -> None:
    server.script("/v1/price/A", Answer.json({"price": 1}))
    rig = Rig(
        http,
        server.url("/${VERSION}"),
        headers={"Authorization": "Bearer ${TOKEN}", "X-App": "bide", "accept": "text/plain"},
        environment={"VERSION": "v1", "TOKEN": CANARY, "SYMBOL": "A", "LIMIT": "1 & 2"},
    )
    declared = operation(
        "/price/${SYMBOL}",
        method="post",
        query={"limit": "${LIMIT}"},
        headers={"x-app": "other"},
        body={"symbol": "${SYMBOL}", "list": ["${SYMBOL}", 1, None, True], "exact": Decimal("1.10")},
    )
    response = await rig.client.call(declared)
    assert response.json() == {"price": 1}
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/v1/price/A?limit=1+%26+2")
    assert request.body == b'{"exact":1.1,"list":["A",1,null,true],"symbol":"A"}'
    assert request.header("content-type") == "application/json"
    assert request.header("authorization") == f"Bearer {CANARY}"
    assert [value for name, value in request.headers if name.lower() == "x-app"] == ["other"]
    assert [value for name, value in request.headers if name.lower() == "accept"] == ["text/plain"]


async def test_validators_make_a_call_conditional_and_304_its_answer(rig: Rig, server: RawServer) -> None:
    resource = Resource(b'{"price": 1}')
    server.script("/price", resource)
    first = await rig.client.call(operation())
    assert (first.status, first.body) == (200, b'{"price": 1}')
    again = await rig.client.call(operation(), Validators(etag=first.headers.get("etag")))
    assert (again.status, again.body) == (304, b"")
    resource.body = b'{"price": 2}'
    changed = await rig.client.call(operation(), Validators(etag=first.headers.get("etag")))
    assert (changed.status, changed.body) == (200, b'{"price": 2}')
    dated = Validators(etag='W/"a,b"', last_modified="Tue, 17 Jun 2025 12:00:00 GMT")
    await rig.client.call(operation(), dated)
    assert server.requests[-1].header("if-none-match") == 'W/"a,b"'
    assert server.requests[-1].header("if-modified-since") == "Tue, 17 Jun 2025 12:00:00 GMT"


async def test_304_to_a_call_without_validators_is_an_error(rig: Rig, server: RawServer) -> None:
    server.script("/price", Answer.not_modified())
    for validators in (None, Validators()):
        error = await failure(rig.client.call(operation(), validators))
        assert (error.kind, error.status) == ("protocol", 304)


async def test_an_error_page_is_no_answer_whatever_it_holds(rig: Rig, server: RawServer) -> None:
    for status in (400, 401, 403, 404, 410, 422):
        server.script("/price", Answer.json({"price": 1}, status=status, headers=(("Retry-After", "90"),)))
        error = await failure(rig.client.call(operation()))
        assert (error.kind, error.status, error.hint_ms) == ("status", status, 90_000)
        assert server.url("/price") in str(error)


async def test_an_operation_that_was_declared_anew_is_prepared_anew(rig: Rig, server: RawServer) -> None:
    for path in ("/a", "/b"):
        server.script(path, Answer())
        await rig.client.call(operation(path))
    assert [request.path for request in server.requests] == ["/a", "/b"]


async def test_a_read_is_tried_again_within_its_deadline(rig: Rig, server: RawServer) -> None:
    server.script("/price", Answer(status=503), Answer.hang_up(), Answer(body=b"x" * 100, cut=3), Answer())
    await rig.client.call(operation(retries=3))
    # The read that was lost on a kept connection was asked again within its attempt.
    assert [record.outcome for record in rig.attempts] == ["status", "incomplete", "answered"]
    assert server.count("/price") == 4
    server.script("/slow", Answer.silence())
    error = await failure(rig.client.call(operation("/slow", deadline=timedelta(milliseconds=100))))
    assert error.kind == "timeout"
    assert server.count("/slow") == 1


async def test_a_redirect_to_another_origin_takes_no_declared_header_along(
    http: HttpClient, server: RawServer
) -> None:
    async with RawServer() as other:
        rig = Rig(http, server.url(), headers={"X-Key": "${TOKEN}"}, environment={"TOKEN": CANARY})
        server.script("/price", Answer.redirect(302, other.url("/price")))
        other.script("/price", Answer())
        declared = operation(headers={"X-Own": "${TOKEN}", "X-Plain": "1"})
        response = await rig.client.call(declared)
        await rig.client.get("/price", headers={"X-Own": CANARY})
        assert response.hops == (302,)
        assert len(other.requests) == 2
        assert CANARY not in repr(other.requests)
        assert other.requests[0].header("x-plain") == "1"
        await rig.client.call(declared)
        assert server.count("/price") == 3  # the declared address stays


# --- the environment ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "headers", "declared"),
    [
        ("http://127.0.0.1:1/${GONE}", {}, operation()),
        ("http://127.0.0.1:1", {"A": "${GONE}"}, operation()),
        ("http://127.0.0.1:1", {}, operation("/${GONE}")),
        ("http://127.0.0.1:1", {}, operation(query={"a": "${GONE}"})),
        ("http://127.0.0.1:1", {}, operation(headers={"a": "${GONE}"})),
        ("http://127.0.0.1:1", {}, operation(body={"a": [{"b": "${GONE}"}]})),
    ],
)
async def test_a_missing_variable_is_named_until_it_is_there(
    http: HttpClient, base_url: str, headers: Mapping[str, str], declared: Operation
) -> None:
    rig = Rig(http, base_url, headers=headers)
    for _ in range(2):
        error = await failure(rig.client.call(declared))
        assert (error.kind, error.retryable, error.sent) == ("environment", False, False)
        assert "GONE" in str(error)
        assert "eu" in str(error)
    rig.environment["GONE"] = "here"
    assert (await failure(rig.client.call(replace(declared, retries=0)))).kind == "refused"


async def test_variables_are_filled_once(http: HttpClient, server: RawServer) -> None:
    server.script("/price", Answer())
    rig = Rig(http, server.url(), headers={"X-Key": "${TOKEN}"}, environment={"TOKEN": "one"})
    await rig.client.call(operation())
    rig.environment["TOKEN"] = "two"
    await rig.client.call(operation())
    assert [request.header("x-key") for request in server.requests] == ["one", "one"]


@pytest.mark.parametrize("value", ["token\n", "a\r\nX: b", "\x00", "a\x7f"])
async def test_a_variable_that_no_header_can_hold_is_refused_and_not_shown(
    http: HttpClient, value: str
) -> None:
    rig = Rig(
        http, refused_url(), headers={"Authorization": f"{CANARY}${{TOKEN}}"}, environment={"TOKEN": value}
    )
    error = await failure(rig.client.call(operation()))
    assert (error.kind, error.sent) == ("environment", False)
    assert "Authorization" in str(error)
    assert CANARY not in str(error)
    named = Rig(http, refused_url(), headers={"two words": "x"})
    assert "'two words'" in str(await failure(named.client.call(operation())))


@pytest.mark.parametrize("filled", ["", "price", "ftp://h", "http://", "http://h:99999", "//h", "/path"])
async def test_a_base_url_that_is_none_names_its_variable(http: HttpClient, filled: str) -> None:
    rig = Rig(http, "${SHOP_URL}", environment={"SHOP_URL": filled})
    error = await failure(rig.client.call(operation()))
    assert (error.kind, error.retryable, error.sent) == ("address", False, False)
    assert "SHOP_URL" in str(error)


# --- nothing secret is shown -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        ("{origin}", "/bot${TOKEN}/updates?x=1", "{origin}/bot${TOKEN}/updates"),
        ("{origin}/${TOKEN}/v1", "/price", "{origin}/${TOKEN}/v1/price"),
        ("${URL}", "/price", "${URL}/price"),
        ("${URL}", "", "${URL}"),
        ("${HOST_ONLY}", "/price", "${HOST_ONLY}/price"),
        ("{user}", "/price", "{origin}/price"),
    ],
)
@pytest.mark.parametrize("ending", ["answered", "failed", "redirected", "asked by a user"])
async def test_a_variable_in_an_address_is_shown_as_it_was_written(
    http: HttpClient, server: RawServer, address: tuple[str, str, str], ending: str
) -> None:
    base, path, shown = address
    origin = server.url()
    environment = {
        "TOKEN": CANARY,
        "URL": f"{origin}/{CANARY}?key={CANARY}",
        "HOST_ONLY": origin,
        "USER": CANARY,
    }
    user = origin.replace("://", "://u:${USER}@")
    rig = Rig(http, base.replace("{origin}", origin).replace("{user}", user), environment=environment)

    def answer(request: Received) -> Answer:
        assert CANARY in request.target or CANARY not in path
        if ending == "redirected":
            return Answer.redirect(302, request.target)
        return Answer(status=200 if ending == "answered" else 404)

    for real in ("/price", f"/bot{CANARY}/updates", f"/{CANARY}/v1/price", f"/{CANARY}/price", f"/{CANARY}"):
        server.script(real, answer)
    if ending == "asked by a user":
        asked = rig.client.get("/" + path.replace("${TOKEN}", "known").removeprefix("/") if path else "")
        error = await failure(asked)
        assert CANARY not in str(error)
    elif ending == "answered":
        await rig.client.call(operation(path))
        assert rig.attempts[0].url == shown.replace("{origin}", origin)
    else:
        error = await failure(rig.client.call(operation(path)))
        assert server.requests
        assert CANARY not in str(error)
        assert ending == "redirected" or str(error).startswith(f"GET {shown.replace('{origin}', origin)}")
    assert CANARY not in repr(rig.records)


# --- users' requests ---------------------------------------------------------------------------------------


async def test_requests_of_every_method(rig: Rig, server: RawServer) -> None:
    server.script("/x", Answer.json({"n": 1.10}))
    client = rig.client
    assert (await client.get("/x", query={"a": 1})).json() == {"n": Decimal("1.1")}
    await client.post("/x", json={"a": Decimal("0.1")})
    await client.put("/x", body="text", headers={"Content-Type": "text/plain"})
    await client.patch("/x", body=b"\x00")
    await client.delete("/x")
    await client.request("options", "x")
    assert [(r.method, r.target, r.body) for r in server.requests] == [
        ("GET", "/x?a=1", b""),
        ("POST", "/x", b'{"a":0.1}'),
        ("PUT", "/x", b"text"),
        ("PATCH", "/x", b"\x00"),
        ("DELETE", "/x", b""),
        ("OPTIONS", "/x", b""),
    ]
    assert server.requests[1].header("content-type") == "application/json"
    assert server.requests[2].header("content-type") == "text/plain"


async def test_a_status_that_is_no_success_raises_unless_it_was_allowed(rig: Rig, server: RawServer) -> None:
    server.script("/x", Answer.json({"why": "gone"}, status=404))
    error = await failure(rig.client.get("/x"))
    assert (error.kind, error.status) == ("status", 404)
    assert (await rig.client.get("/x", allow=(404,))).json() == {"why": "gone"}


async def test_a_whole_address_is_taken_where_it_is_of_the_same_origin(rig: Rig, server: RawServer) -> None:
    server.script("/page", Answer())
    await rig.client.get(server.url("/page?n=2"), query={"m": 3})
    assert server.requests[0].target == "/page?n=2&m=3"
    for other in (refused_url("/page?key=canary"), "https://127.0.0.1/", "HTTP://example.org/"):
        error = await failure(rig.client.get(other))
        assert (error.kind, error.sent) == ("address", False)
        assert "another origin" in str(error)
        assert "canary" not in str(error)
    assert len(server.requests) == 1


async def test_what_cannot_be_sent_is_the_callers_mistake(rig: Rig) -> None:
    for wrong in ({"json": {"a": float("nan")}}, {"json": object()}, {"json": {}, "body": b"x"}):
        with pytest.raises(ValueError, match=r"JSON|json"):
            await rig.client.post("/x", **wrong)
    assert (await failure(rig.client.get("/x", headers={"a b": "c"}))).kind == "environment"


async def test_an_answer_that_is_not_json_says_so(rig: Rig, server: RawServer) -> None:
    server.script("/x", Answer(body=b"<html>"))
    response = await rig.client.get("/x")
    with pytest.raises(AnswerError, match="not JSON"):
        response.json()
    assert "html" not in repr(response)


# --- functions ---------------------------------------------------------------------------------------------


async def test_a_function_gets_a_client_of_the_connection(rig: Rig, server: RawServer) -> None:
    server.script("/a", Answer.json({"n": 1}))
    server.script("/b", Answer.json({"n": 2}))

    async def work(client: Client) -> dict[str, Any]:
        one, two = await client.get("/a"), await client.get("/b")
        return {"sum": one.json()["n"] + two.json()["n"]}

    assert await rig.client.run(function(work)) == {"sum": 3}
    assert [(record.operation, record.url) for record in rig.attempts] == [
        ("report", server.url("/a")),
        ("report", server.url("/b")),
    ]


async def test_each_request_of_a_function_has_the_operations_retries(rig: Rig, server: RawServer) -> None:
    for path in ("/a", "/b"):
        server.script(path, Answer(status=503), Answer(status=503), Answer())

    async def work(client: Client) -> int:
        await client.get("/a")
        await client.get("/b")
        return 1

    assert await rig.client.run(function(work, retries=2)) == 1
    server.script("/a", Answer(status=503))
    error = await failure(rig.client.run(function(work, retries=0)))
    assert (error.kind, error.status) == ("status", 503)
    assert server.count("/a") == 4


async def test_requests_of_a_function_share_its_deadline(rig: Rig, server: RawServer) -> None:
    server.script("/slow", Answer(delay=0.1))
    kept: list[Client] = []

    async def work(client: Client) -> None:
        kept.append(client)
        for _ in range(100):
            await client.get("/slow")

    error = await failure(rig.client.run(function(work, deadline=timedelta(milliseconds=250))))
    assert error.kind == "timeout"
    assert server.count("/slow") <= 3
    assert rig.slots.in_use == 0
    late = await failure(kept[0].get("/slow"))
    assert (late.kind, late.sent) == ("timeout", False)


async def test_a_function_that_does_not_end_is_cancelled_at_its_deadline(rig: Rig) -> None:
    ended: list[str] = []

    async def work(client: Client) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    error = await failure(rig.client.run(function(work, deadline=timedelta(milliseconds=30))))
    assert (error.kind, error.retryable) == ("timeout", True)
    assert "30ms" in str(error)
    assert "report" in str(error)
    assert ended == ["cancelled"]


@pytest.mark.parametrize(
    "raised", [ValueError("no such symbol"), TimeoutError("own"), KeyError("a"), OSError(5, "x")]
)
async def test_what_a_function_raises_comes_back_as_its_failure(rig: Rig, raised: Exception) -> None:
    async def work(client: Client) -> None:
        raise raised

    error = await failure(rig.client.run(function(work)))
    assert error.kind == "function"
    assert error.__cause__ is raised
    assert type(raised).__name__ in str(error)
    assert str(raised) in str(error)


@pytest.mark.parametrize("raised", [CallError("refused", "x"), AnswerError("a", "b")])
async def test_errors_of_calls_and_answers_pass_through_a_function(rig: Rig, raised: Exception) -> None:
    async def work(client: Client) -> None:
        raise raised

    with pytest.raises(type(raised)) as caught:
        await rig.client.run(function(work))
    assert caught.value is raised


@pytest.mark.parametrize(
    "raised", [NoFreeSlot("eu"), asyncio.CancelledError(), SystemExit(3), TimeoutError()]
)
async def test_whatever_else_a_function_raises_is_its_failure_and_ends_nothing(
    rig: Rig, raised: BaseException
) -> None:
    async def work(client: Client) -> None:
        raise raised

    error = await failure(rig.client.run(function(work)))
    assert error.kind == "function"
    assert type(raised).__name__ in str(error)


async def test_a_function_that_swallows_its_cancellation_has_still_run_out_of_time(rig: Rig) -> None:
    async def work(client: Client) -> dict[str, int]:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return {"n": 1}

    late = dataclasses.replace(function(work), deadline=timedelta(milliseconds=30))
    error = await failure(rig.client.run(late))
    assert error.kind == "timeout"


async def test_a_call_that_is_cancelled_from_outside_is_cancelled(rig: Rig) -> None:
    async def work(client: Client) -> None:
        await asyncio.Event().wait()

    calling = asyncio.ensure_future(rig.client.run(function(work)))
    await asyncio.sleep(0)
    calling.cancel()
    await asyncio.wait({calling})
    assert calling.cancelled()


async def test_a_function_that_is_not_async_is_named(rig: Rig) -> None:
    wrong: Any = lambda client: {"n": 1}  # noqa: E731
    error = await failure(rig.client.run(function(wrong)))
    assert error.kind == "function"
    assert "await" in str(error)


# --- fault 17: cancelled requests use up the connection pool -----------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer.silence(), id="no answer"),
        pytest.param(Answer(endless=b"x" * 100, drip=0.001), id="an endless body"),
        pytest.param(Answer(status=503), id="between two attempts"),
    ],
)
async def test_cancelled_calls_give_slot_and_connection_back(
    http: HttpClient, server: RawServer, answer: Answer
) -> None:
    server.script("/slow", answer)
    server.script("/price", Answer())
    rig = Rig(http, server.url(), cap=2)
    slow = operation("/slow", deadline=timedelta(seconds=1), retries=100)
    moments = random.Random(17)

    async def call_and_cancel() -> None:
        calling = asyncio.ensure_future(rig.client.call(slow))
        await asyncio.sleep(moments.uniform(0, 0.05))
        calling.cancel()
        with pytest.raises((asyncio.CancelledError, CallError)):  # on a busy machine it may have ended before
            await calling

    await asyncio.gather(*(call_and_cancel() for _ in range(50)))
    assert (rig.slots.in_use, rig.slots.waiting) == (0, 0)
    assert (await rig.client.call(operation(deadline=timedelta(seconds=5)))).status == 200
    assert (rig.slots.in_use, rig.slots.waiting) == (0, 0)
    await eventually(lambda: server.running == 0)  # by the deadline of the call at the latest


async def test_a_call_cancelled_while_its_body_comes_closes_the_connection_at_once(
    http: HttpClient, server: RawServer
) -> None:
    server.script("/slow", Answer(body=bytes(10_000_000), piece=100_000, drip=0.01))
    calling = asyncio.ensure_future(http.send(Request("GET", server.url("/slow"))))
    await eventually(lambda: server.running == 1)
    await asyncio.sleep(0.1)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await eventually(lambda: server.open_connections == 0)


async def test_calls_that_time_out_give_slot_and_connection_back(http: HttpClient, server: RawServer) -> None:
    server.script("/slow", Answer.silence())
    server.script("/price", Answer())
    rig = Rig(http, server.url(), cap=4)
    slow = operation("/slow", deadline=timedelta(milliseconds=60), retries=0)
    ended = await asyncio.gather(*(rig.client.call(slow) for _ in range(20)), return_exceptions=True)
    assert {getattr(error, "kind", None) for error in ended} == {"timeout"}
    assert (rig.slots.in_use, rig.slots.waiting) == (0, 0)
    assert (await rig.client.call(operation())).status == 200
    await eventually(lambda: server.running == 0)


async def test_no_more_calls_are_out_at_a_time_than_there_are_slots(
    http: HttpClient, server: RawServer
) -> None:
    server.script("/price", Answer(delay=0.005))
    rig = Rig(http, server.url(), cap=3)
    await asyncio.gather(*(rig.client.call(operation()) for _ in range(30)))
    assert server.peak == 3
    assert server.connections <= 4
