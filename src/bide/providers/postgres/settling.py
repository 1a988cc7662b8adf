"""Settling fetched work: every settlement by its token, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from bide.core.durations import to_ms
from bide.provider import Abandon, Ack, Bury, NewItem, Settled, Settlement
from bide.providers import reasons
from bide.providers.postgres.items import columns_of, enqueue_all, enqueue_arguments, seq_of
from bide.providers.postgres.session import Session, Transaction
from bide.providers.postgres.texts import stored

_SETTLE = "SELECT stale, wakes FROM bide.settle($1, $2, $3, $4, $5, $6, $7)"
_HOLD = "SELECT bide.hold($1, $2)"


@dataclass(frozen=True, slots=True)
class Orders:
    """Settlements as the arguments of one statement, each token once: acks come first, as everywhere.

    ``places`` are those of the tokens in what was asked; a token given twice is stale the second time.
    """

    count: int
    places: dict[str, int]
    seqs: list[int]
    columns: tuple[list[Any], ...]
    enqueue: dict[str, tuple[NewItem, ...]]

    @classmethod
    def of(cls, settlements: Sequence[Settlement]) -> Orders:
        """Raises ``ProviderError`` for what cannot be stored."""
        places: dict[str, int] = {}
        for wanted in (True, False):
            for place, settlement in enumerate(settlements):
                if isinstance(settlement, Ack) is wanted:
                    places.setdefault(settlement.token, place)
        known = {token: seq for token in places if (seq := seq_of(token)) is not None}
        places = {token: places[token] for token in known}
        given = [settlements[place] for place in places.values()]
        acks = [settlement for settlement in given if isinstance(settlement, Ack)]
        enqueue = {ack.token: ack.enqueue for ack in acks if ack.enqueue}
        for items in enqueue.values():
            enqueue_arguments(items)  # what cannot be stored is refused before anything is done
        return cls(len(settlements), places, list(known.values()), _columns(given, acks), enqueue)

    @property
    def arguments(self) -> tuple[Sequence[Any], ...]:
        """What the statement is given."""
        return self.seqs, list(self.places), *self.columns

    def results(self, stale: Sequence[str]) -> list[Settled]:
        """What came of each settlement, by the tokens that were dead."""
        results: list[Settled] = ["stale"] * self.count
        for place in self.places.values():
            results[place] = "settled"
        for token in stale:
            results[self.places[token]] = "stale"
        return results


async def settle(session: Session, orders: Orders) -> tuple[list[str], bool]:
    """Settle; the tokens that were dead, and whether work may have become eligible. Raises ``KeyConflict``."""
    if not orders.enqueue:
        ((stale, wakes),) = await session.rows(_SETTLE, *orders.arguments)
        return stale, wakes

    async def act(transaction: Transaction) -> tuple[list[str], bool]:
        held = {token for (token,) in await transaction.rows(_HOLD, orders.seqs, list(orders.places))}
        items = [item for token, given in orders.enqueue.items() if token in held for item in given]
        await enqueue_all(transaction.rows, items)
        ((stale, wakes),) = await transaction.rows(_SETTLE, *orders.arguments)
        return stale, wakes or bool(items)

    return await session.atomically(act)


def _columns(given: list[Settlement], acks: list[Ack]) -> tuple[list[Any], ...]:
    """Results, and of what is no ack kind, delay, error, and whether the attempt counts; nothing of what has none."""
    results = [None if ack.result is None else stored(ack.result) for ack in acks]
    if results.count(None) == len(results):
        results = []
    if len(acks) == len(given):
        return results, [], [], [], []
    return results, *columns_of(_row(settlement) for settlement in given)


def _row(settlement: Settlement) -> tuple[str | None, int, str | None, bool]:
    match settlement:
        case Ack():
            return None, 0, None, True
        case Abandon(_, delay, error, count_attempt):
            kept = None if error is None else stored(reasons.storable(error))
            return "abandon", to_ms(delay), kept, count_attempt
        case Bury(_, error):
            return "bury", 0, stored(reasons.storable(error)), True
        case _:
            assert_never(settlement)
