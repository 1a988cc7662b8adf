"""Opening a store in a bucket: once, and never on a server that ignores the conditions of writes."""

from __future__ import annotations

import pytest

from bide.clock import SystemClock
from bide.errors import ProviderCorrupt, ProviderError
from bide.providers.s3 import S3Provider
from bide.providers.s3.opening import refusals
from tests.providers.postgres_server import free_port
from tests.providers.s3_bench import S3Bench
from tests.providers.s3_server import S3Server


def provider(address: str) -> S3Provider:
    return S3Provider(address, clock=SystemClock())


async def test_a_server_that_ignores_conditions_is_refused_with_the_reason(careless_server: S3Server) -> None:
    opened = provider(careless_server.address("careless"))
    with pytest.raises(ProviderError, match="does not honour conditional writes") as raised:
        await opened.open()
    assert not raised.value.retryable
    assert "If-None-Match" in str(raised.value)
    with pytest.raises(ProviderError, match="not open"):
        await opened.now()


async def test_a_server_that_honours_them_is_tried_once(s3_server: S3Server) -> None:
    bench = S3Bench(s3_server)
    await bench.open()
    bucket = await bench.bucket()
    assert [one.key for one in await bucket.all("")] == ["meta"]
    assert await refusals(bucket, SystemClock()) == []
    assert [one.key for one in await bucket.all("")] == ["meta"]
    async with bench.another() as other:
        assert isinstance(other, S3Provider)
        assert other.requests() == {"GET": 1}
    await bench.close()


async def test_shards_are_those_that_the_store_was_made_with(durable_s3_server: S3Server) -> None:
    bench = S3Bench(durable_s3_server, "&shards=7")
    await bench.open()
    await bench.close()
    later = provider(bench.s3_text.replace("shards=7", "shards=2"))
    await later.open()
    assert later.shards == 7
    await later.close()


async def test_an_object_of_another_program_is_left_alone(durable_s3_server: S3Server) -> None:
    bench = S3Bench(durable_s3_server)
    bucket = await bench.bucket()
    for body in (b"hello", b"{}", b"[1]"):
        await bucket.put("meta", body)
        with pytest.raises(ProviderCorrupt):
            await bench.open()


async def test_a_server_that_is_away_is_worth_asking_again() -> None:
    opened = provider(f"s3://jobs/x?region=us-east-1&endpoint=http://127.0.0.1:{free_port()}")
    with pytest.raises(ProviderError, match="cannot be reached") as raised:
        await opened.open()
    assert raised.value.retryable


async def test_a_bucket_that_is_not_there_is_named(s3_server: S3Server) -> None:
    opened = provider(s3_server.address("x", bucket="nobody-made-this"))
    with pytest.raises(ProviderError, match="no such bucket") as raised:
        await opened.open()
    assert not raised.value.retryable


async def test_wrong_credentials_are_told_and_not_shown(
    durable_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    opened = provider(durable_s3_server.address("x"))
    with pytest.raises(ProviderError) as raised:
        await opened.open()
    assert not raised.value.retryable
    assert "credentials" in str(raised.value) or "AWS_ACCESS_KEY_ID" in str(raised.value)
    assert "hush" not in str(raised.value)
