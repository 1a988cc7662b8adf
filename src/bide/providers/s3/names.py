"""Keys of objects: what lies where in the prefix, and what a listing alone tells.

==================  =======================================================================================
``meta``            version and shards of the store, and that its server was found to honour conditions
``items/…``         one object for each work item, all of it; changed under a condition only
``ready/…``         one empty object for each item that has not ended: its index
``ended/…``         one empty object for each item that has ended and is kept: its index
``keys/…``          one object for each key of an item
``batches/…``       items that are being enqueued together; gone when that is done
``polls/…``         one object for each poll
``events/…``        one object for each event, by its number
``schedules/…``     one object for each schedule
``subscriptions``   all subscriptions
``marker``          what was enqueued lately: a hint
``sweep``           whose turn it is to look for what crashes left
``clock/…``         up to sixteen empty objects that are written to learn the server's time
==================  =======================================================================================

An index key of an unfinished item says all that choosing among items needs: shard, queue and name as the folder, then
the instant from which it is visible, its place, priority, delay and end of life. So nobody reads what it cannot run.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from dataclasses import dataclass

from bide.providers.choosing import rank_of
from bide.providers.items import Item

META = "meta"
MARKER = "marker"
SWEEP = "sweep"
SUBSCRIPTIONS = "subscriptions"
ITEMS, READY, ENDED, KEYS = "items/", "ready/", "ended/", "keys/"
BATCHES, POLLS, EVENTS, SCHEDULES, CLOCK = "batches/", "polls/", "events/", "schedules/", "clock/"

ENDED_RETAINED, ENDED_UNTIL = "ended/retained/", "ended/until/"
"""Kept for the retention, by when they ended; kept for a time of their own, by when that is over."""

_PLAIN = re.compile(r"[^A-Za-z0-9_~-]")
_TOKEN = re.compile(r"[A-Za-z0-9_~=-]+")
_LONGEST_TOKEN = 150
_READY = re.compile(
    r"ready/(?P<shard>\d+)\.(?P<queue>[^./]+)\.(?P<name>[^./]+)/(?P<visible>\d+)\.(?P<seq>\d+)\."
    r"(?P<priority>-?\d+)\.(?P<hold>\d+|-)\.(?P<expires>\d+|-)\.(?P<item>[^./]+)"
)


def token_of(text: str) -> str:
    """``text`` as a part of a key: no two texts have the same. Long ones are hashed."""
    quoted = _PLAIN.sub(lambda found: "".join(f"={byte:02x}" for byte in found[0].encode()), text)
    if 0 < len(quoted) <= _LONGEST_TOKEN:
        return quoted
    return f"=h{hashlib.sha256(text.encode()).hexdigest()}"


def is_token(text: str) -> bool:
    """Whether ``text`` can have come from :func:`token_of`."""
    return bool(_TOKEN.fullmatch(text)) and len(text) <= _LONGEST_TOKEN


def shard_of(token: str, shards: int) -> int:
    """The shard of an item."""
    return zlib.crc32(token.encode()) % shards


def key_name(queue: str, name: str, key: str) -> str:
    """Where the key of an item lies."""
    parts = "\x1f".join(f"{len(part)}:{part}" for part in (queue, name, key))
    return f"{KEYS}{hashlib.sha256(parts.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Sight:
    """An item that has not ended, as its index key tells. ``item``, ``queue`` and ``name`` are tokens."""

    key: str
    item: str
    shard: int
    queue: str
    name: str
    visible_at: int
    seq: int
    priority: int
    hold_ms: int | None
    expires_at: int | None

    @property
    def rank(self) -> int:
        return rank_of(self.visible_at, self.priority)

    @property
    def place(self) -> tuple[int, int]:
        """What sights are ordered by."""
        return self.rank, self.seq

    def is_visible(self, now: int) -> bool:
        """As :meth:`bide.providers.items.Item.is_visible`."""
        set_back = self.hold_ms is not None and self.visible_at - 2 * self.hold_ms > now
        return self.visible_at <= now or set_back

    def is_past_life(self, now: int) -> bool:
        """Whether its whole life is over."""
        return self.expires_at is not None and self.expires_at <= now


def ready_key(item: Item, shards: int) -> str:
    """The index key of an item that has not ended."""
    token = token_of(item.id)
    folder = f"{shard_of(token, shards):02d}.{token_of(item.queue)}.{token_of(item.name)}"
    hold = "-" if item.hold_ms is None else item.hold_ms
    expires = "-" if item.expires_at is None else item.expires_at
    visible_at = max(item.visible_at, 0)
    return f"{READY}{folder}/{visible_at:015d}.{item.seq:022d}.{item.priority}.{hold}.{expires}.{token}"


def sight_of(key: str) -> Sight | None:
    """What an index key tells; None for a key that is none."""
    found = _READY.fullmatch(key)
    if found is None:
        return None
    return Sight(
        key=key,
        item=found["item"],
        shard=int(found["shard"]),
        queue=found["queue"],
        name=found["name"],
        visible_at=int(found["visible"]),
        seq=int(found["seq"]),
        priority=int(found["priority"]),
        hold_ms=None if found["hold"] == "-" else int(found["hold"]),
        expires_at=None if found["expires"] == "-" else int(found["expires"]),
    )


def ended_key(item: Item) -> str:
    """The index key of an item that has ended."""
    assert item.ended_at is not None
    if item.is_for_retention:
        return f"{ENDED_RETAINED}{item.ended_at:015d}.{token_of(item.id)}"
    return f"{ENDED_UNTIL}{item.ended_at + item.kept_ms(0):015d}.{token_of(item.id)}"


def index_key(item: Item, shards: int) -> str:
    """The one index key that an item has."""
    return ready_key(item, shards) if item.ended_at is None else ended_key(item)


def instant_and_item(key: str) -> tuple[int, str]:
    """Of the index key of an item that has ended: its instant, and the item's token."""
    instant, _, token = key.rpartition("/")[2].partition(".")
    return int(instant), token


def event_key(seq: int) -> str:
    """Where the event of a number lies."""
    return f"{EVENTS}{seq:015d}"


def seq_of(key: str) -> int:
    """The number of an event, by its key."""
    return int(key.removeprefix(EVENTS))
