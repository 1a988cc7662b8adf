"""The envelope, signatures by Standard Webhooks, and what a response means."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from bide.core.change import event_payload, read_json
from bide.core.delivery import Delivered, Gone, Judgement, Refused, envelope, judge_response, sign, verify
from bide.core.fields import FieldType, convert
from bide.core.http import Headers
from bide.errors import SettingError

# The example that Standard Webhooks publishes.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT = 1614265330
BODY = '{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

CREATED = int(datetime(2026, 11, 30, 18, 0, 0, 7000, tzinfo=UTC).timestamp() * 1000)


def made(**changed: Any) -> str:
    members: dict[str, Any] = {
        "name": "shop.PriceChanged",
        "event_id": "evt_1",
        "seq": 7,
        "created_at": CREATED,
        "connection": "eu",
        "poll": "eu.price",
        "occurred_at": None,
        "payload": '{"price":12.5}',
        "previous": None,
    }
    return envelope(**(members | changed))


def test_an_envelope_is_one_json_text() -> None:
    assert made() == (
        '{"type":"shop.PriceChanged","id":"evt_1","seq":7,"timestamp":"2026-11-30T18:00:00.007Z",'
        '"connection":"eu","poll":"eu.price","occurred_at":null,"data":{"price":12.5},"previous":null}'
    )


def test_an_envelope_has_what_was_before_and_when_it_happened() -> None:
    read = json.loads(made(previous='{"price":12}', occurred_at=CREATED - 1))
    assert read["previous"] == {"price": 12}
    assert read["occurred_at"] == "2026-11-30T18:00:00.006Z"


def test_an_envelope_keeps_numbers_exact() -> None:
    payload = event_payload({"n": 10**60 + 1, "d": Decimal("1.01010101010101010101")}, ["n", "d"])
    text = made(payload=payload, previous=payload)
    assert f'"data":{payload},"previous":{payload}' in text
    assert read_json(text)["data"] == {"n": 10**60 + 1, "d": Decimal("1.01010101010101010101")}


def test_an_envelope_escapes_what_it_is_given() -> None:
    assert json.loads(made(name='a"b\\', event_id="é\n"))["type"] == 'a"b\\'


@pytest.mark.parametrize("at_ms", [0, 1, 999, CREATED, 253402300799999])
def test_instants_of_an_envelope_read_back(at_ms: int) -> None:
    written = json.loads(made(created_at=at_ms))["timestamp"]
    read = convert(written, FieldType("datetime"), "timestamp")
    assert (read - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) == at_ms


def test_an_envelope_of_the_deepest_payload_can_be_read() -> None:
    deep: object = "x"
    for _ in range(126):
        deep = [deep]
    payload = event_payload({"deep": deep}, ["deep"])
    assert read_json(made(payload=payload))["data"] == {"deep": deep}


def test_the_published_example_signs_and_verifies() -> None:
    assert sign(SECRET, ID, AT, BODY) == SIGNATURE
    assert sign(SECRET, ID, AT, BODY.encode()) == SIGNATURE
    assert verify(SECRET, ID, AT, BODY, SIGNATURE)


def test_any_of_several_signatures_verifies() -> None:
    assert verify(SECRET, ID, AT, BODY, f"v1,AAAA v2,é {SIGNATURE}")


@pytest.mark.parametrize(
    ("secret", "delivery_id", "at", "body", "signatures"),
    [
        ("other", ID, AT, BODY, SIGNATURE),
        (SECRET, "msg_2", AT, BODY, SIGNATURE),
        (SECRET, ID, AT + 1, BODY, SIGNATURE),
        (SECRET, ID, AT, BODY + " ", SIGNATURE),
        (SECRET, ID, AT, BODY, SIGNATURE[:-2] + "A="),
        (SECRET, ID, AT, BODY, SIGNATURE.removeprefix("v1,")),
        (SECRET, ID, AT, BODY, "v1,é"),
        (SECRET, ID, AT, BODY, ""),
    ],
)
def test_nothing_else_verifies(secret: str, delivery_id: str, at: int, body: str, signatures: str) -> None:
    assert not verify(secret, delivery_id, at, body, signatures)


def test_a_secret_is_decoded_only_after_its_prefix() -> None:
    key = "clé secrète"
    encoded = base64.b64encode(key.encode()).decode()
    assert encoded.endswith("=")
    assert sign(key, ID, AT, "ü") == sign(f"whsec_{encoded}", ID, AT, "ü".encode())
    assert sign(f"whsec_{encoded.rstrip('=')}", ID, AT, "ü") == sign(key, ID, AT, "ü")
    assert sign(encoded, ID, AT, "ü") != sign(key, ID, AT, "ü")


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_Q", "whsec_not base64", "whsec_é", "whsec_====", "whsec_ab-_"]
)
def test_a_bad_secret_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(SettingError) as caught:
        sign(secret, ID, AT, BODY)
    assert caught.value.setting == "secret"
    assert secret in {"", "whsec_"} or secret.removeprefix("whsec_") not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "judgement"),
    [
        (200, Delivered()),
        (204, Delivered()),
        (299, Delivered()),
        (410, Gone()),
        (199, Refused("answered 199")),
        (302, Refused("answered 302 Found")),
        (404, Refused("answered 404 Not Found")),
        (500, Refused("answered 500 Internal Server Error")),
        (599, Refused("answered 599")),
    ],
)
def test_what_a_response_means(status: int, judgement: Judgement) -> None:
    assert judge_response(status, Headers(), 0) == judgement


def test_a_refusal_carries_what_the_subscriber_asked_for() -> None:
    answer = judge_response(503, Headers([("Retry-After", "120")]), 0)
    assert answer == Refused("answered 503 Service Unavailable", timedelta(minutes=2))
    dated = judge_response(429, Headers([("Retry-After", "Thu, 01 Jan 1970 00:01:00 GMT")]), 30_000)
    assert dated == Refused("answered 429 Too Many Requests", timedelta(seconds=30))
