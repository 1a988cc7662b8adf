"""Opening a store: making it once, and refusing servers and versions that it cannot live with.

Everything rests on conditional writes. A server that takes ``If-None-Match`` or ``If-Match`` and ignores them gives
one item to two workers without anybody noticing; so whoever makes the store tries them out, alone and in a race, and
writes down that they hold. Later starts read that, and nothing more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from bide.clock import Clock
from bide.core.s3_address import S3Address
from bide.errors import ProviderCorrupt, ProviderError, ProviderNewer
from bide.providers.s3.bucket import Bucket, Found, Lost, Written
from bide.providers.s3.names import META
from bide.providers.s3.records import json_of

VERSION = 1
"""Of the layout of the store. An older program refuses a newer one."""

RACERS = 8
"""Writes at one moment, of which one must win."""

PROBES = "probe/"


async def opened(bucket: Bucket, address: S3Address, clock: Clock) -> int:
    """The shards of the store, which is made where there is none. Raises ``ProviderError``."""
    found = await bucket.get(META)
    if isinstance(found, Found):
        return _shards_of(found.body, bucket.place)
    for refusal in await refusals(bucket, clock):
        raise ProviderError(
            f"{bucket.place}: this server does not honour conditional writes ({refusal}), so that work "
            "would run twice; use Amazon S3 or a server that honours If-None-Match and If-Match on PUT"
        )
    body = {"version": VERSION, "shards": address.shards, "nonce": clock.new_id()}
    written = await bucket.create(META, json.dumps(body).encode())
    if isinstance(written, Written):
        return address.shards
    return await opened(bucket, address, clock)


def _shards_of(body: bytes, place: str) -> int:
    head = json_of(body, META)
    try:
        version, shards = int(head["version"]), int(head["shards"])
    except (KeyError, TypeError, ValueError) as error:
        raise ProviderCorrupt(
            f"{place}: the object {META} is not one of bide's; use another prefix"
        ) from error
    if version > VERSION:
        raise ProviderNewer(
            f"{place}: written by a newer version of bide (layout {version}, this one knows {VERSION}); "
            "update bide here"
        )
    return shards


async def refusals(bucket: Bucket, clock: Clock) -> Sequence[str]:
    """What of conditional writes the server does not honour, as one says it; nothing where it does all of it.

    Leaves nothing behind. Raises ``ProviderError``.
    """
    key = f"{PROBES}{clock.new_id()}"
    race = f"{key}-race"
    try:
        return [*await _tried_alone(bucket, key), *await _tried_in_a_race(bucket, race)]
    finally:
        await bucket.delete([key, race])


async def _tried_alone(bucket: Bucket, key: str) -> list[str]:
    found = []
    first = await bucket.create(key, b"first")
    if isinstance(await bucket.create(key, b"second"), Written):
        found.append("If-None-Match: * wrote over an object that was there")
    second = await bucket.put(key, b"third")
    if isinstance(first, Written) and isinstance(await bucket.replace(key, b"fourth", first.etag), Written):
        found.append("If-Match with an old ETag wrote over a newer object")
    elif isinstance(await bucket.replace(key, b"fifth", second.etag), Lost):
        found.append("If-Match with the present ETag was refused")
    return found


async def _tried_in_a_race(bucket: Bucket, key: str) -> list[str]:
    written = await asyncio.gather(*(bucket.create(key, b"%d" % racer) for racer in range(RACERS)))
    winners = sum(isinstance(one, Written) for one in written)
    found = (
        []
        if winners == 1
        else [f"of {RACERS} that created one object at a time, {winners} were told they had"]
    )
    start = await bucket.put(key, b"start")
    written = await asyncio.gather(
        *(bucket.replace(key, b"next %d" % racer, start.etag) for racer in range(RACERS))
    )
    winners = sum(isinstance(one, Written) for one in written)
    if winners != 1:
        found.append(f"of {RACERS} that replaced one object at a time, {winners} were told they had")
    return found
