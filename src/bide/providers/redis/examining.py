"""Looking at a server of Redis: whether it has what the design needs, finding by finding."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from bide.clock import Clock
from bide.core.findings import Finding
from bide.core.redis_address import redis_address
from bide.providers.redis.connections import Client, client_of
from bide.providers.redis.faults import FAULTS, explained
from bide.providers.redis.rows import shown
from bide.providers.redis.session import meta_key

LEAST_VERSION = (7, 0)
ROUND_TRIPS = 20
SLOW_MS = 5.0
FAR_APART_MS = 2_000
NEARLY_FULL = 0.8

_PROBE = """#!lua
redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000)
local kept = redis.call('GET', KEYS[1])
redis.call('ZADD', KEYS[2], 1, 'a')
redis.call('XADD', KEYS[3], 'MAXLEN', 1, '*', 'by', 'examine')
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return kept
"""


async def examine(address: str, folder: Path, clock: Clock) -> AsyncIterator[Finding]:
    """What is found of the server at ``address``, one after the other; it leaves nothing behind.

    Raises ``SettingError`` for an address that cannot be read; what goes wrong with the server is a finding.
    """
    parsed = redis_address(address)
    client = client_of(parsed, 1, parsed.timeout_s)
    try:
        try:
            await client.execute("PING")
        except FAULTS as error:
            yield Finding("connection", "refused", str(explained(error, parsed.place)), "mend that first")
            return
        yield Finding("connection", "good", parsed.place)
        yield await _permissions(client, meta_key(parsed).removesuffix("meta"), parsed.place)
        yield await _round_trip(client, clock)
        yield await _clock_difference(client, clock)
        info = await _info(client)
        if info is None:
            yield Finding(
                "server", "unknown", "the user may not ask it (INFO)", "allow +info to find out more"
            )
            return
        yield _version(info)
        yield _role(info)
        yield _eviction(info)
        yield _memory(info)
        yield await _persistence(client, info)
        yield await _replicas(client, info)
        yield _cluster(info, is_asked_for=parsed.cluster)
    finally:
        await client.aclose()


async def _permissions(client: Client, begin: str, place: str) -> Finding:
    keys = [f"{begin}examine:{kind}" for kind in ("text", "set", "stream")]
    try:
        await client.execute("FUNCTION LIST", "LIBRARYNAME", "bide_*")
        kept = await client.execute("EVAL", _PROBE, 3, *keys, "probe")
    except FAULTS as error:
        return Finding(
            "functions and permissions",
            "refused",
            str(explained(error, place)),
            f"allow the user +@scripting +@read +@write +time +@connection on the keys ~{begin}*",
        )
    if kept != b"probe":
        return Finding(
            "functions and permissions", "refused", f"what was written came back as {kept!r}", "ask why"
        )
    return Finding(
        "functions and permissions",
        "good",
        "functions can be loaded, and write, read and remove what they need",
    )


async def _round_trip(client: Client, clock: Clock) -> Finding:
    took: list[float] = []
    for _ in range(ROUND_TRIPS):
        began = clock.monotonic()
        await client.execute("PING")
        took.append((clock.monotonic() - began) * 1000)
    ms = sorted(took)[len(took) // 2]
    found = f"{ms:.2f} ms at the median of {ROUND_TRIPS}"
    if ms < SLOW_MS:
        return Finding("round trip", "good", found, "", ms, "ms")
    return Finding("round trip", "doubtful", found, "run workers nearer to the server", ms, "ms")


async def _clock_difference(client: Client, clock: Clock) -> Finding:
    before = clock.utc_ms()
    try:
        seconds, micros = await client.execute("TIME")
    except FAULTS:
        return Finding("clock", "unknown", "the user may not ask for the time", "allow +time")
    ms = int(seconds) * 1000 + int(micros) // 1000 - (before + clock.utc_ms()) // 2
    found = f"the server's is {abs(ms)} ms {'ahead of' if ms >= 0 else 'behind'} this machine's"
    if abs(ms) < FAR_APART_MS:
        return Finding("clock", "good", found, "", ms, "ms")
    step = (
        "bide goes by the server's clock alone; set both by NTP, so that instants that users give are right"
    )
    return Finding("clock", "doubtful", found, step, ms, "ms")


async def _info(client: Client) -> Mapping[str, str] | None:
    try:
        text = shown(await client.execute("INFO"))
    except FAULTS:
        return None
    return dict(line.partition(":")[::2] for line in text.splitlines() if ":" in line)


def _version(info: Mapping[str, str]) -> Finding:
    if "valkey_version" in info:
        return Finding("version", "good", f"Valkey {info['valkey_version']}")
    version = info.get("redis_version", "0")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < LEAST_VERSION:
        return Finding("version", "refused", f"Redis {version}", "use Redis 7 or Valkey")
    return Finding("version", "good", f"Redis {version}")


def _role(info: Mapping[str, str]) -> Finding:
    if info.get("role") == "master":
        return Finding("role", "good", "a primary")
    primary = f"{info.get('master_host')}:{info.get('master_port')}"
    return Finding(
        "role", "refused", f"a replica of {primary}, which takes no writes", f"name {primary} instead"
    )


def _eviction(info: Mapping[str, str]) -> Finding:
    policy = info.get("maxmemory_policy", "unknown")
    limit = int(info.get("maxmemory", "0"))
    step = "set maxmemory-policy noeviction"
    if policy == "noeviction":
        return Finding("eviction", "good", policy)
    if policy.startswith("volatile-"):
        found = f"{policy}: only keys that expire are removed, of which bide has hints alone"
        return Finding("eviction", "doubtful", found, step)
    if limit == 0:
        return Finding("eviction", "doubtful", f"{policy}, though there is no maxmemory at present", step)
    found = f"{policy}: once memory is short, items are lost without a word"
    return Finding("eviction", "refused", found, step)


def _memory(info: Mapping[str, str]) -> Finding:
    used, limit = int(info.get("used_memory", "0")), int(info.get("maxmemory", "0"))
    if limit == 0:
        found = f"{used >> 20} MiB used, no maxmemory"
        return Finding("memory", "doubtful", found, "set maxmemory below what the machine has", used, "bytes")
    found = f"{used >> 20} of {limit >> 20} MiB used"
    if used < NEARLY_FULL * limit:
        return Finding("memory", "good", found, "", used, "bytes")
    return Finding("memory", "doubtful", found, "raise maxmemory, or lower retention", used, "bytes")


async def _persistence(client: Client, info: Mapping[str, str]) -> Finding:
    if info.get("aof_enabled") == "1":
        if info.get("aof_last_write_status", "ok") != "ok":
            return Finding(
                "persistence", "doubtful", "the append-only file cannot be written", "look at its disk"
            )
        fsync = await _setting(client, "appendfsync")
        if fsync == "always":
            return Finding("persistence", "good", "append-only file, synced before each answer")
        found = f"append-only file, synced {fsync or 'as the server is set'}"
        step = "a crash may lose the last second; set appendfsync always where that is too much"
        return Finding("persistence", "good" if fsync in (None, "everysec") else "doubtful", found, step)
    saves = await _setting(client, "save")
    if saves is None:
        return Finding(
            "persistence",
            "unknown",
            "no append-only file; snapshots cannot be asked for",
            "allow +config|get",
        )
    if saves:
        found = f"snapshots only ({saves}): a crash loses what came since the last"
        return Finding("persistence", "doubtful", found, "set appendonly yes")
    return Finding("persistence", "doubtful", "none: a restart loses everything", "set appendonly yes")


async def _replicas(client: Client, info: Mapping[str, str]) -> Finding:
    count = int(info.get("connected_slaves", "0"))
    if count == 0:
        return Finding("replicas", "good", "none, so that a failover cannot lose what was answered")
    offset = int(info.get("master_repl_offset", "0"))
    behind = [
        offset - int(part.partition("=")[2]) for part in _parts(info, "slave") if part.startswith("offset=")
    ]
    found = f"{count}, up to {max(behind, default=0)} bytes behind"
    least = await _setting(client, "min-replicas-to-write") or await _setting(client, "min-slaves-to-write")
    if least not in (None, "0"):
        return Finding(
            "replicas",
            "good",
            f"{found}; at least {least} must take part",
            "",
            max(behind, default=0),
            "bytes",
        )
    step = "they are written to after the answer: a failover may lose the last moments; set min-replicas-to-write 1"
    return Finding("replicas", "doubtful", found, step, max(behind, default=0), "bytes")


def _cluster(info: Mapping[str, str], *, is_asked_for: bool) -> Finding:
    is_one = info.get("cluster_enabled") == "1"
    if is_one and not is_asked_for:
        step = "add ?cluster=true to the address; the keys of one prefix are all on one of its servers"
        return Finding("cluster", "doubtful", "the server is one of a cluster", step)
    return Finding("cluster", "good", "one of a cluster" if is_one else "a server on its own")


def _parts(info: Mapping[str, str], begin: str) -> list[str]:
    lines = [value for key, value in info.items() if key.startswith(begin) and key[len(begin) :].isdigit()]
    return [part for line in lines for part in line.split(",")]


async def _setting(client: Client, name: str) -> str | None:
    try:
        answer: Any = await client.execute("CONFIG", "GET", name)
    except FAULTS:
        return None
    pair = next(iter(answer.items())) if isinstance(answer, dict) and answer else answer
    return shown(pair[1]) if pair else None
