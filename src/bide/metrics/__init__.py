"""Metrics for Prometheus: what happened, counted, from the same records that logs are made of.

Needs ``prometheus_client`` (``pip install 'bide[metrics]'``), which is imported when :class:`Metrics` is made.
Labels are names that were declared and words of a fixed set, never ids; behind :data:`MOST_SERIES` of one metric,
further label values are counted together as ``other``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bide.errors import BideError
from bide.metrics.reading import MOST_SERIES, RequestsCollector, SlotsCollector, provider_of
from bide.telemetry import (
    CallAttempted,
    DeliverySettled,
    PollAnswered,
    PollFailed,
    ProviderDown,
    ProviderUp,
    QueuePolled,
    Record,
    TaskSettled,
)

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram
    from prometheus_client.registry import CollectorRegistry

    from bide.app import App

__all__ = ["MOST_SERIES", "Endpoint", "Metrics", "provider_of"]

_SECONDS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0)
"""Bounds of the buckets of durations: from a handler that only computes to one that waits for others."""

M = TypeVar("M", "Counter", "Gauge", "Histogram")


class Metrics:
    """Counts what happens in the apps that it watches.

    ``registry`` is where the metrics are registered, by default one of their own; give
    ``prometheus_client.REGISTRY`` to join those that a program has already. Mount :attr:`registry` where the program
    serves metrics (``prometheus_client.make_asgi_app(metrics.registry)``), or call :meth:`serve`.
    Raises :class:`~bide.errors.BideError` where ``prometheus_client`` is not installed.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError as error:
            raise BideError(
                "metrics need prometheus_client, which is not installed; pip install 'bide[metrics]'"
            ) from error

        self.registry: CollectorRegistry = CollectorRegistry() if registry is None else registry

        def counter(name: str, text: str, *labels: str) -> _Series[Counter]:
            return _Series(Counter(name, text, labels, registry=self.registry))

        def gauge(name: str, text: str, *labels: str) -> _Series[Gauge]:
            return _Series(Gauge(name, text, labels, registry=self.registry))

        def seconds(name: str, text: str, *labels: str) -> _Series[Histogram]:
            return _Series(Histogram(name, text, labels, registry=self.registry, buckets=_SECONDS))

        worker, poll = ("queue", "provider"), ("connection",)
        self._interval = gauge(
            "bide_worker_poll_interval_seconds",
            "How long a worker waits now between two fetches that find nothing, before jitter.",
            *worker,
        )
        self._polled = counter("bide_worker_poll_total", "Fetches from the queue.", *worker)
        self._empty = counter("bide_worker_poll_empty_total", "Fetches that found nothing.", *worker)
        self._contended = counter(
            "bide_worker_poll_contended_total", "Fetches that lost what they found to others.", *worker
        )
        self._unanswered = counter(
            "bide_worker_poll_failed_total", "Fetches that the store did not answer.", *worker
        )
        self._fetched = counter("bide_worker_poll_items_total", "Items fetched.", *worker)
        self._backoff = counter(
            "bide_worker_backoff_total",
            "Fetches after which the strategy, or an error, makes a worker wait longer.",
            *worker,
        )
        self._tasks = counter("bide_tasks_total", "Attempts of tasks.", "task", "queue", "outcome")
        self._task_seconds = seconds("bide_task_seconds", "How long attempts took.", "task", "queue")
        self._deliveries = counter(
            "bide_deliveries_total", "Attempts of deliveries.", "subscriber", "outcome"
        )
        self._delivery_seconds = seconds("bide_delivery_seconds", "How long attempts took.", "subscriber")
        self._polls = counter("bide_polls_total", "Calls of polls.", *poll, "outcome")
        self._lag = seconds("bide_poll_lag_seconds", "How late polls were called.", *poll)
        self._calls = counter("bide_calls_total", "Attempts of calls.", *poll, "outcome")
        self._call_seconds = seconds("bide_call_seconds", "How long attempts of calls took.", *poll)
        self._down = gauge("bide_store_down", "1 while a loop cannot reach the store.", "loop")
        self._apps: list[App] = []
        for collector in (SlotsCollector(self._apps), RequestsCollector(self._apps)):
            self.registry.register(collector)

    def watch(self, app: App) -> Callable[[], None]:
        """Count what happens in ``app`` from now on; call the answer to end it."""
        listener = _Watcher(self, app)
        unlisten = app.telemetry.listen(listener)
        self._apps.append(app)

        def end() -> None:
            unlisten()
            self._apps.remove(app)

        return end

    def serve(self, port: int, host: str = "127.0.0.1") -> Endpoint:
        """Answer ``GET /metrics`` at ``host`` and ``port`` (0 takes a free one) from a thread of its own.

        Other machines can ask only where ``host`` is an address that they reach; whoever can, need not say who they
        are. Raises :class:`~bide.errors.BideError` where nothing can be served there.
        """
        return Endpoint(self.registry, port, host)

    # --- what the records say ------------------------------------------------------------------------------

    def _queue_polled(self, record: QueuePolled, provider: str) -> None:
        """Count one fetch."""
        labels = (record.queue, provider)
        self._interval.of(*labels).set(record.interval_s)
        self._polled.of(*labels).inc()
        self._backoff.of(*labels).inc(record.backed_off)
        self._fetched.of(*labels).inc(record.items)
        for outcome, series in (
            ("empty", self._empty),
            ("contended", self._contended),
            ("failed", self._unanswered),
        ):
            series.of(*labels).inc(record.outcome == outcome)

    def _settled(self, record: TaskSettled | DeliverySettled) -> None:
        """Count one attempt of a task or a delivery."""
        match record:
            case TaskSettled(task=task, queue=queue):
                self._tasks.of(task, queue, record.outcome).inc()
                self._task_seconds.of(task, queue).observe(record.elapsed_ms / 1000)
            case DeliverySettled(subscriber=subscriber):
                self._deliveries.of(subscriber, record.outcome).inc()
                self._delivery_seconds.of(subscriber).observe(record.elapsed_ms / 1000)

    def _poll_called(self, record: PollAnswered | PollFailed) -> None:
        """Count one call of a poll, under its connection."""
        connection = record.poll.partition(".")[0]
        match record:
            case PollAnswered():
                self._polls.of(connection, record.outcome).inc()
                self._lag.of(connection).observe(max(0, record.lag_ms) / 1000)
            case PollFailed():
                self._polls.of(connection, "failed").inc()

    def _call_attempted(self, record: CallAttempted) -> None:
        """Count one attempt of a call."""
        self._calls.of(record.connection, record.outcome).inc()
        self._call_seconds.of(record.connection).observe(record.elapsed_ms / 1000)

    def _store_told(self, record: ProviderDown | ProviderUp) -> None:
        """Keep whether a loop reaches the store."""
        self._down.of(record.loop).set(isinstance(record, ProviderDown))


class _Watcher:
    """Listens to one app, whose store is the ``provider`` of its labels."""

    def __init__(self, metrics: Metrics, app: App) -> None:
        self._metrics = metrics
        self._app = app
        self._provider: str | None = None

    def __call__(self, record: Record) -> None:
        match record:
            case QueuePolled():
                self._provider = self._provider or provider_of(self._app)
                self._metrics._queue_polled(record, self._provider)
            case TaskSettled() | DeliverySettled():
                self._metrics._settled(record)
            case PollAnswered() | PollFailed():
                self._metrics._poll_called(record)
            case CallAttempted():
                self._metrics._call_attempted(record)
            case ProviderDown() | ProviderUp():
                self._metrics._store_told(record)
            case _:
                pass


class _Series(Generic[M]):
    """One metric's children by label values, of which there are only so many."""

    def __init__(self, metric: M) -> None:
        self._metric: M = metric
        self._children: dict[tuple[str, ...], M] = {}

    def of(self, *values: str) -> M:
        """The child of ``values``; beyond the most that there may be, the one that all others share."""
        child = self._children.get(values)
        if child is None:
            if len(self._children) >= MOST_SERIES:
                values = ("other",) * len(values)
            child = self._children[values] = self._metric.labels(*values)
        return child


class Endpoint:
    """Where metrics are served, until it is closed; also as a context manager."""

    def __init__(self, registry: CollectorRegistry, port: int, host: str) -> None:
        from prometheus_client import start_http_server

        self._server: Any
        self._thread: threading.Thread
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise BideError(
                f"metrics cannot be served at {host}, port {port}: {error.strerror or error}; choose another"
            ) from error
        except OverflowError as error:
            raise BideError(
                f"metrics cannot be served at port {port}: it is none; choose 0 to 65535"
            ) from error
        self.host = host
        self.port: int = self._server.server_port

    @property
    def url(self) -> str:
        """The address to ask."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/metrics"

    def close(self) -> None:
        """Answer no more. Takes up to half a second."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
