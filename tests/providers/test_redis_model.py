"""Redis beside the reference model: whatever is done to both, both answer and hold the same."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from bide.provider import Provider
from bide.testing.benches.redis import RedisBench
from tests.providers.model import BesideMemory
from tests.providers.redis_server import Server

SETTINGS = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_redis_beside_memory(valkey: Server) -> None:
    class RedisBesideMemory(BesideMemory):
        def made(self) -> Provider:
            bench = RedisBench(valkey.address("?prefix=beside&name=beside"), clock=self.clock)
            self.runner.run(bench.open())
            return bench.provider

    run_state_machine_as_test(RedisBesideMemory, settings=SETTINGS)
