"""The suite as somebody else has it: a file of their own, pytest with pytest-asyncio, and the installed package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

THEIRS = """
from collections.abc import AsyncIterator

import pytest

from bide.providers.memory import MemoryProvider
from bide.testing import VirtualClock
from bide.testing.conformance import Bench, ProviderSuite


class Forgetful(MemoryProvider):
    async def renew(self, tokens, lock_timeout):
        return [True for _ in tokens]


class MyBench(Bench):
    absent = {10: "it knows no keys", 9: "its clock cannot be moved"}

    def __init__(self):
        self.clock = VirtualClock()
        self.provider = Forgetful(self.clock)

    async def advance(self, seconds):
        await self.clock.advance(seconds)

    def set_back(self, seconds):
        self.clock.step_wall(-seconds)

    async def corrupt(self, item_id):
        self.provider.damage(item_id)

    async def reopen(self):
        await self.provider.close()
        await self.provider.open()

    def now_ms(self):
        return self.clock.utc_ms()


class TestMine(ProviderSuite):
    @pytest.fixture
    async def bench(self) -> AsyncIterator[Bench]:
        bench = MyBench()
        await bench.provider.open()
        yield bench
        await bench.provider.close()
"""


def test_anybody_can_run_it(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(THEIRS)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rs",
            "-o",
            "asyncio_mode=auto",
            "-p",
            "pytest_asyncio.plugin",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "assert [True] == [False]" in done.stdout  # failures show what differs
    assert "it knows no keys" in done.stdout
    assert "its clock cannot be moved" in done.stdout
    assert "test_10" not in "".join(line for line in done.stdout.splitlines() if line.startswith("FAILED"))
