"""Settling fetched work: every settlement by its token, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from bide.core.durations import to_ms
from bide.provider import Abandon, Ack, Bury, NewItem, Settled, Settlement
from bide.providers import reasons
from bide.providers.postgres.items import (
    are_tokens,
    columns_of,
    enqueue_all,
    enqueue_arguments,
    is_token,
    split,
)
from bide.providers.postgres.session import Session, Transaction
from bide.providers.postgres.texts import stored

_ACK = "SELECT stale, wakes FROM bide.ack($1, $2, $3)"
_SETTLE = "SELECT stale, wakes FROM bide.settle($1, $2, $3, $4, $5, $6, $7)"
_HOLD = "SELECT bide.hold($1, $2)"


@dataclass(frozen=True, slots=True)
class Orders:
    """Settlements that go together, each token once: acks come first, as everywhere.

    ``places`` are those of the tokens in what was asked; a token given twice is stale the second time.
    """

    count: int
    places: dict[str, int]
    given: list[Settlement]
    enqueue: dict[str, tuple[NewItem, ...]]

    @classmethod
    def of(cls, settlements: Sequence[Settlement]) -> Orders:
        """Raises ``ProviderError`` for what cannot be stored."""
        places: dict[str, int] = {}
        enqueue: dict[str, tuple[NewItem, ...]] = {}
        others: list[int] = []
        for place, settlement in enumerate(settlements):
            if not isinstance(settlement, Ack):
                others.append(place)
            elif is_token(settlement.token) and settlement.token not in places:
                places[settlement.token] = place
                if settlement.enqueue:
                    enqueue[settlement.token] = settlement.enqueue
                    enqueue_arguments(
                        settlement.enqueue
                    )  # what cannot be stored is refused before anything is done
        for place in others:
            token = settlements[place].token
            if is_token(token):
                places.setdefault(token, place)
        return cls(len(settlements), places, [settlements[place] for place in places.values()], enqueue)

    @property
    def statement(self) -> tuple[Any, ...]:
        """The statement that settles, and its arguments."""
        if not any(not isinstance(given, Ack) or given.result is not None for given in self.given):
            return _acks(list(self.places))
        return _SETTLE, *columns_of(map(split, self.places)), *columns_of(map(_row, self.given))

    def results(self, stale: Sequence[str]) -> list[Settled]:
        """What came of each settlement, by the tokens that were dead."""
        results: list[Settled] = ["stale"] * self.count
        for place in self.places.values():
            results[place] = "settled"
        for token in stale:
            results[self.places[token]] = "stale"
        return results


def plain_acks(settlements: Sequence[Settlement]) -> tuple[Any, ...] | None:
    """The statement and its arguments where all are acks and no more, each of another item; else None."""
    for settlement in settlements:
        if type(settlement) is not Ack or settlement.enqueue or settlement.result is not None:
            return None
    tokens = [settlement.token for settlement in settlements]
    if len(set(tokens)) < len(tokens) or not are_tokens(",".join(tokens)):
        return None
    return _acks(tokens)


def _acks(tokens: list[str]) -> tuple[Any, ...]:
    """What acknowledges ``tokens``: for each fetch the numbers of its items, as one text."""
    by_fetch: dict[str, list[str]] = {}
    for token in tokens:
        seq, _, nonce = token.partition(":")
        if nonce in by_fetch:
            by_fetch[nonce].append(seq)
        else:
            by_fetch[nonce] = [seq]
    return _ACK, list(by_fetch), [",".join(seqs) for seqs in by_fetch.values()], len(tokens)


async def settle(session: Session, orders: Orders) -> tuple[list[str], bool]:
    """Settle; the tokens that were dead, and whether work may have become eligible. Raises ``KeyConflict``."""
    statement = orders.statement
    if not orders.enqueue:
        ((stale, wakes),) = await session.rows(*statement)
        return stale, wakes

    async def act(transaction: Transaction) -> tuple[list[str], bool]:
        held = {token for (token,) in await transaction.rows(_HOLD, *columns_of(map(split, orders.places)))}
        items = [item for token, given in orders.enqueue.items() if token in held for item in given]
        await enqueue_all(transaction.rows, items)
        ((stale, wakes),) = await transaction.rows(*statement)
        return stale, wakes or bool(items)

    return await session.atomically(act)


def _row(settlement: Settlement) -> tuple[str | None, str | None, int, str | None, bool]:
    """Result, and of what is no ack kind, delay, error, and whether the attempt counts."""
    match settlement:
        case Ack(_, result):
            return None if result is None else stored(result), None, 0, None, True
        case Abandon(_, delay, error, count_attempt):
            kept = None if error is None else stored(reasons.storable(error))
            return None, "abandon", to_ms(delay), kept, count_attempt
        case Bury(_, error):
            return None, "bury", 0, stored(reasons.storable(error)), True
        case _:
            assert_never(settlement)
