"""What happened, as frozen records, and who listens.

The engine emits records and knows no listener; logs, the live view and counters are listeners.
No record holds a payload, a header or a secret; addresses are shown without user, query or fragment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CallAttempted:
    """One attempt of a call through a connection. ``outcome`` is ``"answered"`` or a ``CallError.kind``."""

    connection: str
    operation: str
    method: str
    url: str
    attempt: int
    outcome: str
    status: int | None
    elapsed_ms: float
    retry_in_ms: float | None = None


@dataclass(frozen=True, slots=True)
class PollAnswered:
    """A poll was called and its answer recorded. ``failures``: those in a row that this answer ended."""

    poll: str
    outcome: Literal["changed", "unchanged", "not_modified", "stale"]
    lag_ms: int
    elapsed_ms: float
    failures: int = 0
    event: str | None = None
    event_id: str | None = None
    deliveries: int = 0


@dataclass(frozen=True, slots=True)
class PollFailed:
    """A poll's call failed, the ``failures``-th time in a row; it is due again after ``retry_in_ms``."""

    poll: str
    kind: str
    error: str
    failures: int
    retry_in_ms: float


@dataclass(frozen=True, slots=True)
class PollQuiet:
    """A poll has not changed for longer than its connection's ``quiet_after`` (emitted once for each quiet time)."""

    poll: str
    quiet_for_ms: float


@dataclass(frozen=True, slots=True)
class DeliverySettled:
    """One attempt of a delivery ended. ``lost``: its lock was lost meanwhile and the result discarded.

    ``age_ms`` is how long ago the change was kept, by this machine's clock against the store's.
    """

    subscriber: str
    delivery: str
    outcome: Literal["succeeded", "retried", "dead", "given_back", "lost"]
    attempt: int
    elapsed_ms: float
    error: str | None = None
    retry_in_ms: float | None = None
    age_ms: float | None = None


@dataclass(frozen=True, slots=True)
class QueuePolled:
    """A dispatcher asked its provider for work once.

    ``queue``: the queues that it asks for, joined by commas. ``items``: how many it got. ``interval_s``: the interval
    at which it asks from now on, before jitter and counted from when this fetch began: the polling strategy's, or
    after ``"failed"`` its back-off's. A fetch that found as much as it could take, or that blocked, is followed by
    the next one at once, whatever the interval. ``backed_off``: the strategy made the interval longer, or an error
    puts the next fetch off.
    """

    queue: str
    outcome: Literal["found", "empty", "contended", "failed"]
    items: int
    interval_s: float
    backed_off: bool = False


@dataclass(frozen=True, slots=True)
class TaskSettled:
    """One attempt of a task ended. ``lost``: its lock was lost meanwhile and the result discarded.

    ``age_ms`` is how long ago the item was enqueued, by this machine's clock against the store's.
    """

    task: str
    queue: str
    item: str
    outcome: Literal["succeeded", "retried", "dead", "given_back", "lost"]
    attempt: int
    elapsed_ms: float
    error: str | None = None
    retry_in_ms: float | None = None
    age_ms: float | None = None


@dataclass(frozen=True, slots=True)
class QueueCounted:
    """How many items of a queue are in each state. ``oldest_ms``: for how long the oldest could be had."""

    queue: str
    ready: int
    running: int
    done: int
    dead: int
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    """A receiver said that it is gone (410), so its subscription ended."""

    subscriber: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProviderDown:
    """A loop cannot reach the store; emitted on the edge only, and again as a summary now and then."""

    loop: str
    error: str
    failures: int


@dataclass(frozen=True, slots=True)
class ProviderUp:
    """The store answers again, after ``failures`` failures in ``down_ms``."""

    loop: str
    failures: int
    down_ms: float


@dataclass(frozen=True, slots=True)
class EngineState:
    """The engine started, began to stop, or stopped."""

    state: Literal["running", "stopping", "stopped"]
    detail: str = ""


Record = (
    CallAttempted
    | PollAnswered
    | PollFailed
    | PollQuiet
    | DeliverySettled
    | QueuePolled
    | QueueCounted
    | TaskSettled
    | SubscriptionEnded
    | ProviderDown
    | ProviderUp
    | EngineState
)

Listener = Callable[[Record], None]


class Telemetry:
    """Hands each record to every listener, in the order they were added. Listeners must be quick and not raise."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Add ``listener``; call the answer to remove it again."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @property
    def heard(self) -> bool:
        """Whether anybody listens; lets hot paths leave out building records."""
        return bool(self._listeners)

    def emit(self, record: Record) -> None:
        """Tell every listener. One that raises is logged and harms nobody."""
        for listener in self._listeners:
            try:
                listener(record)
            except Exception:
                logging.getLogger("bide").exception("a listener failed on %s", type(record).__name__)
