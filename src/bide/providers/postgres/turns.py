"""Whose turn it is among queues, and among the limit keys of each, as one process remembers it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bide.providers.choosing import in_turn


class Turns:
    """Queues are first one after the other; limit keys follow the one of their queue that was served last."""

    def __init__(self) -> None:
        self._turn = 0
        self._served: dict[str, str] = {}

    def next_of(self, queues: Iterable[str]) -> tuple[str, ...]:
        """``queues`` in the order of the next turn."""
        turn = self._turn
        self._turn += 1
        return in_turn(queues, turn)

    def served(self, queues: Sequence[str]) -> list[str | None]:
        """For each queue the limit key that was served last: empty for items without one, None for nothing yet."""
        return [self._served.get(queue) for queue in queues]

    def keep(self, queues: Sequence[str], served: Sequence[str | None]) -> None:
        """Remember the keys that were served last."""
        self._served.update(
            (queue, key) for queue, key in zip(queues, served, strict=True) if key is not None
        )
