"""Subscriptions and events in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from bide.provider import DELIVERIES, EventRow, Subscription, SubscriptionRow
from bide.providers import reasons
from bide.providers.fanout import delivery_of, envelope_of
from bide.providers.memory.inspection import begin_anew
from bide.providers.memory.store import Store, atomic


class MemoryEvents:
    """The events part of :class:`bide.provider.Provider`."""

    _store: Store

    @atomic
    def register_subscriptions(self, subscriptions: Sequence[Subscription]) -> list[str]:
        now, rows = self._store.now(), self._store.subscriptions
        for subscription in subscriptions:
            known = rows.get(subscription.name) or SubscriptionRow(subscription, now, now, None, None)
            rows[subscription.name] = replace(known, subscription=subscription, declared_at=now)
            if _hearing(known.subscription) != _hearing(subscription):
                self._revive(subscription.name)
        return sorted(
            {subscription.name for subscription in subscriptions if rows[subscription.name].ended_at is None}
        )

    @atomic
    def subscriptions(self) -> list[SubscriptionRow]:
        return [row for _, row in sorted(self._store.subscriptions.items())]

    @atomic
    def end_subscriptions(self, names: Collection[str], reason: str) -> list[str]:
        now, rows = self._store.now(), self._store.subscriptions
        ended = sorted(name for name in set(names) & set(rows) if rows[name].ended_at is None)
        for name in ended:
            rows[name] = replace(rows[name], ended_at=now, ended_reason=reasons.storable(reason))
        for item in self._store.unfetched():
            if item.queue == DELIVERIES and item.name in ended:
                item.end("dead", now, reasons.subscription_ended(reason))
        return ended

    @atomic
    def resume_subscriptions(self, names: Collection[str]) -> list[str]:
        rows = self._store.subscriptions
        resumed = sorted(name for name in set(names) & set(rows) if rows[name].ended_at is not None)
        for name in resumed:
            self._revive(name)
        return resumed

    @atomic
    def events(
        self, *, after: int = 0, names: Collection[str] | None = None, limit: int = 100, newest: bool = False
    ) -> list[EventRow]:
        found = [
            event
            for event in self._store.events
            if event.seq > after and (names is None or event.name in names)
        ]
        return found[max(len(found) - limit, 0) :] if newest else found[:limit]

    @atomic
    def replay(self, subscriber: str, since: int) -> int:
        store, now = self._store, self._store.now()
        row = store.subscriptions.get(subscriber)
        if row is None or row.ended_at is not None:
            return 0
        replayed = 0
        for event in store.events:
            if event.name != row.subscription.event or event.created_at < since:
                continue
            previous = store.event(event.previous_id)
            text = envelope_of(event, previous.payload if previous else None)
            delivery = delivery_of(event, row.subscription, text)
            if delivery.id in store.items:
                replayed += len(begin_anew(store, [delivery.id]))
            else:
                store.add([delivery], now)
                replayed += 1
        return replayed

    def _revive(self, name: str) -> None:
        rows = self._store.subscriptions
        rows[name] = replace(rows[name], ended_at=None, ended_reason=None)


def _hearing(subscription: Subscription) -> tuple[str, str, str]:
    """What makes it another subscription: it may live again then."""
    return subscription.event, subscription.kind, subscription.target
