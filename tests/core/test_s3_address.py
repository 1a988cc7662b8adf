"""Addresses of S3: what is read, and what is refused with what to write instead."""

from __future__ import annotations

import pytest

from bide.core.s3_address import DEFAULT_SHARDS, S3Address, s3_address
from bide.errors import SettingError


def test_all_of_an_address_is_read() -> None:
    text = "s3://work-bucket/teams/mail?region=eu-west-1&endpoint=http://127.0.0.1:8333/&shards=16"
    assert s3_address(text) == S3Address(
        bucket="work-bucket",
        prefix="teams/mail",
        region="eu-west-1",
        endpoint="http://127.0.0.1:8333",
        shards=16,
    )


def test_a_bucket_is_enough() -> None:
    for text in ("s3://work", "s3://work/", "s3://work//"):
        assert s3_address(text) == S3Address("work", shards=DEFAULT_SHARDS)


def test_a_place_is_what_people_call_it() -> None:
    assert s3_address("s3://work").place == "s3://work"
    assert s3_address("s3://work/a?region=eu-west-1").place == "s3://work/a"
    assert s3_address("s3://work/a?endpoint=https://s3.example").place == "s3://work/a at https://s3.example"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("s3://", "no name of a bucket"),
        ("s3:///prefix", "no name of a bucket"),
        ("s3://Work", "no name of a bucket"),
        ("s3://work:80/a", "neither credentials nor a port"),
        ("s3://work/a#b", "neither credentials nor a port"),
        ("s3://work/a//b", "between single slashes"),
        ("s3://work/a/../b", "between single slashes"),
        ("s3://work/é", "between single slashes"),
        ("s3://work/" + "x" * 201, "up to 200"),
        ("s3://work?regoin=x", "did you mean 'region'"),
        ("s3://work?foo=x", "it has region, endpoint, shards"),
        ("s3://work?endpoint=127.0.0.1:80", "the URL of a server"),
        ("s3://work?endpoint=http://h/path", "the URL of a server"),
        ("s3://work?endpoint=http://h:x", "the URL of a server"),
        ("s3://work?endpoint=", "the URL of a server"),
        ("s3://work?shards=0", "from 1 to 64"),
        ("s3://work?shards=65", "from 1 to 64"),
        ("s3://work?shards=²", "from 1 to 64"),
        ("s3://[work", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(SettingError, match="provider: ") as raised:
        s3_address(text)
    assert says in raised.value.reason


@pytest.mark.parametrize(
    "text", ["s3://key:hush@work/a", "s3://work/a?endpoint=http://key:hush@h", "s3://hush@work"]
)
def test_secrets_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(SettingError) as raised:
        s3_address(text)
    assert "hush" not in str(raised.value)
    assert "AWS_SECRET_ACCESS_KEY" in str(raised.value)
