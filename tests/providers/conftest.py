"""Servers that tests of providers share: one of each version for a run, started when first asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.providers.postgres_server import VERSIONS, Server
from tests.providers.sqs_server import Emulator


@pytest.fixture(scope="session", params=VERSIONS, ids=[f"postgres{version}" for version in VERSIONS])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each supported version, fast and forgetful."""
    started = Server(request.param)
    try:
        started.start()
        yield started
    finally:
        started.remove()


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """An emulator of SQS whose clock is the tests'."""
    started = Emulator()
    try:
        yield started
    finally:
        started.stop()
