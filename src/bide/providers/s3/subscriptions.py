"""All subscriptions, in one document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from bide.core.durations import to_ms
from bide.provider import Subscription, SubscriptionRow
from bide.providers.s3.documents import Documents
from bide.providers.s3.names import SUBSCRIPTIONS

Rows = dict[str, SubscriptionRow]


class Subscriptions:
    """Reads and changes them."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def rows(self) -> Rows:
        """All of them by name. Raises ``ProviderError``."""
        return _rows_of((await self._documents.read(SUBSCRIPTIONS)).value)

    async def hearing(self, event: str) -> list[Subscription]:
        """Those that live and hear an event, by name."""
        rows = await self.rows()
        return [
            row.subscription
            for _, row in sorted(rows.items())
            if row.ended_at is None and row.subscription.event == event
        ]

    async def change(self, decide: Callable[[Rows], list[str]]) -> list[str]:
        """What ``decide``, which changes the rows it is given, answers, once they are kept."""

        async def decided(value: dict[str, Any]) -> tuple[dict[str, Any] | None, list[str]]:
            rows = _rows_of(value)
            before = dict(rows)
            answer = decide(rows)
            return (None if rows == before else _value_of(rows)), answer

        return await self._documents.change(SUBSCRIPTIONS, decided)


def registered(rows: Rows, subscriptions: Sequence[Subscription], now: int) -> list[str]:
    """Declare ``subscriptions`` in ``rows``; the names that live."""
    for subscription in subscriptions:
        known = rows.get(subscription.name) or SubscriptionRow(subscription, now, now, None, None)
        row = replace(known, subscription=subscription, declared_at=now)
        if _hearing(known.subscription) != _hearing(subscription):
            row = revived(row)
        rows[subscription.name] = row
    return sorted({one.name for one in subscriptions if rows[one.name].ended_at is None})


def revived(row: SubscriptionRow) -> SubscriptionRow:
    """It lives again."""
    return replace(row, ended_at=None, ended_reason=None)


def _hearing(subscription: Subscription) -> tuple[str, str, str]:
    """What makes it another subscription: it may live again then."""
    return subscription.event, subscription.kind, subscription.target


def _rows_of(value: dict[str, Any]) -> Rows:
    return {name: _row_of(read) for name, read in value.get("rows", {}).items()}


def _row_of(read: dict[str, Any]) -> SubscriptionRow:
    given = dict(read["subscription"])
    given["within"] = timedelta(milliseconds=given["within"])
    return SubscriptionRow(**{**read, "subscription": Subscription(**given)})


def _value_of(rows: Rows) -> dict[str, Any]:
    value = {name: asdict(row) for name, row in rows.items()}
    for name, row in rows.items():
        value[name]["subscription"]["within"] = to_ms(row.subscription.within)
    return {"rows": value}
