"""What this process knows of the items that have not ended, and when it lists to know more.

It looks at the marker, which costs a 304 while nothing happens; lists every 90 seconds for what no hint told; and
lists when the marker has a gap, at most once a second. A listing of everything is one request as long as there are no
more than a thousand unfinished items; beyond that each folder (shard, queue and name) is read by itself, and only as
far as it is needed. How far is remembered: it lists again when what is known there is used up.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bide.clock import Clock
from bide.providers.s3.bucket import Bucket
from bide.providers.s3.marker import Marker
from bide.providers.s3.names import READY, Sight, sight_of

LIST_AGAIN_S = 90.0
"""A listing comes at least so often while somebody fetches: what no hint told of is found by it."""

LIST_MUCH_AGAIN_S = 600.0
"""The same where one listing does not show everything."""

LIST_APART_S = 1.0
"""A gap in the marker makes listings at most so often."""

LOOK_APART_S = 1.0
"""While there is enough to take, the marker is looked at only so often."""

_FOREVER = 1 << 62

MOST_PAGES = 10
"""Pages of one folder that one look reads."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a fetch may take: tokens of queues and names."""

    queues: frozenset[str]
    names: frozenset[str]

    def has(self, sight: Sight) -> bool:
        return sight.queue in self.queues and sight.name in self.names


class Watch:
    """Sights of items by their token. Safe to use from any thread."""

    def __init__(self, bucket: Bucket, marker: Marker, clock: Clock) -> None:
        self._bucket = bucket
        self._marker = marker
        self._clock = clock
        self._guard = threading.Lock()
        self._sights: dict[str, Sight] = {}
        self._later: dict[str, int] = {}
        """By item: not before this instant is it worth a look, whatever its key says."""
        self._fresh: dict[str, Sight] = {}
        """Those that came since the last listing was begun: the next may lag, and not show them yet."""
        self._gap = True
        self._is_large = False
        self._known_until: dict[Wanted, int] = {}
        """Of a store that one listing does not show: all that becomes visible before this instant is known."""
        self._listed_at = self._looked_at = float("-inf")

    async def look(self, wanted: Wanted, now: int, enough: int) -> None:
        """Learn what came, by the marker and where need be by a listing. Raises ``ProviderError``."""
        at = self._clock.monotonic()
        eligible = len(self.eligible(wanted, now))
        if eligible >= enough and at - self._looked_at < LOOK_APART_S:
            return
        self._looked_at = at
        news = await self._marker.news()
        self.add(news.keys)
        self._gap = self._gap or not news.whole
        since = at - self._listed_at
        again_s = LIST_MUCH_AGAIN_S if self._is_large else LIST_AGAIN_S
        if since >= again_s or (self._gap and since >= LIST_APART_S):
            self._known_until.clear()
            await self._list(wanted, now, enough)
        elif self._is_used_up(wanted, now) and not self.eligible(wanted, now):
            await self._list(wanted, now, enough)

    def wait_s(self) -> float | None:
        """How long until a listing that is wanted may be made; None where none is."""
        if not self._gap:
            return None
        return max(self._listed_at + LIST_APART_S - self._clock.monotonic(), 0.0)

    def add(self, keys: Iterable[str]) -> None:
        """These index keys are there."""
        with self._guard:
            for sight in filter(None, map(sight_of, keys)):
                self._sights[sight.item] = self._fresh[sight.item] = sight
                self._later.pop(sight.item, None)

    def drop(self, item: str) -> None:
        """It is not to be looked at any more."""
        with self._guard:
            self._sights.pop(item, None)
            self._fresh.pop(item, None)
            self._later.pop(item, None)

    def put_off(self, item: str, until: int) -> None:
        """It is locked until then, as far as is known."""
        with self._guard:
            if item in self._sights:
                self._later[item] = until

    def eligible(self, wanted: Wanted, now: int) -> list[Sight]:
        """What may be taken now, the first first."""
        with self._guard:
            found = [
                sight
                for item, sight in self._sights.items()
                if wanted.has(sight) and sight.is_visible(now) and self._later.get(item, 0) <= now
            ]
        return sorted(found, key=_place)

    def next_at(self, wanted: Wanted) -> int | None:
        """The first instant at which something that is known may be taken."""
        with self._guard:
            return min(
                (
                    self._later.get(item, sight.visible_at)
                    for item, sight in self._sights.items()
                    if wanted.has(sight)
                ),
                default=None,
            )

    def forget(self) -> None:
        """Know nothing: the next look lists."""
        with self._guard:
            self._sights.clear()
            self._fresh.clear()
            self._later.clear()
        self._listed_at = float("-inf")

    def _is_used_up(self, wanted: Wanted, now: int) -> bool:
        return self._is_large and self._known_until.get(wanted, now) <= now

    async def _list(self, wanted: Wanted, now: int, enough: int) -> None:
        self._listed_at = self._clock.monotonic()
        self._gap = False
        with self._guard:
            told, self._fresh = self._fresh, {}
        page = await self._bucket.page(READY)
        self._is_large = not page.whole
        keys = [listed.key for listed in page.objects]
        if not page.whole:
            keys = await self._read_folders(wanted, now, enough)
        seen = {sight.item: sight for sight in filter(None, map(sight_of, keys))}
        with self._guard:
            self._later = {item: until for item, until in self._later.items() if until > now}
            others = self._sights if self._is_large else {}
            unread = {item: sight for item, sight in others.items() if not wanted.has(sight)}
            self._sights = unread | told | seen | self._fresh

    async def _read_folders(self, wanted: Wanted, now: int, enough: int) -> list[str]:
        """Index keys of what is wanted, of each folder as many as are needed."""
        keys: list[str] = []
        known_until = _FOREVER
        for folder in await self._bucket.folders(READY):
            _, queue, name = folder.removeprefix(READY).split(".")
            if queue in wanted.queues and name in wanted.names:
                read, until = await self._read_folder(f"{folder}/", now, enough)
                keys += read
                known_until = min(known_until, until)
        self._known_until[wanted] = known_until
        return keys

    async def _read_folder(self, folder: str, now: int, enough: int) -> tuple[list[str], int]:
        """Keys of a folder in order, and until when nothing becomes visible that is not among them."""
        keys: list[str] = []
        free = 0
        for _ in range(MOST_PAGES):
            page = await self._bucket.page(folder, keys[-1] if keys else None)
            keys += [listed.key for listed in page.objects]
            if page.whole:
                return keys, _FOREVER
            sights = [sight for listed in page.objects if (sight := sight_of(listed.key)) is not None]
            free += sum(sight.is_visible(now) and self._later.get(sight.item, 0) <= now for sight in sights)
            if free >= enough or (sights and sights[-1].visible_at > now):
                break
        last = sight_of(keys[-1])
        return keys, now if last is None else last.visible_at


def _place(sight: Sight) -> tuple[int, int]:
    return sight.place


def without(sights: Iterable[Sight], items: Collection[str]) -> list[Sight]:
    """Those of ``sights`` that are not of ``items``."""
    return [sight for sight in sights if sight.item not in items]
