"""Small objects of JSON that are changed by compare-and-swap, and read again only where they have changed."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from bide.errors import ProviderError
from bide.providers.s3.bucket import Found, Missing, Same
from bide.providers.s3.records import json_of
from bide.providers.s3.store import RACES, Store

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Document:
    """An object as it was read last. ``etag`` None: there is none."""

    value: dict[str, Any]
    etag: str | None


NOTHING = Document({}, None)


class Documents:
    """The documents of one store, with what this process knows of them. Safe to use from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._known: dict[str, Document] = {}

    def known(self, key: str) -> Document | None:
        """What was read last, without asking."""
        with self._guard:
            return self._known.get(key)

    async def read(self, key: str) -> Document:
        """The document as it is now: one request, a 304 where it is as it was. Raises ``ProviderError``."""
        known = self.known(key) or NOTHING
        match await self._store.bucket.get(key, known.etag):
            case Same():
                return known
            case Missing():
                return self._keep(key, NOTHING)
            case Found(body, etag):
                return self._keep(key, Document(json_of(body, key), etag))

    async def write(self, key: str, before: Document, value: dict[str, Any]) -> Document | None:
        """``value`` in place of ``before``; None where others were first. Raises ``ProviderError``."""
        store = self._store
        nonce = store.clock.new_id()
        body = json.dumps({**value, "nonce": nonce}).encode()
        if before.etag is None:
            etag = await store.create(key, body, nonce)
        else:
            etag = await store.replace(key, body, before.etag, nonce)
        if etag is None:
            self.forget(key)
            return None
        return self._keep(key, Document({**value, "nonce": nonce}, etag))

    async def change(
        self,
        key: str,
        decide: Callable[[dict[str, Any]], Awaitable[tuple[dict[str, Any] | None, _R]]],
        *,
        trust: bool = False,
    ) -> _R:
        """What ``decide`` answers beside the new value, once that is written; a value of None changes nothing.

        ``trust``: begin with what is known, which costs no reading where nobody else wrote. Raises ``ProviderError``.
        """
        for tried in range(RACES):
            known = self.known(key) if trust and tried == 0 else None
            document = known or await self.read(key)
            value, answer = await decide(dict(document.value))
            if value is None or await self.write(key, document, value) is not None:
                return answer
            await self._store.step_aside(tried)
        raise ProviderError(f"{self._store.bucket.place}: others kept changing {key}", retryable=True)

    def forget(self, key: str) -> None:
        """Read it when it is wanted next."""
        with self._guard:
            self._known.pop(key, None)

    def _keep(self, key: str, document: Document) -> Document:
        with self._guard:
            self._known[key] = document
        return document
