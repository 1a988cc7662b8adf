"""Subscriptions and events on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from bide.provider import EventRow, Subscription, SubscriptionRow
from bide.providers import reasons
from bide.providers.fanout import delivery_of, envelope_of
from bide.providers.postgres.database import Database
from bide.providers.postgres.items import enqueue_all
from bide.providers.postgres.session import Session, Transaction
from bide.providers.postgres.subscriptions import ALL, LIVING, REGISTER, RESUME, as_row, register_arguments
from bide.providers.postgres.texts import shown, shown_if_any, stored

REPLAYED_AT_ONCE = 500
"""Events that one transaction of a replay looks at, so that others get their turn."""

_MOST = 2**31 - 1

_END = "SELECT bide.end_subscriptions($1, $2, $3)"

_EVENTS = """
SELECT seq, id, name, poll, payload, digest, created_at, occurred_at, previous_id FROM bide.events
WHERE seq > $1 AND ($2::text[] IS NULL OR name = ANY ($2))
"""

_FIRST = f"{_EVENTS} ORDER BY seq LIMIT $3"
_LAST = f"{_EVENTS} ORDER BY seq DESC LIMIT $3"

_TO_REPLAY = """
SELECT seq, id, name, poll, payload, digest, created_at, occurred_at, previous_id,
    (SELECT earlier.payload FROM bide.events AS earlier WHERE earlier.id = events.previous_id)
FROM bide.events
WHERE name = $1 AND seq > $2 AND created_at >= $3
ORDER BY seq LIMIT $4
"""

_KNOWN = "SELECT id FROM bide.work_items WHERE id = ANY ($1::text[])"
_BEGIN_ANEW = "SELECT bide.begin_anew($1)"


class PostgresEvents:
    """The events part of :class:`bide.provider.Provider`."""

    _database: Database

    async def register_subscriptions(self, subscriptions: Sequence[Subscription]) -> list[str]:
        if not subscriptions:
            return []
        rows = await self._database.rows(REGISTER, *register_arguments(subscriptions))
        return sorted(shown(name) for name, lives in rows if lives)

    async def subscriptions(self) -> list[SubscriptionRow]:
        return [as_row(row) for row in await self._database.rows(ALL)]

    async def end_subscriptions(self, names: Collection[str], reason: str) -> list[str]:
        wanted = [stored(name) for name in sorted(set(names))]
        kept = stored(reasons.storable(reason))
        why = stored(reasons.subscription_ended(reason))
        return sorted(shown(name) for (name,) in await self._database.rows(_END, wanted, kept, why))

    async def resume_subscriptions(self, names: Collection[str]) -> list[str]:
        wanted = [stored(name) for name in names]
        return sorted(shown(name) for (name,) in await self._database.rows(RESUME, wanted))

    async def events(
        self, *, after: int = 0, names: Collection[str] | None = None, limit: int = 100, newest: bool = False
    ) -> list[EventRow]:
        wanted = None if names is None else [stored(name) for name in names]
        rows = await self._database.rows(_LAST if newest else _FIRST, after, wanted, min(limit, _MOST))
        return sorted((_as_event(row) for row in rows), key=lambda event: event.seq)

    async def replay(self, subscriber: str, since: int) -> int:
        replayed, after = 0, 0
        while True:
            count, last = await self._replay_some(subscriber, since, after)
            replayed += count
            if last is None:
                return replayed
            after = last

    async def _replay_some(self, subscriber: str, since: int, after: int) -> tuple[int, int | None]:
        """Deliver some events again: how many, and the last one looked at where there may be more."""

        async def replay(transaction: Transaction) -> tuple[int, int | None]:
            await transaction.value("SELECT bide.lock_events()")  # it does not end meanwhile
            living = await transaction.rows(LIVING, stored(subscriber))
            if not living:
                return 0, None
            subscription = as_row(living[0]).subscription
            arguments = (stored(subscription.event), after, since, REPLAYED_AT_ONCE)
            rows = await transaction.rows(_TO_REPLAY, *arguments)
            count = await _deliver_again(transaction, subscription, rows) if rows else 0
            return count, rows[-1]["seq"] if len(rows) == REPLAYED_AT_ONCE else None

        async def act(session: Session) -> tuple[int, int | None]:
            done = await session.atomically(replay)
            if done[0]:
                self._database.wake(session)
            return done

        return await self._database.run(act)


async def _deliver_again(transaction: Transaction, subscription: Subscription, rows: list[Any]) -> int:
    """Begin anew what ended, and put in what never was; how many."""
    deliveries = {}
    for row in rows:
        event = _as_event(row[:9])
        delivery = delivery_of(event, subscription, envelope_of(event, shown_if_any(row[9])))
        deliveries[stored(delivery.id)] = delivery
    known = {id for (id,) in await transaction.rows(_KNOWN, list(deliveries))}
    begun = await transaction.rows(_BEGIN_ANEW, sorted(known))
    fresh = [delivery for id, delivery in deliveries.items() if id not in known]
    if fresh:
        await enqueue_all(transaction.rows, fresh)
    return len(begun) + len(fresh)


def _as_event(row: Any) -> EventRow:
    seq, id, name, poll, payload, *rest = row
    return EventRow(seq, shown(id), shown(name), shown(poll), shown(payload), *rest)
