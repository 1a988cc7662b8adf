"""Subscriptions, the list of events, and sending again, on Redis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from bide.core.durations import to_ms
from bide.provider import EventRow, Subscription, SubscriptionRow
from bide.providers import reasons
from bide.providers.fanout import delivery_of, envelope_of
from bide.providers.redis.items import new_rows, within_text
from bide.providers.redis.rows import (
    Row,
    all_packed,
    int_if_any,
    names_of,
    number,
    shown,
    shown_if_any,
    stored,
    texts,
    unpacked,
)
from bide.providers.redis.store import Store

EVENT_WIDTH = 10
SUBSCRIPTION_WIDTH = 11

DELIVERIES_AT_ONCE = 200
"""Deliveries that are ended, or sent again, by one call."""

EVENTS_AT_ONCE = 500
"""Events that are read by one call."""


class RedisEvents:
    """The events part of :class:`bide.provider.Provider`."""

    _store: Store

    async def register_subscriptions(self, subscriptions: Sequence[Subscription]) -> list[str]:
        if not subscriptions:
            return []
        last_of_each = {subscription.name: subscription for subscription in subscriptions}
        rows = all_packed(map(_declared, last_of_each.values()))
        return names_of(await self._store.run("register", rows))

    async def subscriptions(self) -> list[SubscriptionRow]:
        names = names_of(await self._store.run("members", "subs"))
        rows = await self._store.run("subscriptions", texts(names))
        return [_subscription_row(row) for row in unpacked(rows, SUBSCRIPTION_WIDTH)]

    async def end_subscriptions(self, names: Collection[str], reason: str) -> list[str]:
        given, kept = texts(sorted(set(names))), stored(reasons.storable(reason))
        ended, more = await self._unsubscribe("end", given, kept)
        while more:
            _, more = await self._unsubscribe("end", given, kept)
        return names_of(ended)

    async def resume_subscriptions(self, names: Collection[str]) -> list[str]:
        resumed, _ = await self._unsubscribe("resume", texts(sorted(set(names))), b"")
        return names_of(resumed)

    async def events(
        self, *, after: int = 0, names: Collection[str] | None = None, limit: int = 100, newest: bool = False
    ) -> list[EventRow]:
        if newest:
            return [_event_row(row) for row in await self._history(after, names, max(limit, 0), newest=True)]
        found: list[EventRow] = []
        while len(found) < limit:
            step = min(limit - len(found), EVENTS_AT_ONCE)
            rows = await self._history(after, names, step)
            found += map(_event_row, rows)
            if len(rows) < step:
                break
            after = found[-1].seq
        return found

    async def replay(self, subscriber: str, since: int) -> int:
        rows = await self._store.run("subscriptions", texts([subscriber]))
        replayed = 0
        for row in map(_subscription_row, unpacked(rows, SUBSCRIPTION_WIDTH)):
            after, again = 0, row.ended_at is None
            while again:
                page = await self._history(after, [row.subscription.event], DELIVERIES_AT_ONCE, previous=True)
                replayed += await self._deliver_again(row.subscription, page, since)
                again = len(page) == DELIVERIES_AT_ONCE
                after = int(page[-1][0] or 0) if page else 0
        return replayed

    async def _deliver_again(self, subscription: Subscription, page: list[Row], since: int) -> int:
        deliveries = [
            delivery_of(event, subscription, envelope_of(event, shown_if_any(row[9])))
            for row in page
            if (event := _event_row(row)).created_at >= since
        ]
        if not deliveries:
            return 0
        replayed: int = await self._store.run("replay", stored(subscription.name), new_rows(deliveries))
        if replayed:
            self._store.bell.ring_everywhere()
        return replayed

    async def _history(
        self,
        after: int,
        names: Collection[str] | None,
        limit: int,
        *,
        newest: bool = False,
        previous: bool = False,
    ) -> list[Row]:
        if limit == 0 or (names is not None and not names):
            return []
        given = b"" if names is None else texts(sorted(set(names)))
        flags = [b"1" if flag else b"0" for flag in (names is not None, newest, previous)]
        rows = await self._store.run("history", after, given, flags[0], limit, *flags[1:])
        return list(unpacked(rows, EVENT_WIDTH))

    async def _unsubscribe(self, act: str, names: bytes, reason: bytes) -> tuple[bytes, int]:
        answer: Any = await self._store.run("unsubscribe", act, names, reason, DELIVERIES_AT_ONCE)
        done, more = answer
        if done:
            self._store.bell.ring_everywhere()
        return done, more


def _declared(subscription: Subscription) -> tuple[bytes | None, ...]:
    return (
        stored(subscription.name),
        stored(subscription.event),
        stored(subscription.kind),
        stored(subscription.target),
        number(to_ms(subscription.within)),
        within_text(subscription.within),
        b"1" if subscription.ordered else None,
        None if subscription.max_attempts is None else number(subscription.max_attempts),
    )


def _subscription_row(row: Row) -> SubscriptionRow:
    name, event, kind, target, within, ordered, most, created_at, declared_at, ended_at, reason = row
    return SubscriptionRow(
        Subscription(
            name=shown(name or b""),
            event=shown(event or b""),
            kind=shown(kind or b""),
            target=shown(target or b""),
            within=timedelta(milliseconds=int(within or 0)),
            ordered=ordered is not None,
            max_attempts=int_if_any(most),
        ),
        created_at=int(created_at or 0),
        declared_at=int(declared_at or 0),
        ended_at=int_if_any(ended_at),
        ended_reason=shown_if_any(reason),
    )


def _event_row(row: Row) -> EventRow:
    seq, id, name, poll, payload, digest, created_at, occurred_at, previous_id, _ = row
    return EventRow(
        seq=int(seq or 0),
        id=shown(id or b""),
        name=shown(name or b""),
        poll=shown(poll or b""),
        payload=shown(payload or b""),
        digest=shown(digest or b""),
        created_at=int(created_at or 0),
        occurred_at=int_if_any(occurred_at),
        previous_id=shown_if_any(previous_id),
    )
