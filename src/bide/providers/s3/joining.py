"""Transactions of the caller, and instants that happen once.

A transaction gathers what is enqueued in it, and enqueues it all at the end of its block. An instant of a schedule
happens by the write of the schedule's document, whose outbox holds the item until it is made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bide.errors import ProviderError
from bide.provider import Enqueued, NewItem
from bide.providers.s3.intake import refuse
from bide.providers.s3.names import SCHEDULES, token_of
from bide.providers.s3.parts import Parts
from bide.providers.s3.records import Outbox, outbox_json, outbox_of
from bide.providers.s3.store import RACES


class S3Transaction:
    """What is enqueued together at the end of its block."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.items: list[NewItem] = []
        self.promised: list[Enqueued] = []
        self.is_open = True

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Raises ``ProviderError``: there is no SQL here."""
        raise ProviderError(
            "a store in a bucket runs no SQL statements; use sqlite:/// or postgresql:// for those"
        )


class S3Joining:
    """The joining and occurrences parts of :class:`bide.provider.Provider`."""

    def _parts(self) -> Parts:
        raise NotImplementedError

    async def enqueue_within(self, transaction: object, items: Sequence[NewItem]) -> list[Enqueued]:
        if not isinstance(transaction, S3Transaction) or transaction.parts is not self._parts():
            raise TypeError(
                f"{type(transaction).__name__} is no transaction of this store; "
                "it knows those of its own transaction()"
            )
        if not transaction.is_open:
            raise ProviderError("the transaction has ended; enqueue within its block")
        refuse(items)
        known = len(transaction.items)
        every = [*transaction.items, *items]
        plan = await transaction.parts.intake.plan(every, look_up_all=True)
        transaction.items = every
        transaction.promised += plan.answers[known:]
        return plan.answers[known:]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[S3Transaction]:
        transaction = S3Transaction(self._parts())
        try:
            yield transaction
            await _commit(transaction)
        finally:
            transaction.is_open = False

    async def occurred(self, schedules: Mapping[str, tuple[str, int]]) -> dict[str, int]:
        parts = self._parts()

        async def begin(name: str) -> int:
            rule, after = schedules[name]

            async def decide(value: dict[str, Any]) -> tuple[dict[str, Any] | None, int]:
                if value.get("rule") == rule:
                    return None, int(value["at"])
                await _empty(parts, name, value)
                return {"name": name, "rule": rule, "at": after}, after

            return await parts.documents.change(_key_of(name), decide)

        names = list(schedules)
        return dict(zip(names, await parts.store.each(names, begin), strict=True))

    async def occur(self, name: str, at: int, item: NewItem) -> bool:
        refuse([item])
        parts, key = self._parts(), _key_of(name)
        for tried in range(RACES):
            document = await parts.documents.read(key)
            value = document.value
            if "at" not in value or value["at"] >= at:
                return False
            await _empty(parts, name, value)
            kept = {"name": name, "rule": value["rule"], "at": at}

            async def commit(outbox: Outbox) -> bool:
                with_outbox = {**kept, "outbox": outbox_json(outbox)}  # noqa: B023 - called within this turn
                written = await parts.documents.write(key, document, with_outbox)  # noqa: B023 - as above
                return written is not None

            if await parts.intake.carried([item], key, commit):
                emptied = parts.documents.known(key)
                if emptied is not None:
                    await parts.documents.write(key, emptied, kept)
                return True
            parts.documents.forget(key)
            await parts.store.step_aside(tried)
        raise ProviderError(f"{parts.store.bucket.place}: others kept changing {key}", retryable=True)


async def _empty(parts: Parts, name: str, value: Mapping[str, Any]) -> None:
    """Make what an instant of the schedule enqueued, before that is written over."""
    if value.get("outbox") is not None:
        outbox = outbox_of(value["outbox"])
        await parts.store.make(outbox.items, outbox.mark)


async def _commit(transaction: S3Transaction) -> None:
    """Keep what was promised. Others were not kept waiting, so that it may not be possible any more."""
    if not transaction.items:
        return
    plan = await transaction.parts.intake.plan(transaction.items, look_up_all=True)
    if plan.answers != transaction.promised:
        raise ProviderError(
            "an id or key was taken by others while the transaction was open; run it again",
            retryable=True,
        )
    await transaction.parts.intake.enqueue(transaction.items)


def _key_of(name: str) -> str:
    return f"{SCHEDULES}{token_of(name)}"
