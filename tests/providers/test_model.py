"""SQLite beside the reference model: whatever is done to both, both answer and hold the same."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

from bide.provider import Provider
from bide.providers.sqlite import SqliteProvider
from tests.providers.model import BesideMemory


class SqliteBesideMemory(BesideMemory):
    def made(self) -> Provider:
        self.folder = Path(tempfile.mkdtemp())
        provider = SqliteProvider(self.folder / "bide.db", clock=self.clock, synchronous="NORMAL")
        self.clock.busy_while(lambda: provider.pending)
        self.runner.run(provider.open())
        return provider

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


TestSqliteBesideMemory = SqliteBesideMemory.TestCase
TestSqliteBesideMemory.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
