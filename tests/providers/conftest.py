"""Servers that tests of providers share: one of each version for a run, started when first asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.providers import redis_server
from tests.providers.postgres_server import VERSIONS, Server


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
def valkey() -> Iterator[redis_server.Server]:
    """A server of Valkey, fast and forgetful."""
    started = redis_server.Server()
    try:
        started.start()
        yield started
    finally:
        started.remove()
