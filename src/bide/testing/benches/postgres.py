"""The PostgreSQL provider on its bench: the server's ``now_ms`` reads a virtual clock from its connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import asyncpg

from bide.clock import Clock
from bide.core.addresses import PostgresAddress, postgres_address
from bide.provider import Provider
from bide.providers.postgres import PostgresProvider
from bide.providers.postgres.database import Database
from bide.providers.postgres.session import Session
from bide.testing.clock import VirtualClock
from bide.testing.conformance import Bench
from bide.testing.skew import SkewedClock

_TABLES = ("polls", "subscriptions", "events", "work_items", "schedules")

_SHIFTED = """
CREATE OR REPLACE FUNCTION {schema}.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT current_setting('bide.test_now')::bigint $$
"""

_DROP = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND datname = current_database() AND application_name = $1
"""

_CORRUPT = "UPDATE {schema}.work_items SET payload = '{{' || U&'\\FDD0' || '}}' WHERE id = $1"

_VERSION = "UPDATE {schema}.meta SET schema_version = schema_version {step}"

REFUSALS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""What is raised where a statement of the side door cannot be run."""

_R = TypeVar("_R")


class ShiftedSession(Session):
    """Tells the server what time it is before whatever is done."""

    def __init__(self, address: PostgresAddress, size: int, clock: VirtualClock) -> None:
        super().__init__(address, size)
        self._clock = clock

    async def _act(self, act: Callable[[Any], Awaitable[_R]], *, keep: bool = False) -> _R:
        async def told(connection: Any) -> _R:
            now = str(self._clock.utc_ms())
            await connection.fetch("SELECT set_config('bide.test_now', $1, false)", now)
            return await act(connection)

        return await super()._act(told, keep=keep)


class ShiftedDatabase(Database):
    """Its sessions are shifted to ``servers``; ``clock`` is the process's."""

    def __init__(self, address: PostgresAddress, clock: Clock, servers: VirtualClock) -> None:
        super().__init__(address, clock)
        self._servers = servers

    def _made(self, size: int) -> Session:
        return ShiftedSession(self.address, size, self._servers)


class ShiftedProvider(PostgresProvider):
    """The provider, on a virtual clock; the process's own wall clock is ``ahead`` seconds before the server's."""

    def __init__(self, address: str, clock: VirtualClock, ahead: float = 0) -> None:
        own = SkewedClock(clock, ahead)
        super().__init__(address, clock=own)
        self._database = ShiftedDatabase(postgres_address(address), own, clock)


class PostgresBench(Bench):
    """The schema that ``address`` names, emptied: it must be one that holds nothing of anybody's.

    ``drop`` ends the connections that have the schema's name as their ``application_name``.
    """

    def __init__(self, address: str, clock: VirtualClock | None = None) -> None:
        self.address = address
        self._parsed = postgres_address(address)
        self.clock = clock or VirtualClock()
        self.clock.busy_while(lambda: any(provider.pending for provider in self._open))
        self._open: list[ShiftedProvider] = []
        self.provider = self._made()

    async def open(self) -> None:
        await self.provider.open()
        schema = self._parsed.schema
        await self.sql(_SHIFTED.format(schema=schema))
        await self.sql(f"TRUNCATE {', '.join(f'{schema}.{table}' for table in _TABLES)} RESTART IDENTITY")

    async def close(self) -> None:
        await self.provider.close()

    async def sql(self, statement: str, *arguments: object) -> list[Any]:
        """Go round the provider."""
        connection: Any = await asyncpg.connect(self._parsed.dsn, timeout=10)
        try:
            rows: list[Any] = await connection.fetch(statement, *arguments)
            return rows
        finally:
            await connection.close()

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        self.clock.step_wall(-seconds)

    async def corrupt(self, item_id: str) -> None:
        await self.sql(_CORRUPT.format(schema=self._parsed.schema), item_id)

    async def reopen(self) -> None:
        await self.provider.close()
        self._open.clear()
        self.provider = self._made()
        await self.provider.open()

    @asynccontextmanager
    async def another(self, *, ahead: float = 0) -> AsyncIterator[Provider]:
        provider = self._made(ahead)
        await provider.open()
        try:
            yield provider
        finally:
            await provider.close()
            self._open.remove(provider)

    async def drop(self) -> bool:
        await self.sql(_DROP, self._parsed.schema)
        return True

    async def open_as_older(self) -> None:
        await self.sql(_VERSION.format(schema=self._parsed.schema, step="+ 1"))
        try:
            async with self.another():
                pass
        finally:
            await self.sql(_VERSION.format(schema=self._parsed.schema, step="- 1"))

    async def remove(self) -> None:
        """Leave nothing of the schema."""
        with suppress(asyncpg.InvalidSchemaNameError):
            await self.sql(f"DROP SCHEMA {self._parsed.schema} CASCADE")

    def now_ms(self) -> int:
        return self.clock.utc_ms()

    def _made(self, ahead: float = 0) -> ShiftedProvider:
        provider = ShiftedProvider(self.address, self.clock, ahead)
        self._open.append(provider)
        return provider
