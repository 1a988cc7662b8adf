"""The locks that this process took: for renewing and settling without reading the item again.

A token is ``<item>:<nonce>``. What is kept here is what the last compare-and-swap wrote; where that is not what lies
in the store any more, the next one fails, and the item is read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from bide.providers.s3.names import is_token
from bide.providers.s3.store import Kept


class Held:
    """What was taken, by token and by fetch. Safe to use from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._kept: dict[str, Kept] = {}

    def keep(self, kept: Kept) -> None:
        """It is locked by its token, as it lies there now."""
        with self._guard:
            self._kept[kept.item.token] = kept

    def get(self, token: str) -> Kept | None:
        with self._guard:
            return self._kept.get(token)

    def drop(self, tokens: Iterable[str]) -> None:
        """They hold nothing any more."""
        with self._guard:
            for token in tokens:
                self._kept.pop(token, None)

    def of_fetch(self, fetch_token: str) -> list[str]:
        """The tokens of what a fetch took and this process still holds."""
        with self._guard:
            return [token for token, kept in self._kept.items() if kept.item.fetch_token == fetch_token]

    def forget_lapsed(self, now: int) -> None:
        """Drop what nobody settled though its lock ended long ago."""
        with self._guard:
            for token, kept in list(self._kept.items()):
                if kept.item.locked_until + 2 * kept.item.lock_ms < now:
                    del self._kept[token]


def item_in(token: str) -> str | None:
    """The item that a lock token names; None for what is no token."""
    item, separator, nonce = token.rpartition(":")
    return item if separator and nonce and is_token(item) else None
