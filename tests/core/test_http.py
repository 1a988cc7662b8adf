"""Requests and responses as values: read without regard to case, shown without secrets."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bide.core.http import Headers, Request, Response, shown_url
from bide.errors import AnswerError


def test_header_fields_are_found_without_regard_to_case_and_all_are_kept() -> None:
    headers = Headers([("ETag", '"a"'), ("Set-Cookie", "1"), ("set-cookie", "2")])
    assert headers.get("etag") == headers.get("ETAG") == '"a"'
    assert headers.get("Set-Cookie") == "1"
    assert headers.all("SET-COOKIE") == ["1", "2"]
    assert list(headers) == [("etag", '"a"'), ("set-cookie", "1"), ("set-cookie", "2")]
    assert headers.get("gone") is None
    assert headers.all("gone") == []


def test_a_body_is_read_as_exact_json() -> None:
    assert Response(200, Headers(), b'{"price": 1.10}', "http://h/").json() == {"price": Decimal("1.10")}
    with pytest.raises(AnswerError):
        Response(200, Headers(), b'{"a": 1, "a": 2}', "http://h/").json()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h/price", "http://h/price"),
        ("https://user:canary@h:8080/a/b?key=canary#canary", "https://h:8080/a/b"),
        ("http://h?key=canary", "http://h"),
        ("http://h/a@b", "http://h/a@b"),
        ("http://h/?next=http://canary", "http://h/"),
        ("/price?key=canary#canary", "/price"),
    ],
)
def test_an_address_is_shown_without_user_query_and_fragment(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_representations_hold_no_secret() -> None:
    url = "http://user:canary@h/x?key=canary"
    headers = (("Authorization", "canary"),)
    shown = [
        Request("GET", url, headers, b"canary"),
        Response(200, Headers(headers), b"canary", url),
        Headers(headers),
    ]
    assert [repr(value) for value in shown] == [
        "Request(GET http://h/x)",
        "Response(200 http://h/x, 6 bytes)",
        "Headers(['authorization'])",
    ]
