"""What an examination finds of servers that are as they should be, and of those that are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.clock import SystemClock
from bide.core.findings import Finding, is_usable
from bide.providers.redis.examining import examine
from tests.providers.redis_server import Server, free_port
from tests.providers.test_redis_trouble import command


async def found(address: str) -> dict[str, Finding]:
    return {finding.subject: finding async for finding in examine(address, Path(), SystemClock())}


@pytest.fixture
def kept() -> Iterator[Server]:
    """A server as bide likes it."""
    started = Server(durable=True, options=["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"])
    try:
        started.start()
        yield started
    finally:
        started.remove()


async def test_a_server_as_it_should_be_is_good_in_everything_and_left_as_it_was(kept: Server) -> None:
    findings = await found(kept.address())
    assert {subject: one.judgement for subject, one in findings.items()} == dict.fromkeys(
        [
            *(
                "connection",
                "functions and permissions",
                "round trip",
                "clock",
                "version",
                "role",
                "eviction",
            ),
            *("memory", "persistence", "replicas", "cluster"),
        ],
        "good",
    )
    assert findings["round trip"].unit == "ms"
    assert (findings["round trip"].value or 0) > 0
    assert await command(kept, "DBSIZE") == 0


async def test_what_may_lose_work_is_said_with_a_step(valkey: Server) -> None:
    await command(valkey, "CONFIG", "SET", "maxmemory", "50mb", "maxmemory-policy", "allkeys-lru")
    try:
        findings = await found(valkey.address())
        assert not is_usable(list(findings.values()))
        assert findings["eviction"].judgement == "refused"
        assert findings["eviction"].step == "set maxmemory-policy noeviction"
        await command(valkey, "CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
        assert (await found(valkey.address()))["eviction"].judgement == "doubtful"
    finally:
        await command(valkey, "CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
    assert findings["persistence"].judgement == "doubtful"
    assert "a restart loses everything" in findings["persistence"].found


async def test_a_replica_is_refused_by_the_name_of_its_primary(valkey: Server) -> None:
    port = free_port()
    await command(valkey, "REPLICAOF", "127.0.0.1", port)
    try:
        findings = await found(valkey.address())
    finally:
        await command(valkey, "REPLICAOF", "NO", "ONE")
    assert findings["role"].judgement == "refused"
    assert f"127.0.0.1:{port}" in findings["role"].step
    assert findings["functions and permissions"].judgement == "refused"


async def test_a_user_who_may_not_write_is_refused_and_one_who_may_not_look_is_unknown(
    valkey: Server,
) -> None:
    await command(valkey, "ACL", "SETUSER", "looker", "on", ">x", "~*", "-@all", "+@connection", "+eval")
    findings = await found(valkey.address(user="looker:x@"))
    assert findings["functions and permissions"].judgement == "refused"
    assert "+@scripting" in findings["functions and permissions"].step
    assert findings["clock"].judgement == findings["server"].judgement == "unknown"


async def test_a_server_that_is_away_is_a_finding_and_no_error(valkey: Server) -> None:
    (finding,) = [one async for one in examine(f"redis://127.0.0.1:{free_port()}", Path(), SystemClock())]
    assert (finding.subject, finding.judgement) == ("connection", "refused")
    assert "s3cret" not in str(
        [one async for one in examine(valkey.address(user="nobody:s3cret@"), Path(), SystemClock())]
    )
