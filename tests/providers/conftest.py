"""Servers that tests of providers share: one of each version for a run, started when first asked for."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.providers import redis_server
from tests.providers.postgres_server import VERSIONS, Server
from tests.providers.s3_server import CREDENTIALS, S3Server
from tests.providers.sqs_bench import SqsBench
from tests.providers.sqs_server import CREDENTIALS as SQS_CREDENTIALS
from tests.providers.sqs_server import Emulator

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


@pytest.fixture(scope="session", autouse=True)
def s3_credentials() -> Iterator[None]:
    """What the servers that speak S3 take, where users have theirs."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session", params=["seaweedfs", "ministack"])
def s3_server(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    """A durable server, and the emulator."""
    started = S3Server(request.param)
    try:
        started.start()
        yield started
    finally:
        started.remove()


@pytest.fixture(scope="session")
def durable_s3_server() -> Iterator[S3Server]:
    """A durable server alone, for what need not be tried on every one."""
    started = S3Server("seaweedfs")
    try:
        started.start()
        yield started
    finally:
        started.remove()


@pytest.fixture(scope="session")
def careless_server() -> Iterator[S3Server]:
    """One that takes conditions and does not look at them."""
    started = S3Server("nanio")
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
    for name, value in SQS_CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def sqs_bench(emulator: Emulator, aws: None) -> AsyncIterator[SqsBench]:
    """The SQS provider on its bench, with queues of its own."""
    bench = SqsBench(emulator, next(_prefixes))
    await bench.open()
    yield bench
    await bench.close()
