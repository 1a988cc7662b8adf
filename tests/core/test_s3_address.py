"""Addresses of S3: what is read, and what is refused with what to write instead."""

from __future__ import annotations

import pytest

from bide.core.s3_address import DEFAULT_SHARDS, S3Address, s3_address
from bide.errors import SettingError


def test_all_of_an_address_is_read() -> None:
    text = "s3://jobs-bucket/teams/mail?region=eu-west-1&endpoint=http://127.0.0.1:8333/&shards=16"
    assert s3_address(text) == S3Address(
        bucket="jobs-bucket",
        prefix="teams/mail",
        region="eu-west-1",
        endpoint="http://127.0.0.1:8333",
        shards=16,
    )


def test_a_bucket_is_enough() -> None:
    for text in ("s3://jobs", "s3://jobs/", "s3://jobs//"):
        assert s3_address(text) == S3Address("jobs", shards=DEFAULT_SHARDS)


def test_a_place_is_what_people_call_it() -> None:
    assert s3_address("s3://jobs").place == "s3://jobs"
    assert s3_address("s3://jobs/a?region=eu-west-1").place == "s3://jobs/a"
    assert s3_address("s3://jobs/a?endpoint=https://s3.example").place == "s3://jobs/a at https://s3.example"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("s3://", "no name of a bucket"),
        ("s3:///prefix", "no name of a bucket"),
        ("s3://Work", "no name of a bucket"),
        ("s3://jobs:80/a", "neither credentials nor a port"),
        ("s3://jobs/a#b", "neither credentials nor a port"),
        ("s3://jobs/a//b", "between single slashes"),
        ("s3://jobs/a/../b", "between single slashes"),
        ("s3://jobs/é", "between single slashes"),
        ("s3://jobs/" + "x" * 201, "up to 200"),
        ("s3://jobs?regoin=x", "did you mean 'region'"),
        ("s3://jobs?foo=x", "it has region, endpoint, shards"),
        ("s3://jobs?endpoint=127.0.0.1:80", "the URL of a server"),
        ("s3://jobs?endpoint=http://h/path", "the URL of a server"),
        ("s3://jobs?endpoint=http://h:x", "the URL of a server"),
        ("s3://jobs?endpoint=", "the URL of a server"),
        ("s3://jobs?shards=0", "from 1 to 64"),
        ("s3://jobs?shards=65", "from 1 to 64"),
        ("s3://jobs?shards=²", "from 1 to 64"),
        ("s3://[jobs", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(SettingError, match="provider: ") as raised:
        s3_address(text)
    assert says in raised.value.reason


@pytest.mark.parametrize(
    "text", ["s3://key:hush@jobs/a", "s3://jobs/a?endpoint=http://key:hush@h", "s3://hush@jobs"]
)
def test_secrets_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(SettingError) as raised:
        s3_address(text)
    assert "hush" not in str(raised.value)
    assert "AWS_SECRET_ACCESS_KEY" in str(raised.value)
