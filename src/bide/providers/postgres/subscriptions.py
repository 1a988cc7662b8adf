"""Rows of subscriptions: who hears which event."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from bide.core.durations import to_ms
from bide.provider import Subscription, SubscriptionRow
from bide.providers.postgres.session import Transaction
from bide.providers.postgres.texts import shown, shown_if_any, stored

REGISTER = """
INSERT INTO bide.subscriptions AS s
    (name, event, kind, target, within_ms, ordered, max_attempts, created_at, declared_at)
SELECT given.*, now.ms, now.ms
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::boolean[], $7::integer[])
    AS given(name, event, kind, target, within_ms, ordered, max_attempts)
CROSS JOIN (SELECT bide.now_ms()) AS now(ms)
ORDER BY given.name
ON CONFLICT (name) DO UPDATE SET
    ended_at = CASE
        WHEN (s.event, s.kind, s.target) = (excluded.event, excluded.kind, excluded.target) THEN s.ended_at END,
    ended_reason = CASE
        WHEN (s.event, s.kind, s.target) = (excluded.event, excluded.kind, excluded.target) THEN s.ended_reason END,
    event = excluded.event, kind = excluded.kind, target = excluded.target, within_ms = excluded.within_ms,
    ordered = excluded.ordered, max_attempts = excluded.max_attempts, declared_at = excluded.declared_at
RETURNING name, ended_at IS NULL
"""

ALL = """
SELECT name, event, kind, target, within_ms, ordered, max_attempts, created_at, declared_at, ended_at, ended_reason
FROM bide.subscriptions ORDER BY name
"""

_HEARING = """
SELECT name, event, kind, target, within_ms, ordered, max_attempts, created_at, declared_at, ended_at, ended_reason
FROM bide.subscriptions WHERE event = ANY ($1::text[]) AND ended_at IS NULL ORDER BY name
"""

LIVING = """
SELECT name, event, kind, target, within_ms, ordered, max_attempts, created_at, declared_at, ended_at, ended_reason
FROM bide.subscriptions WHERE name = $1 AND ended_at IS NULL
"""

RESUME = """
UPDATE bide.subscriptions SET ended_at = NULL, ended_reason = NULL
WHERE name = ANY ($1::text[]) AND ended_at IS NOT NULL
RETURNING name
"""


def register_arguments(subscriptions: Collection[Subscription]) -> list[list[Any]]:
    """What :data:`REGISTER` is given."""
    rows = [
        (
            stored(given.name),
            stored(given.event),
            given.kind,
            stored(given.target),
            to_ms(given.within),
            given.ordered,
            given.max_attempts,
        )
        for given in {given.name: given for given in subscriptions}.values()
    ]
    return [list(column) for column in zip(*rows, strict=True)]


async def hearing_now(transaction: Transaction, events: Collection[str]) -> list[Subscription]:
    """The subscriptions that live and hear one of ``events``, by name."""
    rows = await transaction.rows(_HEARING, [stored(event) for event in events])
    return [as_row(row).subscription for row in rows]


def as_row(row: Any) -> SubscriptionRow:
    """A row as it is answered."""
    name, event, kind, target, within_ms, ordered, max_attempts, created_at, declared_at, ended_at, reason = (
        row
    )
    subscription = Subscription(
        name=shown(name),
        event=shown(event),
        kind=kind,
        target=shown(target),
        within=timedelta(milliseconds=within_ms),
        ordered=ordered,
        max_attempts=max_attempts,
    )
    return SubscriptionRow(subscription, created_at, declared_at, ended_at, shown_if_any(reason))
