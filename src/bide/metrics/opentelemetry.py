"""Metrics for OpenTelemetry. Needs ``opentelemetry-api``, imported when :class:`OpenTelemetryMetrics` is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bide.app import App
from bide.core.durations import Duration
from bide.errors import BideError
from bide.metrics.instruments import COUNT_EVERY, SECONDS, Instruments, Series, Watched

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.metrics import Counter as OtelCounter
    from opentelemetry.metrics import Histogram as OtelHistogram
    from opentelemetry.metrics import Meter as OtelMeter

SCOPE = "bide"
"""The instrumentation scope that the instruments belong to."""

_UNITS = {"_seconds": "s", "_total": ""}
"""What a name says at its end in Prometheus, and the unit that says it here; an exporter puts it back."""


class OpenTelemetryMetrics:
    """Counts what happens in the apps that it watches, for OpenTelemetry.

    ``meter_provider`` is where the instruments are made, by default the program's own. Names are those of Prometheus
    without ``_total`` and ``_seconds``, which an instrument's kind and unit say.
    Raises :class:`~bide.errors.BideError` where ``opentelemetry-api`` is not installed.
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        try:
            from opentelemetry.metrics import get_meter
        except ImportError as error:
            raise BideError(
                "metrics for OpenTelemetry need opentelemetry-api, which is not installed; "
                "pip install 'bide[opentelemetry]'"
            ) from error
        meter = get_meter(SCOPE, meter_provider=meter_provider)
        self._watched = Watched(Instruments(_Meter(meter)))
        for reading in self._watched.read():
            make = meter.create_observable_counter if reading.grows else meter.create_observable_gauge
            short, unit = _named(reading.name)
            make(short, [partial(self._observe, reading.name)], unit=unit, description=reading.text)

    def watch(self, app: App, *, count_every: Duration | None = COUNT_EVERY) -> Callable[[], None]:
        """As :meth:`bide.Metrics.watch`."""
        return self._watched.add(app, count_every)

    def _observe(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        from opentelemetry.metrics import Observation

        (reading,) = (reading for reading in self._watched.read() if reading.name == name)
        for labels, value in reading.values.items():
            yield Observation(value, dict(zip(reading.labels, labels, strict=True)))


class _Meter:
    """Makes what is counted in, in a meter of OpenTelemetry."""

    def __init__(self, meter: OtelMeter) -> None:
        self._meter = meter

    def counter(self, name: str, text: str, *labels: str) -> _Counter:
        short, unit = _named(name)
        return _Counter(self._meter.create_counter(short, unit=unit, description=text), labels)

    def gauge(self, name: str, text: str, *labels: str) -> _Gauge:
        short, unit = _named(name)
        return _Gauge(self._meter.create_gauge(short, unit=unit, description=text), labels)

    def histogram(self, name: str, text: str, *labels: str, bounds: Sequence[float] = SECONDS) -> _Histogram:
        short, unit = _named(name)
        made = self._meter.create_histogram(
            short, unit=unit, description=text, explicit_bucket_boundaries_advisory=list(bounds)
        )
        return _Histogram(made, labels)


class _Counter:
    def __init__(self, counter: OtelCounter, names: Sequence[str]) -> None:
        self._counter = counter
        self._series = _attributes(names)

    def add(self, labels: Sequence[str], amount: float = 1) -> None:
        self._counter.add(amount, self._series[tuple(labels)])


class _Gauge:
    def __init__(self, gauge: Any, names: Sequence[str]) -> None:
        self._gauge = gauge
        self._series = _attributes(names)

    def set(self, labels: Sequence[str], value: float) -> None:
        self._gauge.set(float(value), self._series[tuple(labels)])


class _Histogram:
    def __init__(self, histogram: OtelHistogram, names: Sequence[str]) -> None:
        self._histogram = histogram
        self._series = _attributes(names)

    def observe(self, labels: Sequence[str], value: float) -> None:
        self._histogram.record(value, self._series[tuple(labels)])


def _attributes(names: Sequence[str]) -> Series[dict[str, str]]:
    return Series(lambda labels: dict(zip(names, labels, strict=True)))


def _named(name: str) -> tuple[str, str]:
    """A name as OpenTelemetry has it, and the unit."""
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return name.removesuffix(ending), unit
    return name, ""
