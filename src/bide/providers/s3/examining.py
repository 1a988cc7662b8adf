"""What an examination of a bucket finds: whether bide can run on it, what it costs to ask, and what will grow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from bide.clock import Clock
from bide.core.findings import Finding
from bide.core.s3_address import s3_address
from bide.core.server_time import ServerTime
from bide.errors import ProviderError
from bide.providers.s3.bucket import Bucket, Found
from bide.providers.s3.names import CLOCK, META, READY
from bide.providers.s3.opening import PROBES, refusals

ROUND_TRIPS = 5
"""Requests of which the median is told."""

SLOW_MS = 200.0
"""A round trip of so much makes a worker slow."""

WRONG_MS = 5_000
"""By so much the machine's clock may be off before it is worth a word: signatures fail at fifteen minutes."""


async def examine(address: str, folder: Path, clock: Clock) -> AsyncIterator[Finding]:
    """Connect, and say what is found, one thing after the other. Leaves nothing behind."""
    bucket = Bucket(s3_address(address), clock)
    try:
        bucket.open()
        await bucket.get(META)
    except ProviderError as error:
        step = "Try again later." if error.retryable else "Correct the address or the credentials."
        yield Finding("connection", "refused", str(error), step)
        return
    try:
        yield await _round_trip(bucket, clock)
        async for finding in _permissions(bucket, clock):
            yield finding
            if finding.judgement == "refused":
                return
        yield await _conditions(bucket, clock)
        yield await _clock(bucket, clock)
        yield await _versions(bucket, clock)
        yield await _store(bucket)
    except ProviderError as error:
        yield Finding("examination", "unknown", str(error), "Try again later.")
    finally:
        bucket.close()


async def _round_trip(bucket: Bucket, clock: Clock) -> Finding:
    took = []
    for _ in range(ROUND_TRIPS):
        began = clock.monotonic()
        await bucket.get(META)
        took.append((clock.monotonic() - began) * 1000)
    median = sorted(took)[ROUND_TRIPS // 2]
    found = f"a GET takes {median:.0f} ms"
    if median < SLOW_MS:
        return Finding("round trip", "good", found, value=median, unit="ms")
    step = "Run workers in the region of the bucket."
    return Finding("round trip", "doubtful", found, step, value=median, unit="ms")


async def _permissions(bucket: Bucket, clock: Clock) -> AsyncIterator[Finding]:
    """What may be done here, tried out."""
    key = f"{PROBES}{clock.new_id()}"
    tries = (
        ("PutObject", lambda: bucket.put(key, b"probe")),
        ("GetObject", lambda: bucket.get(key)),
        ("ListBucket", lambda: bucket.page(PROBES)),
        ("DeleteObject", lambda: bucket.delete([key])),
    )
    for name, attempt in tries:
        try:
            await attempt()
        except ProviderError as error:
            yield Finding(
                f"permission {name}", "refused", str(error), f"Allow s3:{name} on the bucket and its prefix."
            )
            return
    names = ", ".join(name for name, _ in tries)
    yield Finding("permissions", "good", f"{names} are allowed")


async def _conditions(bucket: Bucket, clock: Clock) -> Finding:
    found = await refusals(bucket, clock)
    if not found:
        return Finding("conditional writes", "good", "If-None-Match and If-Match hold, also in a race")
    return Finding(
        "conditional writes",
        "refused",
        "; ".join(found),
        "Use Amazon S3, or a server that honours If-None-Match and If-Match on PUT.",
    )


async def _clock(bucket: Bucket, clock: Clock) -> Finding:
    """How far the machine's clock is from the store's. Only signatures depend on it."""
    key = f"{PROBES}{CLOCK}{clock.new_id()}"
    asked_at = round(clock.monotonic() * 1000)
    try:
        stamp = await bucket.stamp(key, b"")
    finally:
        await bucket.delete([key])
    if stamp is None:
        return Finding("clock", "unknown", "the store's clock cannot be read", "Try again later.")
    heard_at = round(clock.monotonic() * 1000)
    known = ServerTime.of(stamp, asked_at, heard_at)
    ahead = clock.utc_ms() - known.now(heard_at)
    found = f"this machine is {abs(ahead) / 1000:.1f} s {'ahead of' if ahead > 0 else 'behind'} the store"
    if abs(ahead) < WRONG_MS:
        return Finding("clock", "good", found, value=float(ahead), unit="ms")
    step = "Set the clock of this machine: S3 refuses signatures that are 15 minutes off."
    return Finding("clock", "doubtful", found, step, value=float(ahead), unit="ms")


async def _versions(bucket: Bucket, clock: Clock) -> Finding:
    """Whether the bucket keeps old versions, which a written object shows."""
    key = f"{PROBES}{clock.new_id()}"
    try:
        version = await bucket.version_of(key)
    finally:
        await bucket.delete([key])
    if version is None:
        return Finding("versioning", "good", "old versions are not kept")
    return Finding(
        "versioning",
        "doubtful",
        "the bucket keeps old versions: each item leaves about six, and a listing steps over deleted ones",
        "Suspend versioning, or expire noncurrent versions and delete markers under this prefix after a day.",
    )


async def _store(bucket: Bucket) -> Finding:
    found = await bucket.get(META)
    if not isinstance(found, Found):
        return Finding("store", "good", "there is none yet; it is made when it is opened")
    page = await bucket.page(READY)
    count = f"{len(page.objects)}" if page.whole else f"more than {len(page.objects)}"
    return Finding("store", "good", f"there is one, with {count} items that have not ended")
