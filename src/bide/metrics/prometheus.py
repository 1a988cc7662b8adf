"""Metrics for Prometheus. Needs ``prometheus_client``, which is imported when :class:`Metrics` is made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bide.app import App
from bide.core.durations import Duration
from bide.errors import BideError
from bide.metrics.instruments import COUNT_EVERY, SECONDS, Instruments, Series, Watched

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import CollectorRegistry


class Metrics:
    """Counts what happens in the apps that it watches, for Prometheus.

    ``registry`` is where the metrics are registered, by default one of their own; give
    ``prometheus_client.REGISTRY`` to join those that a program has already. Mount :attr:`registry` where the program
    serves metrics (``prometheus_client.make_asgi_app(metrics.registry)``), or call :meth:`serve`.
    Raises :class:`~bide.errors.BideError` where ``prometheus_client`` is not installed.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            from prometheus_client import CollectorRegistry
        except ImportError as error:
            raise BideError(
                "metrics need prometheus_client, which is not installed; pip install 'bide[metrics]'"
            ) from error
        self.registry: CollectorRegistry = CollectorRegistry() if registry is None else registry
        self._watched = Watched(Instruments(_Meter(self.registry)))
        self.registry.register(_Readings(self._watched))

    def watch(self, app: App, *, count_every: Duration | None = COUNT_EVERY) -> Callable[[], None]:
        """Count what happens in ``app`` from now on; call the answer to end it.

        ``count_every`` is how often it counts the items of its queues while it runs (1 minute; None: never). That
        asks the store: see what it costs for yours. Raises :class:`~bide.errors.SettingError` for what is none.
        """
        return self._watched.add(app, count_every)

    def serve(self, port: int, host: str = "127.0.0.1") -> Endpoint:
        """Answer ``GET /metrics`` at ``host`` and ``port`` (0 takes a free one) from a thread of its own.

        Other machines can ask only where ``host`` is an address that they reach; whoever can, need not say who they
        are. Raises :class:`~bide.errors.BideError` where nothing can be served there.
        """
        return Endpoint(self.registry, port, host)


class _Meter:
    """Makes what is counted in, in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, text: str, *labels: str) -> _Counter:
        from prometheus_client import Counter

        return _Counter(Counter(name, text, labels, registry=self._registry))

    def gauge(self, name: str, text: str, *labels: str) -> _Gauge:
        from prometheus_client import Gauge

        return _Gauge(Gauge(name, text, labels, registry=self._registry))

    def histogram(self, name: str, text: str, *labels: str, bounds: Sequence[float] = SECONDS) -> _Histogram:
        from prometheus_client import Histogram

        return _Histogram(Histogram(name, text, labels, registry=self._registry, buckets=bounds))


class _Counter:
    def __init__(self, metric: Counter) -> None:
        self._series = Series(lambda labels: metric.labels(*labels))

    def add(self, labels: Sequence[str], amount: float = 1) -> None:
        self._series[tuple(labels)].inc(amount)


class _Gauge:
    def __init__(self, metric: Gauge) -> None:
        self._series = Series(lambda labels: metric.labels(*labels))

    def set(self, labels: Sequence[str], value: float) -> None:
        self._series[tuple(labels)].set(value)


class _Histogram:
    def __init__(self, metric: Histogram) -> None:
        self._series = Series(lambda labels: metric.labels(*labels))

    def observe(self, labels: Sequence[str], value: float) -> None:
        self._series[tuple(labels)].observe(value)


class _Readings:
    """Reads what can be read when it is asked."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def collect(self) -> Iterator[Metric]:
        """A counter or gauge for each reading."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for reading in self._watched.read():
            if reading.grows:
                counter = CounterMetricFamily(reading.name, reading.text, labels=reading.labels)
                for labels, value in reading.values.items():
                    counter.add_metric(labels, value, created=reading.since_s.get(labels))
                yield counter
                continue
            gauge = GaugeMetricFamily(reading.name, reading.text, labels=reading.labels)
            for labels, value in reading.values.items():
                gauge.add_metric(labels, value)
            yield gauge

    def describe(self) -> Sequence[Metric]:
        """Nothing, so that registering it asks nobody."""
        return ()


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
