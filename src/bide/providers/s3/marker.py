"""The marker: one object that says what was enqueued lately, so that whoever polls need not list.

Its body is a log of the last writes, each a nonce and the index keys that came with it (None: too many to say). A
reader that finds the nonce it saw last knows everything since; one that does not has to list. It is a hint: written
after what it tells of, under a condition so that no writer drops another's entries, and at most so often.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

from bide.clock import Clock, Timer
from bide.errors import ProviderError
from bide.providers.s3.bucket import Bucket, Found, Missing, Same, Written
from bide.providers.s3.names import MARKER

APART_S = 0.1
"""A process writes the marker at most so often."""

MOST_KEYS = 100
"""More at once are not told one by one."""

LONGEST_LOG = 200
"""Index keys that the marker tells at most."""

_TRIES = 4

Entry = tuple[str, tuple[str, ...] | None]


@dataclass(frozen=True, slots=True)
class News:
    """Index keys since the reader looked last. ``whole`` False: there may be more, which only a listing tells."""

    keys: tuple[str, ...] = ()
    whole: bool = True


class Marker:
    """Reads and writes it, for one process."""

    def __init__(self, bucket: Bucket, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock
        self._etag: str | None = None
        self._log: tuple[Entry, ...] = ()
        self._seen: str | None = None
        self._told: list[str] = []
        self._written_at = float("-inf")
        self._timer: Timer | None = None
        self._writing: set[asyncio.Task[None]] = set()

    async def news(self) -> News:
        """What came since the last look: one request, and usually a 304. Raises ``ProviderError``."""
        match await self._bucket.get(MARKER, self._etag):
            case Same():
                pass
            case Missing():
                self._etag, self._log = None, ()
            case Found(body, etag):
                self._etag, self._log = etag, _log_of(body)
        return self._unread()

    async def tell(self, keys: Sequence[str]) -> None:
        """Say that ``keys`` are there: at once, or with others a moment later. Errors do not matter."""
        self._told += keys
        wait_s = self._written_at + APART_S - self._clock.monotonic()
        if wait_s <= 0:
            await self._write()
        elif self._timer is None:
            self._timer = self._clock.call_later(wait_s, self._begin)

    async def flush(self) -> None:
        """Say what is not said yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing:
            await asyncio.gather(*self._writing, return_exceptions=True)
        if self._told:
            await self._write()

    def _begin(self) -> None:
        self._timer = None
        writing = asyncio.get_running_loop().create_task(self._write())
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def _write(self) -> None:
        told, self._told = tuple(self._told), []
        self._written_at = self._clock.monotonic()
        entry: Entry = (self._clock.new_id(), told if len(told) <= MOST_KEYS else None)
        try:
            for _ in range(_TRIES):
                if await self._appended(entry):
                    return
                news = await self._bucket.get(MARKER)
                self._etag, self._log = (
                    (news.etag, _log_of(news.body)) if isinstance(news, Found) else (None, ())
                )
            await self._bucket.put(MARKER, _body_of(((entry[0], None),)))
        except ProviderError:
            return  # a hint that is lost: the next listing finds what it told of

    async def _appended(self, entry: Entry) -> bool:
        """Write the log with one more entry in place of the one that is known."""
        known = self._log
        is_all_read = self._seen == (known[-1][0] if known else None)
        log = _bounded((*known, entry))
        body = _body_of(log)
        if self._etag is None:
            written = await self._bucket.create(MARKER, body)
        else:
            written = await self._bucket.replace(MARKER, body, self._etag)
        if not isinstance(written, Written):
            return False
        self._etag, self._log = written.etag, log
        if is_all_read:
            self._seen = entry[0]  # its own news are none
        return True

    def _unread(self) -> News:
        """What of the log was not read yet; it is now."""
        log = self._log
        nonces = [nonce for nonce, _ in log]
        last, seen = (nonces[-1] if nonces else None), self._seen
        self._seen = last
        if last == seen:
            return News()
        if seen not in nonces:
            return News(_keys_of(log), whole=False)
        since = log[nonces.index(seen) + 1 :]
        return News(_keys_of(since), whole=all(keys is not None for _, keys in since))


def _keys_of(log: Sequence[Entry]) -> tuple[str, ...]:
    return tuple(key for _, keys in log for key in keys or ())


def _bounded(log: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The last entries of ``log``, with no more keys than it may have."""
    kept: list[Entry] = []
    count = 0
    for entry in reversed(log):
        count += 1 + len(entry[1] or ())
        if kept and count > LONGEST_LOG:
            break
        kept.append(entry)
    return tuple(reversed(kept))


def _body_of(log: Sequence[Entry]) -> bytes:
    return json.dumps({"nonce": log[-1][0], "log": log}).encode()


def _log_of(body: bytes) -> tuple[Entry, ...]:
    """The log of a body; nothing where it cannot be read, since it is only a hint."""
    try:
        return tuple(
            (str(nonce), None if keys is None else tuple(map(str, keys)))
            for nonce, keys in json.loads(body)["log"]
        )
    except (ValueError, KeyError, TypeError):
        return ()
