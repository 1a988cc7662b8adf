"""Addresses of Redis: what they say, what they may not, and that they show no password."""

from __future__ import annotations

import pytest

from bide.core.redis_address import RedisAddress, redis_address
from bide.errors import SettingError


def test_an_address_says_where_and_how() -> None:
    address = redis_address(
        "rediss://us%2Fer:p%40ss@host.example:7000/3"
        "?prefix=shop&pool=4&timeout=2s&name=web&wake=no&ca=/ca.pem&cert=/c.pem&key=/k.pem"
    )
    assert address == RedisAddress(
        place="rediss://host.example:7000/3 (prefix shop)",
        host="host.example",
        port=7000,
        db=3,
        tls=True,
        username="us/er",
        password="p@ss",
        prefix="shop",
        pool=4,
        timeout_s=2.0,
        name="web",
        wake=False,
        ca="/ca.pem",
        cert="/c.pem",
        key="/k.pem",
    )


@pytest.mark.parametrize(
    ("text", "place", "tls"),
    [
        ("redis://", "redis://localhost:6379/0", False),
        ("valkey://h", "valkey://h:6379/0", False),
        ("valkeys://h:1/", "valkeys://h:1/0", True),
        ("redis://[::1]:7/2", "redis://[::1]:7/2", False),
        ("redis://?socket=/run/valkey.sock", "redis:///run/valkey.sock/0", False),
        ("redis://h?cluster=true", "redis://h:6379/0", False),
    ],
)
def test_defaults(text: str, place: str, tls: bool) -> None:
    address = redis_address(text)
    assert (address.place, address.tls, address.prefix, address.wake) == (place, tls, "bide", True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("redis://h/x", "database cannot be 'x'"),
        ("redis://h/-1", "database cannot be '-1'"),
        ("redis://h:port/0", "cannot be read as an address"),
        ("redis://u:p/w@h/0", "cannot be read as an address"),
        ("redis://u:p#w@h/0", "cannot be read as an address"),
        ("redis://h?prefx=a", "no option 'prefx'; did you mean 'prefix'"),
        ("redis://h?zzz=a", "no option 'zzz'; it has"),
        ("redis://h?prefix=", "prefix cannot be ''"),
        ("redis://h?prefix={a}", "prefix cannot be '{a}'"),
        ("redis://h?name=a%20b", "name cannot be 'a b'"),
        ("redis://h?pool=0", "pool cannot be '0'"),
        ("redis://h?pool=99999", "pool cannot be '99999'"),
        ("redis://h?timeout=0", "timeout"),
        ("redis://h?timeout=soon", "timeout"),
        ("redis://h?wake=maybe", "wake cannot be 'maybe'"),
        ("redis://h/1?cluster=true", "a cluster has database 0 only"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(SettingError) as raised:
        redis_address(text, "app.provider")
    assert raised.value.setting == "app.provider"
    assert reason in raised.value.reason


def test_no_password_is_shown() -> None:
    address = redis_address("redis://user:s3cret@host")
    assert "s3cret" not in f"{address!r} {address} {address.place}"
    with pytest.raises(SettingError) as raised:
        redis_address("redis://user:s3cret/@host/x")
    assert "s3cret" not in str(raised.value)
