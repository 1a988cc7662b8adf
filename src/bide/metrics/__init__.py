"""Metrics: what happened, counted, from the same records that logs are made of; for Prometheus and OpenTelemetry."""

from bide.metrics.opentelemetry import OpenTelemetryMetrics
from bide.metrics.prometheus import Endpoint, Metrics

__all__ = ["Endpoint", "Metrics", "OpenTelemetryMetrics"]
