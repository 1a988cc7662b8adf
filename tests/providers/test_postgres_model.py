"""PostgreSQL beside the reference model: whatever is done to both, both answer and hold the same."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from bide.provider import Provider
from tests.providers.model import BesideMemory
from tests.providers.postgres_bench import PostgresBench
from tests.providers.postgres_server import Server

SETTINGS = settings(
    max_examples=15, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_postgres_beside_memory(server: Server) -> None:
    class PostgresBesideMemory(BesideMemory):
        def made(self) -> Provider:
            bench = PostgresBench(server, "beside", clock=self.clock)
            self.runner.run(bench.open())
            return bench.provider

    run_state_machine_as_test(PostgresBesideMemory, settings=SETTINGS)
