"""Settlements as rows for a function, and what came of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from bide.core.durations import to_ms
from bide.errors import KeyConflict
from bide.provider import Abandon, Ack, Bury, NewItem, Settled, Settlement
from bide.providers import reasons
from bide.providers.redis.items import conflict_of, new_rows, token_parts
from bide.providers.redis.rows import all_packed, number, stored, stored_if_any

Given = tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class Orders:
    """Settlements that go together: acks come first, as everywhere. ``places`` are those in what was asked."""

    count: int
    places: list[int]
    rows: bytes
    enqueued: list[NewItem]
    new: bytes

    @classmethod
    def of(cls, settlements: Sequence[Settlement]) -> Orders:
        """Raises ``ProviderError`` for what cannot be stored."""
        in_order = sorted(range(len(settlements)), key=lambda at: not isinstance(settlements[at], Ack))
        places: list[int] = []
        rows: list[Given] = []
        enqueued: list[NewItem] = []
        for place in in_order:
            settlement = settlements[place]
            parts = token_parts(settlement.token)
            if parts is None:
                continue
            places.append(place)
            rows.append((*parts, *_row(settlement)))
            if isinstance(settlement, Ack):
                enqueued += settlement.enqueue
        return cls(len(settlements), places, all_packed(rows), enqueued, new_rows(enqueued))

    def results(self, answer: bytes) -> list[Settled]:
        """What came of each settlement, by a character for each row."""
        results: list[Settled] = ["stale"] * self.count
        for place, said in zip(self.places, answer, strict=True):
            if said == ord("1"):
                results[place] = "settled"
        return results

    def conflict(self, place: bytes, holder: bytes) -> KeyConflict:
        """The error of what an ack would enqueue."""
        return conflict_of(self.enqueued[int(place) - 1], holder)


def _row(settlement: Settlement) -> Given:
    """Kind, delay, text, and whether the attempt counts or how much is enqueued."""
    match settlement:
        case Ack(_, result, enqueue):
            return b"k", None, stored_if_any(result), number(len(enqueue)) if enqueue else None
        case Abandon(_, delay, error, count_attempt):
            kept = None if error is None else stored(reasons.storable(error))
            return b"a", number(to_ms(delay)), kept, b"1" if count_attempt else b"0"
        case Bury(_, error):
            return b"b", None, stored(reasons.storable(error)), None
        case _:
            assert_never(settlement)
