"""A server that misbehaves and the client under test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bide.connection import HttpClient
from tests.servers import RawServer


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer() as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    async with HttpClient() as client:
        yield client
