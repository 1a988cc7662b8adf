"""Subscriptions and events in a bucket."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bide.core.abilities import S3, unsupported
from bide.provider import EventRow, Subscription, SubscriptionRow
from bide.providers import reasons
from bide.providers.fanout import delivery_of, envelope_of
from bide.providers.items import made
from bide.providers.s3.inspection import begin_anew
from bide.providers.s3.parts import Parts
from bide.providers.s3.subscriptions import Rows, registered, revived


class S3Events:
    """The events part of :class:`bide.provider.Provider`."""

    def _parts(self) -> Parts:
        raise NotImplementedError

    async def register_subscriptions(self, subscriptions: Sequence[Subscription]) -> list[str]:
        if any(subscription.ordered for subscription in subscriptions):
            raise unsupported(S3, "ordered")
        if not subscriptions:
            return []
        parts = self._parts()
        now = await parts.store.now()
        return await parts.subscriptions.change(lambda rows: registered(rows, subscriptions, now))

    async def subscriptions(self) -> list[SubscriptionRow]:
        return [row for _, row in sorted((await self._parts().subscriptions.rows()).items())]

    async def end_subscriptions(self, names: Collection[str], reason: str) -> list[str]:
        parts = self._parts()
        now = await parts.store.now()

        def end(rows: Rows) -> list[str]:
            ended = sorted(name for name in set(names) & set(rows) if rows[name].ended_at is None)
            for name in ended:
                rows[name] = SubscriptionRow(
                    rows[name].subscription,
                    rows[name].created_at,
                    rows[name].declared_at,
                    now,
                    reasons.storable(reason),
                )
            return ended

        ended = await parts.subscriptions.change(end)
        if ended:
            await parts.ending.end_deliveries(ended, reason, now)
        return ended

    async def resume_subscriptions(self, names: Collection[str]) -> list[str]:
        def resume(rows: Rows) -> list[str]:
            resumed = sorted(name for name in set(names) & set(rows) if rows[name].ended_at is not None)
            rows.update((name, revived(rows[name])) for name in resumed)
            return resumed

        return await self._parts().subscriptions.change(resume)

    async def events(
        self, *, after: int = 0, names: Collection[str] | None = None, limit: int = 100, newest: bool = False
    ) -> list[EventRow]:
        parts = self._parts()
        if names is not None and not names:
            return []
        numbers = await parts.changes.numbers(after)
        found: list[EventRow] = []
        while numbers and len(found) < limit:
            step = min(limit - len(found), len(numbers))
            part = numbers[-step:] if newest else numbers[:step]
            numbers = numbers[:-step] if newest else numbers[step:]
            read = await parts.store.each(part, parts.changes.event)
            wanted = [event for event in read if event is not None and (names is None or event.name in names)]
            found = [*wanted, *found] if newest else [*found, *wanted]
        return found

    async def replay(self, subscriber: str, since: int) -> int:
        parts = self._parts()
        row = (await parts.subscriptions.rows()).get(subscriber)
        if row is None or row.ended_at is not None:
            return 0
        numbers = await parts.changes.numbers()
        events = {
            event.id: event
            for event in await parts.store.each(numbers, parts.changes.event)
            if event is not None
        }
        now = await parts.store.now()
        replayed = 0
        for event in events.values():
            if event.name != row.subscription.event or event.created_at < since:
                continue
            previous = events.get(event.previous_id or "")
            text = envelope_of(event, previous.payload if previous else None)
            delivery = delivery_of(event, row.subscription, text)
            item = made(delivery, parts.store.next_seq(now), now)
            (is_new,) = await parts.store.make([item], parts.store.clock.new_id())
            replayed += 1 if is_new else len(await begin_anew(parts, [delivery.id]))
        return replayed
