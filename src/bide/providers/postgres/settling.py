"""Settling fetched work: every settlement by its token, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from bide.core.durations import to_ms
from bide.provider import Abandon, Ack, Bury, NewItem, Settled, Settlement
from bide.providers import reasons
from bide.providers.postgres.items import ENQUEUE, enqueue_arguments, seq_of
from bide.providers.postgres.session import Session, Transaction
from bide.providers.postgres.texts import stored

_SETTLE = "SELECT token, wakes FROM bide.settle($1, $2, $3, $4, $5, $6)"


@dataclass(slots=True)
class Orders:
    """Settlements as the arguments of one statement, each token once: acks come first, as everywhere."""

    places: dict[str, int]
    count: int
    seqs: list[int] = field(default_factory=list)
    columns: tuple[list[Any], ...] = field(default_factory=lambda: ([], [], [], [], []))
    enqueue: dict[str, tuple[NewItem, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, settlements: Sequence[Settlement]) -> Orders:
        """Raises ``ProviderError`` for what cannot be stored."""
        orders = cls({}, len(settlements))
        in_order = sorted(range(len(settlements)), key=lambda at: not isinstance(settlements[at], Ack))
        for at in in_order:
            orders._add(at, settlements[at])
        return orders

    @property
    def arguments(self) -> tuple[list[Any], ...]:
        """What the statement is given."""
        return self.seqs, *self.columns

    def results(self, settled: set[str]) -> list[Settled]:
        """What came of each settlement, by the tokens that lived."""
        results: list[Settled] = ["stale"] * self.count
        for token in settled:
            results[self.places[token]] = "settled"
        return results

    def _add(self, place: int, settlement: Settlement) -> None:
        token = settlement.token
        if isinstance(settlement, Ack) and settlement.enqueue:
            enqueue_arguments(settlement.enqueue)
        seq = seq_of(token)
        if seq is None or token in self.places:  # given twice, the second is stale
            return
        self.places[token] = place
        self.seqs.append(seq)
        for column, value in zip(self.columns, (token, *_row(settlement)), strict=True):
            column.append(value)
        if isinstance(settlement, Ack) and settlement.enqueue:
            self.enqueue[token] = settlement.enqueue


async def settle(session: Session, orders: Orders) -> tuple[set[str], bool]:
    """Settle; the tokens that lived, and whether work may have become eligible."""
    if not orders.enqueue:
        return _settled(await session.rows(_SETTLE, *orders.arguments))

    async def act(transaction: Transaction) -> tuple[set[str], bool]:
        settled, wakes = _settled(await transaction.rows(_SETTLE, *orders.arguments))
        items = [item for token, given in orders.enqueue.items() if token in settled for item in given]
        if items:
            await transaction.rows(ENQUEUE, *enqueue_arguments(items))
        return settled, wakes or bool(items)

    return await session.atomically(act)


def _settled(rows: list[Any]) -> tuple[set[str], bool]:
    return {token for token, _ in rows}, any(wakes for _, wakes in rows)


def _row(settlement: Settlement) -> tuple[str, int, str | None, bool]:
    """Kind, delay, error, and whether the attempt counts."""
    match settlement:
        case Ack():
            return "ack", 0, None, True
        case Abandon(_, delay, error, count_attempt):
            kept = None if error is None else stored(reasons.storable(error))
            return "abandon", to_ms(delay), kept, count_attempt
        case Bury(_, error):
            return "bury", 0, stored(reasons.storable(error)), True
        case _:
            assert_never(settlement)
