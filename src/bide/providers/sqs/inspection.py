"""What SQS tells of its queues: how many messages each has, and which are dead."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import timedelta
from functools import partial
from typing import Any

from bide.core.abilities import SQS, unsupported
from bide.core.sqs_address import DEFAULT_QUEUE
from bide.errors import ProviderError, Unsupported
from bide.provider import ItemRow, ItemState, Pruned, QueueCounts
from bide.providers.sqs.batches import Handle, delete_all, done_or_raise
from bide.providers.sqs.dead import LOOK_S, looked_through, purge, requeue
from bide.providers.sqs.enqueueing import queue_name
from bide.providers.sqs.receiving import MOST_MESSAGES, receive
from bide.providers.sqs.session import Session
from bide.providers.sqs.sessions import Sessions

_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
)


class SqsInspection:
    """The inspection part of :class:`bide.provider.Provider`, as far as SQS can tell."""

    _sessions: Sessions

    async def counts(self) -> list[QueueCounts]:
        """One entry for each queue with anything in it, as SQS estimates it; how old the oldest is it does not say.

        What waits for a delay beyond 15 minutes counts as running for most of it.
        """
        return await self._sessions.run(_counts)

    async def items(
        self,
        queue: str,
        *,
        states: Collection[ItemState] | None = None,
        name: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[ItemRow]:
        """Dead items, newest first; SQS shows no others. Raises ``Unsupported`` where any others are asked for."""
        if states is None or not set(states) <= {"dead", "done"}:
            raise _only_dead()
        if "dead" not in states:
            return []
        rows = [row for row in await self._dead([queue]) if name is None or row.name == name]
        if after is not None:
            ids = [row.id for row in rows]
            rows = rows[ids.index(after) + 1 :] if after in ids else []
        return rows[:limit]

    async def item(self, id: str) -> ItemRow | None:
        """A dead item. Raises ``Unsupported`` where there is none of that id: SQS cannot look for any other."""
        for row in await self._dead(await self._queues()):
            if row.id == id:
                return row
        raise _only_dead()

    async def requeue(self, ids: Collection[str]) -> list[str]:
        """Send dead items to their queues again, attempts and life begun anew; answers the ids that were."""
        done: list[str] = []
        wanted = frozenset(ids)
        for queue in await self._queues() if wanted else ():
            done += await self._sessions.run(partial(_requeue, queue=queue, ids=wanted))
        return sorted(done)

    async def discard(self, ids: Collection[str], reason: str) -> list[str]:
        """SQS cannot find an item by its id. Raises ``Unsupported``."""
        if ids:
            raise _only_dead()
        return []

    async def purge(self, queue: str, *, states: Collection[ItemState], limit: int = 1000) -> int:
        """Remove up to ``limit`` items for good: dead ones, and of ready ones those that wait for no instant."""
        name, removed = queue_name(self._sessions.address, queue), 0
        if "dead" in states:
            removed += await self._sessions.run(lambda session: purge(session, queue, name, limit))
        if "ready" in states and removed < limit:
            removed += await self._sessions.run(
                lambda session: _purge_ready(session, queue, name, limit - removed)
            )
        return removed

    async def prune(self, retention: timedelta, *, limit: int = 500) -> Pruned:
        """Nothing: SQS itself removes what is older than a queue's MessageRetentionPeriod."""
        return Pruned()

    async def now(self) -> int:
        """SQS's clock, which answers tell in whole seconds: milliseconds since the Unix epoch."""
        return await self._sessions.run(_now)

    async def _queues(self) -> list[str]:
        return await self._sessions.run(_queues)

    async def _dead(self, queues: Collection[str]) -> list[ItemRow]:
        rows: list[ItemRow] = []
        for queue in queues:
            rows += await self._sessions.run(partial(_rows, queue=queue))
        return sorted(rows, key=lambda row: (-(row.ended_at or 0), row.id))


def _only_dead() -> Unsupported:
    """The error of whoever looks for an item that is not dead."""
    return Unsupported(
        f"{unsupported(SQS, 'inspection')}; of SQS only dead ones can be seen: bide work list --state dead",
        "inspection",
    )


async def _now(session: Session) -> int:
    await session.has_queue(session.address.prefix)
    return await session.now_ms()


async def _requeue(session: Session, queue: str, ids: Collection[str]) -> list[str]:
    return await requeue(session, queue, queue_name(session.address, queue), ids)


async def _rows(session: Session, queue: str) -> list[ItemRow]:
    async with looked_through(session, queue, queue_name(session.address, queue)) as found:
        return [dead.row(queue) for dead in found]


async def _purge_ready(session: Session, queue: str, name: str, limit: int) -> int:
    removed = 0
    while removed < limit and await session.has_queue(name):
        most = min(limit - removed, MOST_MESSAGES)
        messages = await receive(session, queue, name, most=most, lock_s=LOOK_S)
        if not messages:
            break
        done_or_raise(await delete_all(session, [Handle(name, one.receipt) for one in messages]))
        removed += len(messages)
    return removed


async def queue_names(session: Session) -> list[str]:
    """SQS names of the queues that are bide's by their names. Raises ``ProviderError``."""
    names: list[str] = []
    token: dict[str, Any] = {}
    while True:
        answer = await session.call(
            "list_queues", QueueNamePrefix=session.address.prefix, MaxResults=1000, **token
        )
        names += [url.rpartition("/")[2] for url in answer.get("QueueUrls", ())]
        if not answer.get("NextToken"):
            return [name for name in names if session.address.queue_of(name) is not None]
        token = {"NextToken": answer["NextToken"]}


async def _queues(session: Session) -> list[str]:
    """The queues of bide's that there are, as far as the credentials may list them; else the default one."""
    try:
        names = await queue_names(session)
    except ProviderError as error:
        if error.retryable:
            raise
        return [DEFAULT_QUEUE]
    queues = {queue for name in names if (queue := session.address.queue_of(name)) is not None}
    return sorted(queues)


async def _counts(session: Session) -> list[QueueCounts]:
    queues = await _queues(session)
    found = await asyncio.gather(*(_counts_of(session, queue) for queue in queues))
    return [counts for counts in found if counts is not None]


async def _counts_of(session: Session, queue: str) -> QueueCounts | None:
    name = session.address.name_of(queue)
    if not await session.has_queue(name):
        return None
    visible, delayed, running = await _numbers(session, name)
    dead = sum(await _numbers(session, f"{name}-dead")) if await session.has_queue(f"{name}-dead") else 0
    counts = QueueCounts(queue, ready=visible + delayed, running=running, dead=dead)
    return None if counts == QueueCounts(queue) else counts


async def _numbers(session: Session, name: str) -> tuple[int, int, int]:
    attributes = await session.attributes((await session.queue(name)).url, *_COUNTS)
    visible, delayed, running = (int(attributes.get(count, 0)) for count in _COUNTS)
    return visible, delayed, running
