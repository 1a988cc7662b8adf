"""What an examination of a bucket says, on servers that are good, careless, away or closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bide.clock import SystemClock
from bide.core.findings import Finding, is_usable
from bide.providers.s3.examining import examine
from tests.providers.postgres_server import free_port
from tests.providers.s3_bench import S3Bench
from tests.providers.s3_server import S3Server


async def examined(address: str) -> dict[str, Finding]:
    findings = [finding async for finding in examine(address, Path(), SystemClock())]
    return {finding.subject: finding for finding in findings}


async def test_a_good_store_is_good_all_over_and_left_as_it_was(s3_server: S3Server) -> None:
    bench = S3Bench(s3_server)
    found = await examined(bench.s3_text)
    assert {finding.judgement for finding in found.values()} == {"good"}
    assert found["round trip"].unit == "ms"
    assert found["clock"].value is not None
    assert abs(found["clock"].value) < 2000
    assert "none yet" in found["store"].found
    assert await (await bench.bucket()).all("") == []
    await bench.open()
    await bench.put("a", "b")
    assert "with 2 items" in (await examined(bench.s3_text))["store"].found
    await bench.close()


async def test_a_careless_server_is_refused(careless_server: S3Server) -> None:
    found = await examined(careless_server.address("examined"))
    assert found["conditional writes"].judgement == "refused"
    assert found["conditional writes"].step
    assert not is_usable(list(found.values()))


async def test_what_is_away_or_missing_is_one_finding_and_no_error(durable_s3_server: S3Server) -> None:
    away = f"s3://jobs/x?region=us-east-1&endpoint=http://127.0.0.1:{free_port()}"
    missing = durable_s3_server.address("x", bucket="nobody-made-this")
    for address in (away, missing):
        (finding,) = (await examined(address)).values()
        assert (finding.subject, finding.judgement) == ("connection", "refused")
        assert finding.step


async def test_what_is_not_allowed_is_named(
    durable_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    found = await examined(durable_s3_server.address("x"))
    assert not is_usable(list(found.values()))
    assert "hush" not in str(found)
