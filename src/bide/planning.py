"""The plan: what would run, what would not and why, with each poll's next due instant where it is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bide.core.claim import claimable_at
from bide.core.declaration import Declarations, EventType, Poll
from bide.core.durations import to_ms
from bide.provider import PollRow

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


def make_plan(declarations: Declarations, rows: Mapping[str, PollRow], *, now_ms: int) -> Plan:
    """The plan of ``declarations``; ``rows`` are what the store keeps of polls, ``now_ms`` its clock."""
    return Plan(
        polls=tuple(
            _planned(poll, rows.get(name), now_ms) for name, poll in sorted(declarations.polls.items())
        ),
        connections=tuple(
            PlannedConnection(name, connection.package, connection.max_concurrent)
            for name, connection in sorted(declarations.connections.items())
        ),
        events=tuple(_public(event) for _, event in sorted(declarations.events.items()) if event.public),
    )


def _public(event: EventType) -> PublicEvent:
    package, _, name = event.name.partition(".")
    return PublicEvent(package, name, {field: str(kind) for field, kind in event.fields.items()})


def _planned(poll: Poll, row: PollRow | None, now_ms: int) -> PlannedPoll:
    every_ms = to_ms(poll.every)
    active, reason = poll.active, poll.reason
    if active and row is not None and row.paused:
        active, reason = False, "paused by hand"
    due = claimable_at(row, now=now_ms, every_ms=every_ms) if active and row is not None else None
    return PlannedPoll(poll.name, every_ms, active, reason, due, poll.event.name)
