"""The sample API, the webhook receiver and the loopback server they are served by."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json

import aiohttp
import pytest

from bide.cli.loopback import Answer, Asked, LoopbackServer
from bide.cli.market import Market
from bide.cli.receiver import Received, Receiver
from bide.core.http import Headers
from bide.testing import VirtualClock


def ask(path: str, **headers: str) -> Asked:
    return Asked("GET", path, Headers((name.replace("_", "-"), value) for name, value in headers.items()))


def etag_of(answer: Answer) -> str:
    return dict(answer.headers)["etag"]


async def test_prices_move_with_time_and_only_with_it() -> None:
    clock = VirtualClock()
    market = Market(clock, step_s=3.0)
    await clock.advance(100.0)
    first = json.loads(market.answer(ask("/price")).body)
    assert (first["s"], first["data"]["price"]) == ("OAK", 101.5)
    assert json.loads(market.answer(ask("/price")).body)["data"] == first["data"]
    seen = set()
    for _ in range(20):
        await clock.advance(3.0)
        seen.add(json.loads(market.answer(ask("/price")).body)["data"]["price"])
    assert len(seen) > 5


async def test_an_unmoved_price_is_not_modified() -> None:
    clock = VirtualClock()
    market = Market(clock)
    tag = etag_of(market.answer(ask("/price/OAK")))
    unmoved = market.answer(ask("/price/OAK", if_none_match=tag))
    assert (unmoved.status, unmoved.body) == (304, b"")
    await clock.advance(3000.0)
    assert market.answer(ask("/price/OAK", if_none_match=tag)).status == 200


async def test_the_moment_of_asking_differs_where_the_price_does_not() -> None:
    clock = VirtualClock()
    market = Market(clock)
    first = json.loads(market.answer(ask("/price")).body)
    await clock.advance(1.0)
    second = json.loads(market.answer(ask("/price")).body)
    assert first["data"] == second["data"]
    assert first["at"] != second["at"]


@pytest.mark.parametrize("path", ["/price", "/price/oak", "/price/FIR", "/prices", "/releases/latest"])
def test_what_is_served_is_json_with_a_validator(path: str) -> None:
    answer = Market(VirtualClock()).answer(ask(path))
    assert answer.status == 200
    assert isinstance(json.loads(answer.body), dict)
    assert etag_of(answer).startswith('W/"')


def test_what_is_not_served_says_what_is() -> None:
    market = Market(VirtualClock())
    assert market.answer(ask("/nothing")).status == 404
    unknown = market.answer(ask("/price/YEW"))
    assert unknown.status == 404
    assert "OAK" in json.loads(unknown.body)["error"]
    assert market.answer(Asked("DELETE", "/price", Headers())).status == 405


BODY = json.dumps({"type": "shop.PriceChanged", "data": {"price": 1}}).encode()


def webhook(
    clock: VirtualClock, secret: str, *, body: bytes = BODY, ago_s: int = 0, sent: bytes = BODY
) -> Asked:
    stamp = str(clock.utc_ms() // 1000 - ago_s)
    key = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
    signature = base64.b64encode(
        hmac.digest(key, b"evt_1.audit." + stamp.encode() + b"." + body, hashlib.sha256)
    )
    fields = (
        ("webhook-id", "evt_1.audit"),
        ("webhook-timestamp", stamp),
        ("webhook-signature", "v1a,other v1," + signature.decode()),
    )
    return Asked("POST", "/hook", Headers(fields), sent)


@pytest.mark.parametrize("secret", ["plain text", "whsec_" + base64.b64encode(b"0" * 24).decode()])
def test_a_right_signature_is_taken_and_a_second_time_is_known(secret: str) -> None:
    clock, heard = VirtualClock(), list[Received]()
    receiver = Receiver(clock, secret=secret, heard=heard.append)
    assert receiver.answer(webhook(clock, secret)).status == 204
    assert receiver.answer(webhook(clock, secret)).status == 204
    assert [(one.event, one.payload, one.verified, one.again) for one in heard] == [
        ("shop.PriceChanged", '{"price": 1}', True, False),
        ("shop.PriceChanged", '{"price": 1}', True, True),
    ]
    assert (receiver.verified, receiver.refused, receiver.again) == (2, 0, 1)


def test_a_wrong_signature_is_refused() -> None:
    clock = VirtualClock()
    receiver = Receiver(clock, secret="right")
    for wrong in (
        webhook(clock, "wrong"),
        webhook(clock, "right", sent=BODY + b" "),
        webhook(clock, "right", ago_s=301),
        Asked("POST", "/hook", Headers([("webhook-id", "evt_1.audit")]), BODY),
    ):
        assert receiver.answer(wrong).status == 401
    assert (receiver.verified, receiver.refused) == (0, 4)


def test_what_is_no_webhook_is_refused() -> None:
    receiver = Receiver(VirtualClock())
    assert receiver.answer(Asked("GET", "/hook", Headers())).status == 400
    for body in (b"", b"[]", b"{}", b"\xff", b'{"type": "x"}'):
        assert receiver.answer(Asked("POST", "/hook", Headers([("webhook-id", "1")]), body)).status == 400


async def test_the_loopback_server_keeps_connections_alive() -> None:
    def echo(asked: Asked) -> Answer:
        return Answer(200, f"{asked.method} {asked.path} ".encode() + asked.body)

    async with LoopbackServer(echo) as server, aiohttp.ClientSession() as session:
        for n in range(3):
            async with session.post(f"{server.url}/here?x=1", data=f"body {n}") as response:
                assert await response.text() == f"POST /here body {n}"


async def test_the_loopback_server_drops_what_is_no_request_and_goes_on() -> None:
    async with LoopbackServer(lambda asked: Answer(204)) as server:
        port = int(server.url.rpartition(":")[2])
        for sent in (
            b"nonsense\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n",
            b"GET / HT",
            b"x" * 100_000,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            writer.write_eof()
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        async with aiohttp.ClientSession() as session, session.get(server.url) as response:
            assert response.status == 204


async def test_a_port_that_is_taken_is_an_os_error() -> None:
    async with LoopbackServer(lambda asked: Answer(204)) as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(OSError):
            await LoopbackServer(lambda asked: Answer(204), port=port).__aenter__()
