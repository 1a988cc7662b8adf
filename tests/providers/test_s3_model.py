"""S3 beside the reference model: whatever is done to both, both answer and hold the same.

But for what it lacks: items of order keys, limits over the fleet, and subscribers that hear in order. And for lives
that are over: a fetch of the model buries every such item, one of S3 those that it comes by, and pruning the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from bide.provider import NewItem, Provider, Subscription
from bide.providers.memory import MemoryProvider
from tests.providers.model import BesideMemory
from tests.providers.s3_bench import S3Bench
from tests.providers.s3_server import S3Server

SETTINGS = settings(
    max_examples=8, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


class Able:
    """A provider that is asked for nothing that S3 cannot do."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._provider, name)
        return _able(method) if callable(method) and name not in {"transaction", "close"} else method


def _able(method: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        options.pop("limits", None)
        return method(*map(_without, arguments), **options)

    return call


def _without(given: Any) -> Any:
    """``given`` without what S3 lacks."""
    if isinstance(given, NewItem):
        return replace(given, order_key=None, within=None)
    if isinstance(given, Subscription):
        return replace(given, ordered=False, within=timedelta(days=3650))
    if isinstance(given, list):
        return [_without(each) for each in given]
    if hasattr(given, "enqueue") and isinstance(given.enqueue, tuple):
        return replace(given, enqueue=tuple(map(_without, given.enqueue)))
    return given


def test_s3_beside_memory(durable_s3_server: S3Server) -> None:
    class S3BesideMemory(BesideMemory):
        def made(self) -> Provider:
            bench = S3Bench(durable_s3_server, clock=self.clock)
            self.runner.run(bench.open())
            self.memory = cast("MemoryProvider", Able(self.memory))
            return cast("Provider", Able(bench.provider))

    run_state_machine_as_test(S3BesideMemory, settings=SETTINGS)
