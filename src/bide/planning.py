"""The plan: what would run, what would not and why, with each poll's next due instant where it is known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bide.core.claim import claimable_at
from bide.core.declaration import Declarations, EventType, Poll, Subscriber
from bide.core.durations import to_ms
from bide.engine.running import subscription_of
from bide.provider import PollRow, SubscriptionRow

_GONE = re.compile(r"\banswered 410\b")

PER_INSTANCE = "instance"
"""Scope of a cap that each process counts for itself."""


@dataclass(frozen=True, slots=True)
class PlannedPoll:
    """One declared poll. ``next_due`` is in milliseconds since the Unix epoch; None: not known, or never."""

    name: str
    every_ms: int
    active: bool
    reason: str
    next_due: int | None
    event: str


@dataclass(frozen=True, slots=True)
class PlannedConnection:
    """One connection and its cap. ``scope`` says over what ``max_concurrent`` is counted."""

    name: str
    package: str
    max_concurrent: int | None
    scope: str = PER_INSTANCE


@dataclass(frozen=True, slots=True)
class PublicEvent:
    """An event that subscribers may hear, with its fields' types as text."""

    package: str
    name: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is declared to run, by name."""

    polls: tuple[PlannedPoll, ...]
    connections: tuple[PlannedConnection, ...]
    events: tuple[PublicEvent, ...]


def make_plan(
    declarations: Declarations,
    rows: Mapping[str, PollRow],
    *,
    now_ms: int,
    subscriptions: Iterable[SubscriptionRow] = (),
) -> Plan:
    """The plan of ``declarations``.

    ``rows`` are what the store keeps of polls, ``subscriptions`` of subscribers; ``now_ms`` is its clock.
    """
    kept = {row.subscription.name: row for row in subscriptions}
    hearers: dict[str, list[Subscriber]] = {}
    for _, subscriber in sorted(declarations.subscribers.items()):
        hearers.setdefault(subscriber.event, []).append(subscriber)
    return Plan(
        polls=tuple(
            _planned(poll, rows.get(name), now_ms, _silenced(hearers.get(poll.event.name, ()), kept))
            for name, poll in sorted(declarations.polls.items())
        ),
        connections=tuple(
            PlannedConnection(name, connection.package, connection.max_concurrent)
            for name, connection in sorted(declarations.connections.items())
        ),
        events=tuple(_public(event) for _, event in sorted(declarations.events.items()) if event.public),
    )


def is_ended(subscriber: Subscriber, row: SubscriptionRow | None) -> bool:
    """Whether the subscription has ended and stays so: one of another target or event begins anew."""
    if row is None or row.ended_at is None:
        return False
    kept, declared = row.subscription, subscription_of(subscriber)
    return (kept.event, kept.kind, kept.target) == (declared.event, declared.kind, declared.target)


def _silenced(hearers: Sequence[Subscriber], kept: Mapping[str, SubscriptionRow]) -> str | None:
    """Why nobody hears an event any more, though it has ``hearers``; None where somebody does."""
    ended = [hearer.name for hearer in hearers if is_ended(hearer, kept.get(hearer.name))]
    if not ended or len(ended) < len(hearers):
        return None
    reasons = ", ".join(f"{name} ended: {kept[name].ended_reason}" for name in ended)
    return f"{reasons}; `bide subscribers resume {' '.join(ended)}`"


def _public(event: EventType) -> PublicEvent:
    package, _, name = event.name.partition(".")
    return PublicEvent(package, name, {field: str(kind) for field, kind in event.fields.items()})


def _planned(poll: Poll, row: PollRow | None, now_ms: int, silenced: str | None) -> PlannedPoll:
    every_ms = to_ms(poll.every)
    active, reason = poll.active, poll.reason
    if active and silenced is not None:
        active, reason = False, silenced
    if row is not None and row.paused:
        active, reason = False, _why_paused(row)
    due = claimable_at(row, now=now_ms, every_ms=every_ms) if active and row is not None else None
    return PlannedPoll(poll.name, every_ms, active, reason, due, poll.event.name)


def _why_paused(row: PollRow) -> str:
    """Who paused a poll: a server that answered 410, which its last error says then, or a person."""
    if row.failures and _GONE.search(row.last_error or ""):
        return f"paused: the server answered 410 Gone; `bide polls resume {row.name}`"
    return "paused by hand"
