"""Transactions of the caller, and instants that happen once, in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bide.errors import ProviderError
from bide.provider import Enqueued, NewItem
from bide.providers.memory.store import Store, atomic


class MemoryTransaction:
    """What is enqueued together at the end of its block."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.items: list[NewItem] = []
        self.promised: list[Enqueued] = []
        self.is_open = True

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Raises ``ProviderError``: there is no SQL here."""
        raise ProviderError(
            "a store in memory runs no SQL statements; use sqlite:/// or postgresql:// for those"
        )


class MemoryJoining:
    """The joining and occurrences parts of :class:`bide.provider.Provider`."""

    _store: Store

    @atomic
    def enqueue_within(self, transaction: object, items: Sequence[NewItem]) -> list[Enqueued]:
        if not isinstance(transaction, MemoryTransaction) or transaction.store is not self._store:
            raise TypeError(
                f"{type(transaction).__name__} is no transaction of this store; "
                "it knows those of its own transaction()"
            )
        if not transaction.is_open:
            raise ProviderError("the transaction has ended; enqueue within its block")
        known = len(transaction.items)
        judged = self._store.judge([*transaction.items, *items], self._store.now())
        transaction.items += items
        transaction.promised += judged[known:]
        return judged[known:]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MemoryTransaction]:
        transaction = MemoryTransaction(self._store)
        try:
            yield transaction
            await self._commit(transaction)
        finally:
            transaction.is_open = False

    @atomic
    def occurred(self, schedules: Mapping[str, tuple[str, int]]) -> dict[str, int]:
        kept = self._store.schedules
        for name, (rule, after) in schedules.items():
            if name not in kept or kept[name][0] != rule:
                kept[name] = rule, after
        return {name: kept[name][1] for name in schedules}

    @atomic
    def occur(self, name: str, at: int, item: NewItem) -> bool:
        kept = self._store.schedules
        if name not in kept or kept[name][1] >= at:
            return False
        self._store.add([item], self._store.now())
        kept[name] = kept[name][0], at
        return True

    @atomic
    def _commit(self, transaction: MemoryTransaction) -> None:
        """Keep what was promised. Others were not kept waiting, so that it may not be possible any more."""
        now = self._store.now()
        if self._store.judge(transaction.items, now) != transaction.promised:
            raise ProviderError(
                "an id or key was taken by others while the transaction was open; run it again",
                retryable=True,
            )
        self._store.add(transaction.items, now)
