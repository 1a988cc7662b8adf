"""Rows of subscriptions: who hears which event."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from bide.core.durations import to_ms
from bide.provider import DELIVERIES, Subscription, SubscriptionRow
from bide.providers import reasons
from bide.providers.sqlite.items import as_json
from bide.providers.sqlite.writer import Transaction

_REGISTER = """
INSERT INTO subscriptions (name, event, kind, target, within_ms, ordered, max_attempts, created_at, declared_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)
ON CONFLICT (name) DO UPDATE SET
    ended_at = CASE WHEN (event, kind, target) = (?2, ?3, ?4) THEN ended_at END,
    ended_reason = CASE WHEN (event, kind, target) = (?2, ?3, ?4) THEN ended_reason END,
    event = ?2, kind = ?3, target = ?4, within_ms = ?5, ordered = ?6, max_attempts = ?7, declared_at = ?8
RETURNING ended_at IS NULL
"""

_SUBSCRIPTIONS = """
SELECT name, event, kind, target, within_ms, ordered, max_attempts, created_at, declared_at, ended_at, ended_reason
FROM subscriptions
WHERE :event IS NULL OR (event = :event AND ended_at IS NULL)
ORDER BY name
"""

_END = """
UPDATE subscriptions SET ended_at = :now, ended_reason = :reason
WHERE name IN (SELECT value FROM json_each(:names)) AND ended_at IS NULL
RETURNING name
"""

_RESUME = """
UPDATE subscriptions SET ended_at = NULL, ended_reason = NULL
WHERE name IN (SELECT value FROM json_each(:names)) AND ended_at IS NOT NULL
RETURNING name
"""

_END_DELIVERIES = """
UPDATE work_items SET state = 'dead', ended_at = :now, error = :why
WHERE queue = :queue AND state IN ('ready', 'waiting', 'blocked') AND name IN (SELECT value FROM json_each(:names))
"""


def register(transaction: Transaction, subscriptions: Sequence[Subscription]) -> list[str]:
    """Upsert ``subscriptions``; the names of those that live."""
    living = []
    for subscription in subscriptions:
        row = (
            subscription.name,
            subscription.event,
            subscription.kind,
            subscription.target,
            to_ms(subscription.within),
            int(subscription.ordered),
            subscription.max_attempts,
            transaction.now,
        )
        (lives,) = transaction.row(_REGISTER, row)
        if lives:
            living.append(subscription.name)
    return sorted(living)


def all_rows(transaction: Transaction, _: None) -> list[SubscriptionRow]:
    """Every subscription by name."""
    return [_as_row(row) for row in transaction.rows(_SUBSCRIPTIONS, {"event": None})]


def hearing_now(transaction: Transaction, event: str) -> list[Subscription]:
    """The subscriptions that live and hear ``event``, by name."""
    return [_as_row(row).subscription for row in transaction.rows(_SUBSCRIPTIONS, {"event": event})]


def living(transaction: Transaction, name: str) -> Subscription | None:
    """The subscription of that name, if there is one and it lives."""
    rows = [_as_row(row) for row in transaction.rows(_SUBSCRIPTIONS, {"event": None})]
    return next(
        (row.subscription for row in rows if row.subscription.name == name and row.ended_at is None), None
    )


def _as_row(row: tuple[Any, ...]) -> SubscriptionRow:
    name, event, kind, target, within_ms, ordered, max_attempts, *ages = row
    subscription = Subscription(
        name=name,
        event=event,
        kind=kind,
        target=target,
        within=timedelta(milliseconds=within_ms),
        ordered=bool(ordered),
        max_attempts=max_attempts,
    )
    return SubscriptionRow(subscription, *ages)


def end(transaction: Transaction, request: tuple[Collection[str], str]) -> list[str]:
    """End those of the names that live, and the deliveries that wait for them; which these were."""
    names, reason = request
    bindings = {"names": as_json(names), "now": transaction.now, "reason": reasons.storable(reason)}
    ended = sorted(name for (name,) in transaction.rows(_END, bindings))
    why = reasons.subscription_ended(reason)
    waiting = {"names": as_json(ended), "now": transaction.now, "why": why, "queue": DELIVERIES}
    transaction.row(_END_DELIVERIES, waiting)
    return ended


def resume(transaction: Transaction, names: Collection[str]) -> list[str]:
    """Let those of the names that ended live again; which these were."""
    return sorted(name for (name,) in transaction.rows(_RESUME, {"names": as_json(names)}))
