"""What the function of a task may ask for and may raise: its context, and three ways to end an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bide.core.durations import Duration, parse_duration

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Context:
    """One attempt of a task, for a parameter that is annotated with this class.

    ``id`` is the work item's, the same at every attempt, for receivers that fence off or drop what they have already.
    ``attempt`` counts this one, from 1. ``cancelled`` turns true, seen from any thread, when the attempt is not
    wanted any more: its timeout or the grace of a stop is over, or its lock was lost. An async function is cancelled
    then; a plain one has to look, since nothing can stop a thread.
    """

    id: str
    task: str
    queue: str = "default"
    attempt: int = 1
    max_attempts: int | None = None
    enqueued_at_ms: int = 0
    deadline_ms: int | None = None
    cancelled: bool = False

    @property
    def enqueued_at(self) -> datetime:
        """When the item was enqueued, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.enqueued_at_ms)

    @property
    def deadline(self) -> datetime | None:
        """When this attempt's timeout or the item's whole life ends, whichever is earlier, in UTC; None: never."""
        return None if self.deadline_ms is None else _EPOCH + timedelta(milliseconds=self.deadline_ms)


class Retry(Exception):
    """Raised by a task's function: this attempt failed; try again ``after`` so long (None: by the back-off).

    It counts as an attempt, so the last of ``max_attempts`` is dead. Raises ``SettingError`` for an ``after`` that is
    no duration; 0 is one.
    """

    def __init__(self, after: Duration | None = None, reason: str = "") -> None:
        self.after = None if after is None else parse_duration(after, "Retry(after)", zero=True)
        self.reason = reason
        super().__init__(reason or "asked to be tried again")


class GiveBack(Exception):
    """Raised by a task's function: nothing could be tried; give the item back, to be had again ``after`` so long.

    The attempt is not counted; after ``max_give_backs`` the item is dead. Raises ``SettingError`` as :class:`Retry`.
    """

    def __init__(self, after: Duration = "1s", reason: str = "") -> None:
        self.after = parse_duration(after, "GiveBack(after)", zero=True)
        self.reason = reason
        super().__init__(reason or "given back")


class Discard(Exception):
    """Raised by a task's function: this will never succeed. The item is dead, kept with ``reason``."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)
