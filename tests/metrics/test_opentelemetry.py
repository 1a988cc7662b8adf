"""Metrics as the SDK of OpenTelemetry sees them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    Gauge,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    NumberDataPoint,
    Sum,
)

from bide import App, OpenTelemetryMetrics
from bide.errors import BideError
from bide.metrics.instruments import LATENCIES
from bide.telemetry import CallAttempted, DeliverySettled, QueueCounted, QueuePolled, TaskSettled


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def app(reader: InMemoryMetricReader) -> Iterator[App]:
    provider = MeterProvider([reader], shutdown_on_exit=False)
    app = App("memory://", environment={})
    end = OpenTelemetryMetrics(provider).watch(app)
    yield app
    end()
    provider.shutdown()


def read(reader: InMemoryMetricReader) -> dict[str, Metric]:
    """Every metric by name."""
    data = reader.get_metrics_data()
    assert data is not None
    ((scope,),) = [resource.scope_metrics for resource in data.resource_metrics]
    assert scope.scope.name == "bide"
    return {metric.name: metric for metric in scope.metrics}


def values(metric: Metric) -> dict[tuple[str, ...], float]:
    """Numbers by the values of their attributes."""
    points = [point for point in metric.data.data_points if isinstance(point, NumberDataPoint)]
    return {tuple(str(value) for value in (point.attributes or {}).values()): point.value for point in points}


def test_what_happened_is_counted(app: App, reader: InMemoryMetricReader) -> None:
    app.telemetry.emit(QueuePolled("mail", "empty", 0, 0.2, True))
    app.telemetry.emit(QueuePolled("mail", "found", 4, 0.1))
    app.telemetry.emit(QueueCounted("mail", ready=7, running=2, done=0, dead=1, oldest_ms=90_000))
    found = read(reader)
    polled = found["bide_worker_poll"]
    assert isinstance(polled.data, Sum)
    assert polled.data.is_monotonic
    assert values(polled) == {("mail", "memory"): 2}
    assert values(found["bide_worker_poll_items"]) == {("mail", "memory"): 4}
    interval = found["bide_worker_poll_interval"]
    assert isinstance(interval.data, Gauge)
    assert (interval.unit, values(interval)) == ("s", {("mail", "memory"): 0.1})
    assert values(found["bide_queue_items"])["mail", "ready"] == 7


def test_durations_are_histograms_in_seconds(app: App, reader: InMemoryMetricReader) -> None:
    app.telemetry.emit(TaskSettled("send", "mail", "1", "succeeded", 1, 12.0, age_ms=200.0))
    app.telemetry.emit(DeliverySettled("audit", "evt_1.audit", "succeeded", 1, 30.0, age_ms=3000.0))
    app.telemetry.emit(CallAttempted("eu", "price", "GET", "http://x", 1, "answered", 200, 20.0))
    found = read(reader)
    for name, total in (
        ("bide_task", 0.012),
        ("bide_task_latency", 0.2),
        ("bide_delivery_latency", 3.0),
        ("bide_call", 0.02),
    ):
        (point,) = found[name].data.data_points
        assert isinstance(point, HistogramDataPoint)
        assert (found[name].unit, point.count) == ("s", 1)
        assert point.sum == pytest.approx(total)
    (latency,) = found["bide_delivery_latency"].data.data_points
    assert isinstance(latency, HistogramDataPoint)
    assert tuple(latency.explicit_bounds) == LATENCIES


async def test_slots_are_read_when_they_are_asked_for(app: App, reader: InMemoryMetricReader) -> None:
    held = await app.slots.of("eu", 1).acquire()
    assert values(read(reader)["bide_slots_in_use"]) == {("eu",): 1}
    app.slots.of("eu", 1).release(held)
    assert values(read(reader)["bide_slots_in_use"]) == {("eu",): 0}


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(BideError, match=r"pip install 'bide\[opentelemetry\]'"):
        OpenTelemetryMetrics()
