"""Dead items: each queue has a queue of them beside it, which is looked through by receiving, and left as it was."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from bide.errors import ProviderError
from bide.provider import ItemRow
from bide.providers.sqs.batches import Handle, Outgoing, delete_all, done_or_raise, hide_all, send_all
from bide.providers.sqs.envelope import Envelope, begun_anew
from bide.providers.sqs.messages import Message, expiry
from bide.providers.sqs.receiving import MOST_MESSAGES, receive
from bide.providers.sqs.session import Session
from bide.providers.sqs.settling import FOREIGN

LOOK_S = 60
"""For how long what is looked at is hidden from others who look."""

MOST_LOOKED_AT = 1000
"""Dead items of a queue that are looked through."""


@dataclass(frozen=True, slots=True)
class Dead:
    """A dead item as its message has it."""

    message: Message

    @property
    def id(self) -> str:
        said = self.message.said
        return said.id if isinstance(said, Envelope) else self.message.id

    @property
    def handle(self) -> Handle:
        return Handle(self.message.name, self.message.receipt)

    def row(self, queue: str) -> ItemRow:
        """As commands show it."""
        message, said = self.message, self.message.said
        if not isinstance(said, Envelope):
            said = Envelope(message.id, FOREIGN, message.text, sent_at=message.sent_at)
        enqueued_at = message.sent_at if said.sent_at is None else said.sent_at
        return ItemRow(
            id=said.id,
            queue=queue,
            name=said.name,
            state="dead",
            payload="" if said.unreadable else str(said.payload),
            attempts=said.attempts,
            deaths=said.deaths,
            enqueued_at=enqueued_at,
            visible_at=enqueued_at,
            expires_at=expiry(said),
            ended_at=message.sent_at,
            error=said.error,
            max_attempts=said.max_attempts,
            given_back=said.given_back,
        )

    def anew(self) -> str:
        """The text of its message as if it had just been enqueued."""
        said = self.message.said
        if not isinstance(said, Envelope):
            return self.message.text
        return str(said.payload) if said.name == FOREIGN else begun_anew(said).text()


@asynccontextmanager
async def looked_through(session: Session, queue: str, name: str) -> AsyncIterator[list[Dead]]:
    """The dead of ``queue``, whose SQS queue is ``name``, during the block; afterwards they are visible again.

    Nothing where it has none yet. Raises ``ProviderError``.
    """
    found: list[Dead] = []
    try:
        if await session.has_queue(f"{name}-dead"):
            await _look(session, queue, f"{name}-dead", found)
        yield found
    finally:
        with suppress(ProviderError):  # else they are when their time is over
            await hide_all(session, [dead.handle for dead in found], [0] * len(found))


async def _look(session: Session, queue: str, name: str, found: list[Dead]) -> None:
    while len(found) < MOST_LOOKED_AT:
        messages = await receive(session, queue, name, most=MOST_MESSAGES, lock_s=LOOK_S)
        found += [Dead(message) for message in messages]
        if not messages:
            return


async def requeue(session: Session, queue: str, name: str, ids: Collection[str]) -> list[str]:
    """Send the dead of ``ids`` to their queue again; the ids of those that were."""
    async with looked_through(session, queue, name) as found:
        chosen = [dead for dead in found if dead.id in ids]
        sent = await send_all(session, [Outgoing(name, dead.anew()) for dead in chosen])
        moved = [dead for dead, outcome in zip(chosen, sent, strict=True) if outcome is True]
        await _remove(session, moved, found)
        done_or_raise(sent)
    return [dead.id for dead in moved]


async def purge(session: Session, queue: str, name: str, limit: int) -> int:
    """Remove up to ``limit`` of the dead; how many were."""
    async with looked_through(session, queue, name) as found:
        chosen = found[:limit]
        await _remove(session, chosen, found)
    return len(chosen)


async def _remove(session: Session, chosen: Sequence[Dead], found: list[Dead]) -> None:
    """Delete those ``chosen``, so that they are not ``found`` any more."""
    deleted = await delete_all(session, [dead.handle for dead in chosen])
    gone = {dead.message.receipt for dead, outcome in zip(chosen, deleted, strict=True) if outcome is True}
    found[:] = [dead for dead in found if dead.message.receipt not in gone]
    done_or_raise(deleted)
