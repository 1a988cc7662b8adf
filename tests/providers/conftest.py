"""Servers that tests of providers share: one of each version for a run, started when first asked for."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.providers.postgres_server import VERSIONS, Server
from tests.providers.sqs_bench import SqsBench
from tests.providers.sqs_server import CREDENTIALS, Emulator

_prefixes = (f"bide{number}" for number in itertools.count(1))


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


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials in the environment, as a worker has them."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def sqs_bench(emulator: Emulator, aws: None) -> AsyncIterator[SqsBench]:
    """The SQS provider on its bench, with queues of its own."""
    bench = SqsBench(emulator, next(_prefixes))
    await bench.open()
    yield bench
    await bench.close()
