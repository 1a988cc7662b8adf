"""What the live view knows: a value that telemetry records and glances at the store are folded into.

Nothing here draws (:mod:`bide.cli.live` does), waits or tells time; instants are milliseconds since the epoch.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import assert_never

from bide.telemetry import (
    CallAttempted,
    DeliverySettled,
    EngineState,
    PollAnswered,
    PollFailed,
    PollQuiet,
    ProviderDown,
    ProviderUp,
    QueueCounted,
    QueuePolled,
    Record,
    SubscriptionEnded,
    TaskSettled,
)


@dataclass(slots=True)
class PollLine:
    """One poll as the view shows it."""

    name: str
    every_ms: int
    paused: bool = False
    next_due: int | None = None
    outcome: str = ""
    answered_at: int | None = None
    changed_at: int | None = None
    calls: int = 0
    changes: int = 0
    error: str | None = None
    quiet: bool = False


@dataclass(slots=True)
class SubscriberLine:
    """One subscriber and what became of its deliveries since the view began."""

    name: str
    kind: str
    succeeded: int = 0
    retried: int = 0
    dead: int = 0
    latest: str = ""
    latest_at: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One event: what it says, compactly."""

    seq: int
    at: int
    name: str
    poll: str
    payload: str


@dataclass(slots=True)
class Totals:
    """Counts since the view began. ``calls`` counts attempts; the others count polls and deliveries."""

    calls: int = 0
    not_modified: int = 0
    unchanged: int = 0
    changed: int = 0
    failed: int = 0
    stale: int = 0
    succeeded: int = 0
    retried: int = 0
    dead: int = 0
    given_back: int = 0
    lost: int = 0

    @property
    def answered(self) -> int:
        """Polls that were answered, whatever came of it."""
        return self.not_modified + self.unchanged + self.changed + self.stale


@dataclass(slots=True)
class View:
    """Everything on the screen. ``location`` is where the store is; ``waiting`` counts deliveries in it."""

    location: str
    started_at: int
    polls: dict[str, PollLine] = field(default_factory=dict)
    subscribers: dict[str, SubscriberLine] = field(default_factory=dict)
    changes: tuple[ChangeLine, ...] = ()
    totals: Totals = field(default_factory=Totals)
    tasks: Counter[str] = field(default_factory=Counter)
    """Attempts of tasks, by how they ended."""
    waiting: int = 0
    state: str = "starting"
    trouble: str | None = None

    def fold(self, record: Record, now: int) -> None:
        """Take in one record."""
        match record:
            case CallAttempted():
                self.totals.calls += 1
            case PollAnswered():
                self._answered(record, now)
            case PollFailed():
                self._failed(record, now)
            case PollQuiet():
                if record.poll in self.polls:
                    self.polls[record.poll].quiet = True
            case DeliverySettled() | TaskSettled():
                self._settled(record, now)
            case SubscriptionEnded():
                self.trouble = f"subscription {record.subscriber} ended: {record.reason}"
            case ProviderDown():
                self.trouble = f"the store fails: {record.error}"
            case ProviderUp():
                self.trouble = None
            case EngineState():
                self.state = record.state
            case QueuePolled() | QueueCounted():
                pass
            case _:
                assert_never(record)

    def _answered(self, record: PollAnswered, now: int) -> None:
        count = getattr(self.totals, record.outcome)
        setattr(self.totals, record.outcome, count + 1)
        poll = self.polls.get(record.poll)
        if poll is None:
            return
        poll.calls += 1
        poll.outcome, poll.answered_at, poll.error = record.outcome.replace("_", " "), now, None
        if record.outcome == "changed":
            poll.changes += 1
            poll.changed_at, poll.quiet = now, False

    def _failed(self, record: PollFailed, now: int) -> None:
        self.totals.failed += 1
        poll = self.polls.get(record.poll)
        if poll is None:
            return
        poll.calls += 1
        poll.outcome, poll.answered_at, poll.error = "failed", now, record.error
        poll.next_due = now + round(record.retry_in_ms)

    def _settled(self, record: DeliverySettled | TaskSettled, now: int) -> None:
        if isinstance(record, TaskSettled):
            self.tasks[record.outcome] += 1
            return
        count = getattr(self.totals, record.outcome)
        setattr(self.totals, record.outcome, count + 1)
        line = self.subscribers.setdefault(record.subscriber, SubscriberLine(record.subscriber, "?"))
        match record.outcome:
            case "succeeded":
                line.succeeded += 1
            case "retried" | "lost":
                line.retried += 1
            case "dead":
                line.dead += 1
            case "given_back":
                pass
            case _:
                assert_never(record.outcome)
        line.latest = record.outcome.replace("_", " ")
        line.latest_at, line.error = now, record.error


def told_tasks(view: View) -> str:
    """What became of tasks, in a few words; nothing where none was tried."""
    if not view.tasks:
        return ""
    told = ", ".join(f"{view.tasks[outcome]} {outcome}" for outcome in ("succeeded", "retried", "dead"))
    return f"tasks: {told}"


def shown_polls(view: View, limit: int) -> list[PollLine]:
    """At most ``limit`` polls: all in their order where they fit, else failing ones and the latest changes first."""
    lines = list(view.polls.values())
    if len(lines) <= limit:
        return lines
    return heapq.nsmallest(limit, lines, key=_importance)


def _importance(line: PollLine) -> tuple[bool, int, str]:
    return line.error is None, -(line.changed_at or 0), line.name
