"""The bucket as the rest of the provider uses it: objects that are read, created, replaced under a condition, listed.

Each method is one request. What a conditional write may meet is a value; the rest is a ``ProviderError``:

- 412, or 404 on ``If-Match``: ``Lost``. Whether a lost answer of one's own had been applied is for the caller to see,
  by the nonce that every body carries.
- 409 ConditionalRequestConflict: the race is not decided; asked again here, with jitter, a few times.
- 503 SlowDown and lost connections: retryable, and never repeated here in silence, since the caller backs off.
  obstore itself repeats nothing. It works on any event loop, so that renewal needs no connections of its own.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeVar

import obstore
from obstore.store import S3Store

from bide.clock import Clock
from bide.core.s3_address import S3Address
from bide.core.server_time import DRIFT_PPM, Stamp
from bide.errors import ProviderError
from bide.providers.s3.faults import FAULTS, explained, status_of

Class = Literal["GET", "PUT", "LIST", "DELETE", "HEAD"]
"""Classes of requests, as they are priced."""

REQUEST_S = 15
"""Seconds after which a request is given up."""

CONFLICTS = 5
"""How often a write whose race was not decided is asked again."""

PAGE = 1000
"""Keys of one listing and of one deletion, at most."""

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Found:
    """An object as it was read."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Same:
    """It is still what the caller has."""


@dataclass(frozen=True, slots=True)
class Missing:
    """There is none."""


@dataclass(frozen=True, slots=True)
class Written:
    """The write was done."""

    etag: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The condition did not hold: nothing was written; or one's own write was, and its answer lost."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An object of a listing."""

    key: str
    etag: str
    modified: Stamp


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a listing. ``whole``: nothing comes after it."""

    objects: tuple[Listed, ...]
    whole: bool


class Bucket:
    """One prefix of a bucket. Keys are relative to it."""

    drift_ppm = DRIFT_PPM
    """By how much its clock and the machine's may run apart."""

    def __init__(self, address: S3Address, clock: Clock) -> None:
        self.place = address.place
        self._clock = clock
        self._address = address
        self._store: S3Store | None = None
        self._guard = threading.Lock()
        self._counted: Counter[str] = Counter()
        self._pending = 0

    def open(self) -> None:
        """Read the credentials. Raises ``ProviderError``."""
        address = self._address
        options: dict[str, Any] = {}
        if address.endpoint is not None:
            options["endpoint"] = address.endpoint
        if address.region is not None:
            options["region"] = address.region
        try:
            self._store = S3Store(
                address.bucket,
                prefix=address.prefix or None,
                client_options={
                    "allow_http": (address.endpoint or "").startswith("http:"),
                    "timeout": timedelta(seconds=REQUEST_S),
                    "connect_timeout": timedelta(seconds=5),
                    "http1_only": True,
                },
                retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=REQUEST_S)},
                **options,
            )
        except FAULTS as error:
            raise explained(error, self.place) from error

    def close(self) -> None:
        """No more requests."""
        self._store = None

    def requests(self) -> Mapping[str, int]:
        """Requests so far, by class."""
        with self._guard:
            return dict(self._counted)

    @property
    def pending(self) -> int:
        """How many requests are under way."""
        return self._pending

    async def get(self, key: str, etag: str | None = None) -> Found | Same | Missing:
        """One object; ``Same`` where it still has ``etag``. Raises ``ProviderError``."""
        options: Any = {} if etag is None else {"if_none_match": etag}
        try:
            return await self._asked("GET", lambda: self._read(key, options))
        except FAULTS as error:
            status = status_of(error)
            if status == 304:
                return Same()
            if status == 404 and "NoSuchBucket" not in str(error):
                return Missing()
            raise explained(error, self.place) from error

    async def exists(self, key: str) -> bool:
        """Whether there is such an object. Raises ``ProviderError``."""
        try:
            await self._asked("HEAD", lambda: obstore.head_async(self._opened, key))
        except FAULTS as error:
            if status_of(error) == 404:
                return False
            raise explained(error, self.place) from error
        return True

    async def create(self, key: str, body: bytes) -> Written | Lost:
        """Write an object where there is none. Raises ``ProviderError``."""
        return await self._written(key, body, "create")

    async def replace(self, key: str, body: bytes, etag: str) -> Written | Lost:
        """Write an object in place of the version ``etag``. Raises ``ProviderError``."""
        return await self._written(key, body, {"e_tag": etag})

    async def put(self, key: str, body: bytes = b"") -> Written:
        """Write an object, whatever is there. Raises ``ProviderError``."""
        written = await self._written(key, body, "overwrite")
        assert isinstance(written, Written)
        return written

    async def stamp(self, key: str, body: bytes) -> Stamp | None:
        """When the server says that it wrote this; None where others wrote over it. Raises ``ProviderError``."""
        written = await self.put(key, body)
        try:
            meta = await self._asked("HEAD", lambda: obstore.head_async(self._opened, key))
        except FAULTS as error:
            raise explained(error, self.place) from error
        if meta["e_tag"] != written.etag:
            return None
        return self._stamp_of(key, meta["last_modified"])

    async def version_of(self, key: str) -> str | None:
        """Write an empty object, and say what version it has; None where the bucket keeps none."""
        try:
            result = await self._asked("PUT", lambda: self._put(key, b"", "overwrite"))
        except FAULTS as error:
            raise explained(error, self.place) from error
        version: str | None = result["version"]
        return None if version == "null" else version

    async def page(self, prefix: str, after: str | None = None) -> Page:
        """Up to a thousand objects of ``prefix``, in order of their keys. Raises ``ProviderError``."""
        try:
            stream = obstore.list(self._opened, prefix, offset=after, chunk_size=PAGE)
            metas = await self._asked("LIST", lambda: _first(stream))
        except FAULTS as error:
            raise explained(error, self.place) from error
        listed = [
            Listed(meta["path"], meta["e_tag"] or "", self._stamp_of(meta["path"], meta["last_modified"]))
            for meta in metas
        ]
        return Page(tuple(sorted(listed, key=_key)), whole=len(listed) < PAGE)

    async def all(self, prefix: str, after: str | None = None) -> list[Listed]:
        """Every object of ``prefix``, one request a thousand. Raises ``ProviderError``."""
        page = await self.page(prefix, after)
        found = list(page.objects)
        while not page.whole:
            page = await self.page(prefix, found[-1].key)
            found += page.objects
        return found

    async def folders(self, prefix: str) -> list[str]:
        """The parts of keys between ``prefix`` and the next slash. Raises ``ProviderError``."""
        try:
            result = await self._asked(
                "LIST", lambda: obstore.list_with_delimiter_async(self._opened, prefix)
            )
        except FAULTS as error:
            raise explained(error, self.place) from error
        return [path.rstrip("/") for path in result["common_prefixes"]]

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, a thousand a request; those that are not there do no harm. Raises ``ProviderError``."""
        unique = list(dict.fromkeys(keys))
        for begin in range(0, len(unique), PAGE):
            part = unique[begin : begin + PAGE]
            try:
                await self._asked("DELETE", partial(obstore.delete_async, self._opened, part))
            except FAULTS as error:
                raise explained(error, self.place) from error

    def _stamp_of(self, key: str, modified: datetime) -> Stamp:
        """What a Last-Modified says: its second."""
        second = int(modified.timestamp()) * 1000
        return Stamp(second, second + 1000)

    @property
    def _opened(self) -> S3Store:
        if self._store is None:
            raise ProviderError(f"{self.place}: the provider is not open")
        return self._store

    async def _read(self, key: str, options: Any) -> Found:
        result = await obstore.get_async(self._opened, key, options=options)
        return Found(bytes(await result.bytes_async()), result.meta["e_tag"] or "")

    async def _written(self, key: str, body: bytes, mode: Any) -> Written | Lost:
        for tried in range(CONFLICTS + 1):
            try:
                result = await self._asked("PUT", lambda: self._put(key, body, mode))
            except FAULTS as error:
                status = status_of(error)
                if status == 409 and tried < CONFLICTS:
                    await self._clock.sleep(0.02 * 2**tried * (0.5 + self._clock.draw()))
                    continue
                if status == 412 or (status == 404 and isinstance(mode, dict) and "NoSuchKey" in str(error)):
                    return Lost()
                raise explained(error, self.place) from error
            return Written(result["e_tag"] or "")
        raise AssertionError("the last try ends in an answer")

    async def _put(self, key: str, body: bytes, mode: Any) -> Any:
        return await obstore.put_async(self._opened, key, body, mode=mode, use_multipart=False)

    async def _asked(self, kind: Class, request: Callable[[], Awaitable[_R]]) -> _R:
        """What ``request`` answers, which is sent by calling it."""
        with self._guard:
            self._counted[kind] += 1
            self._pending += 1
        try:
            return await request()
        finally:
            with self._guard:
                self._pending -= 1


async def _first(stream: Any) -> Sequence[Any]:
    """The first page of a listing."""
    try:
        page: Sequence[Any] = await stream.__anext__()
    except StopAsyncIteration:
        return ()
    return page


def _key(listed: Listed) -> str:
    return listed.key
