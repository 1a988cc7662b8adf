"""What is counted, under which names and labels, and by which records: one table for every system of metrics.

Labels are names that were declared and words of a fixed set, never ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from bide.app import App
from bide.core.durations import parse_duration
from bide.metrics.readings import MOST_SERIES, Reading, provider_of, readings_of
from bide.telemetry import (
    CallAttempted,
    DeliverySettled,
    PollAnswered,
    PollFailed,
    ProviderDown,
    ProviderUp,
    QueueCounted,
    QueuePolled,
    Record,
    TaskSettled,
)

SECONDS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0)
"""Bounds of the buckets of durations: from a handler that only computes to one that waits for others."""

LATENCIES = (0.05, 0.25, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 21600.0)
"""Bounds of the buckets of what includes waiting: from a fetch that was woken to hours of retries."""

COUNT_EVERY = timedelta(minutes=1)
"""How often the items of queues are counted, by default."""

STATES = ("ready", "running", "done", "dead")


class Counter(Protocol):
    """Something that only grows."""

    def add(self, labels: Sequence[str], amount: float = 1) -> None:
        """Count ``amount`` more under these label values."""
        ...


class Gauge(Protocol):
    """Something that is now so much."""

    def set(self, labels: Sequence[str], value: float) -> None:
        """Say how much it is under these label values."""
        ...


class Histogram(Protocol):
    """Something of which the spread counts."""

    def observe(self, labels: Sequence[str], value: float) -> None:
        """Count one that was so much, under these label values."""
        ...


class Meter(Protocol):
    """A system of metrics: makes what is counted in. Names are Prometheus's: units and ``_total`` at the end."""

    def counter(self, name: str, text: str, *labels: str) -> Counter: ...

    def gauge(self, name: str, text: str, *labels: str) -> Gauge: ...

    def histogram(self, name: str, text: str, *labels: str, bounds: Sequence[float] = SECONDS) -> Histogram:
        """``bounds`` are those of its buckets, in seconds."""
        ...


class Instruments:
    """Everything that is counted by records, in one ``meter``."""

    def __init__(self, meter: Meter) -> None:
        counter, gauge, histogram = meter.counter, meter.gauge, meter.histogram
        worker, poll, queue = ("queue", "provider"), ("connection",), ("queue",)
        self._interval = gauge(
            "bide_worker_poll_interval_seconds",
            "How long a worker waits now between two fetches that find nothing, before jitter.",
            *worker,
        )
        self._polled = counter("bide_worker_poll_total", "Fetches from the queue.", *worker)
        self._outcomes = {
            "empty": counter("bide_worker_poll_empty_total", "Fetches that found nothing.", *worker),
            "contended": counter(
                "bide_worker_poll_contended_total", "Fetches that lost what they found to others.", *worker
            ),
            "failed": counter(
                "bide_worker_poll_failed_total", "Fetches that the store did not answer.", *worker
            ),
        }
        self._fetched = counter("bide_worker_poll_items_total", "Items fetched.", *worker)
        self._backoff = counter(
            "bide_worker_backoff_total",
            "Fetches after which the strategy, or an error, makes a worker wait longer.",
            *worker,
        )
        self._tasks = counter("bide_tasks_total", "Attempts of tasks.", "task", "queue", "outcome")
        self._task_seconds = histogram("bide_task_seconds", "How long attempts took.", "task", "queue")
        self._task_latency = histogram(
            "bide_task_latency_seconds",
            "From enqueueing to success, waits and retries included.",
            *("task", "queue"),
            bounds=LATENCIES,
        )
        self._deliveries = counter(
            "bide_deliveries_total", "Attempts of deliveries.", "subscriber", "outcome"
        )
        self._delivery_seconds = histogram("bide_delivery_seconds", "How long attempts took.", "subscriber")
        self._delivery_latency = histogram(
            "bide_delivery_latency_seconds",
            "From the change being kept to its delivery, waits and retries included.",
            "subscriber",
            bounds=LATENCIES,
        )
        self._polls = counter("bide_polls_total", "Calls of polls.", *poll, "outcome")
        self._lag = histogram("bide_poll_lag_seconds", "How late polls were called.", *poll)
        self._calls = counter("bide_calls_total", "Attempts of calls.", *poll, "outcome")
        self._call_seconds = histogram("bide_call_seconds", "How long attempts of calls took.", *poll)
        self._items = gauge("bide_queue_items", "Items of a queue, by state.", *queue, "state")
        self._oldest = gauge(
            "bide_queue_oldest_seconds", "For how long the oldest item of a queue could be had.", *queue
        )
        self._down = gauge("bide_store_down", "1 while a loop cannot reach the store.", "loop")

    def queue_polled(self, record: QueuePolled, provider: str) -> None:
        """Count one fetch."""
        labels = (record.queue, provider)
        self._interval.set(labels, record.interval_s)
        self._polled.add(labels)
        self._backoff.add(labels, record.backed_off)
        self._fetched.add(labels, record.items)
        for outcome, counter in self._outcomes.items():
            counter.add(labels, record.outcome == outcome)

    def task_settled(self, record: TaskSettled) -> None:
        """Count one attempt of a task."""
        labels = (record.task, record.queue)
        self._tasks.add((*labels, record.outcome))
        self._task_seconds.observe(labels, record.elapsed_ms / 1000)
        if record.outcome == "succeeded" and record.age_ms is not None:
            self._task_latency.observe(labels, record.age_ms / 1000)

    def delivery_settled(self, record: DeliverySettled) -> None:
        """Count one attempt of a delivery."""
        labels = (record.subscriber,)
        self._deliveries.add((*labels, record.outcome))
        self._delivery_seconds.observe(labels, record.elapsed_ms / 1000)
        if record.outcome == "succeeded" and record.age_ms is not None:
            self._delivery_latency.observe(labels, record.age_ms / 1000)

    def poll_called(self, record: PollAnswered | PollFailed) -> None:
        """Count one call of a poll, under its connection."""
        connection = record.poll.partition(".")[0]
        match record:
            case PollAnswered():
                self._polls.add((connection, record.outcome))
                self._lag.observe((connection,), max(0, record.lag_ms) / 1000)
            case PollFailed():
                self._polls.add((connection, "failed"))

    def call_attempted(self, record: CallAttempted) -> None:
        """Count one attempt of a call."""
        self._calls.add((record.connection, record.outcome))
        self._call_seconds.observe((record.connection,), record.elapsed_ms / 1000)

    def queue_counted(self, record: QueueCounted) -> None:
        """Say how a queue stands."""
        for state in STATES:
            self._items.set((record.queue, state), getattr(record, state))
        if record.oldest_ms is not None or not record.ready:  # some stores cannot tell
            self._oldest.set((record.queue,), (record.oldest_ms or 0) / 1000)

    def store_told(self, record: ProviderDown | ProviderUp) -> None:
        """Keep whether a loop reaches the store."""
        self._down.set((record.loop,), isinstance(record, ProviderDown))


class Watcher:
    """Listens to one app, whose store is the ``provider`` of its labels."""

    def __init__(self, instruments: Instruments, app: App) -> None:
        self._instruments = instruments
        self._app = app
        self._provider: str | None = None

    def __call__(self, record: Record) -> None:
        match record:
            case QueuePolled():
                self._provider = self._provider or provider_of(self._app)
                self._instruments.queue_polled(record, self._provider)
            case TaskSettled():
                self._instruments.task_settled(record)
            case DeliverySettled():
                self._instruments.delivery_settled(record)
            case PollAnswered() | PollFailed():
                self._instruments.poll_called(record)
            case CallAttempted():
                self._instruments.call_attempted(record)
            case QueueCounted():
                self._instruments.queue_counted(record)
            case ProviderDown() | ProviderUp():
                self._instruments.store_told(record)
            case _:
                pass


class Watched:
    """The apps whose metrics are asked for, and what is read of them when somebody asks."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._apps: list[App] = []

    def add(self, app: App, count_every: timedelta | float | str | None) -> Callable[[], None]:
        """Count what happens in ``app`` from now on; call the answer to end it.

        ``count_every`` is how often it counts the items of its queues while it runs; None: never. Raises
        ``SettingError`` for what is no duration.
        """
        every = None if count_every is None else parse_duration(count_every, "count_every")
        unlisten = app.telemetry.listen(Watcher(self._instruments, app))
        self._apps.append(app)
        before, app.count_every = app.count_every, every or app.count_every

        def end() -> None:
            unlisten()
            self._apps.remove(app)
            app.count_every = before

        return end

    def read(self) -> list[Reading]:
        """What can be read at this moment."""
        return readings_of(self._apps)


T = TypeVar("T")


class Series(dict[tuple[str, ...], T]):
    """What one metric keeps by label values, of which there are only so many: further ones share ``other``."""

    def __init__(self, make: Callable[[tuple[str, ...]], T]) -> None:
        self._make = make

    def __missing__(self, labels: tuple[str, ...]) -> T:
        if len(self) >= MOST_SERIES:
            labels = ("other",) * len(labels)
            if labels in self:
                return self[labels]
        made = self[labels] = self._make(labels)
        return made
