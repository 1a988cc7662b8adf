"""Transactions of the caller, and instants that happen once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bide.errors import KeyConflict, ProviderError
from bide.provider import Enqueued, NewItem
from bide.providers.redis.items import conflict_of, enqueued_of, new_rows
from bide.providers.redis.rows import all_packed, number, packed, stored, unpacked
from bide.providers.redis.store import Store


class RedisTransaction:
    """What is enqueued together at the end of its block, in one step."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.items: list[NewItem] = []
        self.promised: list[Enqueued] = []
        self.is_open = True

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Raises ``ProviderError``: there is no SQL here."""
        raise ProviderError(
            "a store on Redis runs no SQL statements; use sqlite:/// or postgresql:// for those"
        )


class RedisJoining:
    """The joining and occurrences parts of :class:`bide.provider.Provider`.

    A transaction holds nothing back: others may take an id or a key that was promised in it. Then its end raises a
    retryable :class:`~bide.errors.ProviderError`, and nothing of it was kept.
    """

    _store: Store

    async def enqueue_within(self, transaction: object, items: Sequence[NewItem]) -> list[Enqueued]:
        if not isinstance(transaction, RedisTransaction) or transaction.store is not self._store:
            raise TypeError(
                f"{type(transaction).__name__} is no transaction of this store; "
                "it knows those of its own transaction()"
            )
        if not transaction.is_open:
            raise ProviderError("the transaction has ended; enqueue within its block")
        if not items:
            return []
        known = len(transaction.items)
        together = [*transaction.items, *items]
        (answer,) = unpacked(await self._store.run("judge", new_rows(together)), 3)
        judged = enqueued_of(answer, together)
        if isinstance(judged, KeyConflict):
            raise judged
        transaction.items += items
        transaction.promised += judged[known:]
        return judged[known:]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[RedisTransaction]:
        transaction = RedisTransaction(self._store)
        try:
            yield transaction
            await self._commit(transaction)
        finally:
            transaction.is_open = False

    async def occurred(self, schedules: Mapping[str, tuple[str, int]]) -> dict[str, int]:
        if not schedules:
            return {}
        rows = [(stored(name), stored(rule), number(after)) for name, (rule, after) in schedules.items()]
        answers = unpacked(await self._store.run("occurred", all_packed(rows)), 1)
        return {name: int(last or 0) for name, (last,) in zip(schedules, answers, strict=True)}

    async def occur(self, name: str, at: int, item: NewItem) -> bool:
        answer: bytes = await self._store.run("occur", stored(name), number(at), new_rows([item]))
        if len(answer) > 1:
            ((holder,),) = unpacked(answer, 1)
            raise conflict_of(item, holder or b"")
        happened = answer == b"1"
        if happened:
            self._store.bell.ring_everywhere()
        return happened

    async def _commit(self, transaction: RedisTransaction) -> None:
        """Keep what was promised. Others were not kept waiting, so that it may not be possible any more."""
        if not transaction.items:
            return
        told = [(stored(one.id), b"1" if one.new else None) for one in transaction.promised]
        kept = await self._store.run("commit", new_rows(transaction.items), b"".join(map(packed, told)))
        if not kept:
            raise ProviderError(
                "an id or key was taken by others while the transaction was open; run it again",
                retryable=True,
            )
        self._store.bell.ring_everywhere()
