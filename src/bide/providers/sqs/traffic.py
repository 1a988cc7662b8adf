"""What is asked of SQS: how often, and what is under way."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

CLASSES = {
    "ReceiveMessage": "receive",
    "SendMessageBatch": "send",
    "DeleteMessageBatch": "delete",
    "ChangeMessageVisibilityBatch": "visibility",
}
"""Classes of requests by operation; what is not here is ``other``."""


class Traffic:
    """Requests of one provider, from whatever event loop. Every attempt counts, as it does on the bill."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._made: Counter[str] = Counter()
        self._short = 0
        self._waiting = 0

    @property
    def short(self) -> int:
        """Requests under way that are answered at once."""
        return self._short

    @property
    def waiting(self) -> int:
        """Receives under way that wait at SQS for something to come."""
        return self._waiting

    def made(self) -> dict[str, int]:
        """How many requests were made so far, by class."""
        with self._guard:
            return dict(self._made)

    def sent(self, operation: str) -> None:
        """A request goes out."""
        with self._guard:
            self._made[CLASSES.get(operation, "other")] += 1

    @contextmanager
    def under_way(self, *, waits: bool) -> Iterator[None]:
        """For as long as the block lasts."""
        self._change(1, waits)
        try:
            yield
        finally:
            self._change(-1, waits)

    def _change(self, by: int, waits: bool) -> None:
        with self._guard:
            if waits:
                self._waiting += by
            else:
                self._short += by
