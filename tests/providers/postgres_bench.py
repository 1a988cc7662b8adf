"""The PostgreSQL provider on a clock that tests move: the server's ``now_ms`` reads it from its connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from bide.clock import Clock
from bide.core.addresses import PostgresAddress, postgres_address
from bide.provider import Provider
from bide.providers.postgres import PostgresProvider
from bide.providers.postgres.database import Database
from bide.providers.postgres.session import Session
from bide.testing import SkewedClock, VirtualClock
from bide.testing.conformance import Bench
from tests.providers.postgres_server import Server, run_sql

TABLES = "polls, subscriptions, events, work_items, schedules"

_SHIFTED = """
CREATE OR REPLACE FUNCTION {schema}.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT current_setting('bide.test_now')::bigint $$
"""

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
    """Its sessions are shifted."""

    def __init__(self, address: PostgresAddress, store: VirtualClock, clock: Clock) -> None:
        super().__init__(address, clock)
        self._store_clock = store

    def _made(self, size: int) -> Session:
        return ShiftedSession(self.address, size, self._store_clock)


class ShiftedProvider(PostgresProvider):
    """The provider, on a server whose clock is ``store``; its own machine has that one or ``clock``."""

    def __init__(self, address: str, store: VirtualClock, clock: Clock | None = None) -> None:
        super().__init__(address, clock=clock or store)
        self._database = ShiftedDatabase(postgres_address(address), store, clock or store)


class PostgresBench(Bench):
    """A store in a schema of its own on ``server``, emptied."""

    def __init__(
        self,
        server: Server,
        schema: str = "shifted",
        options: str = "",
        clock: VirtualClock | None = None,
    ) -> None:
        self.address = server.address(options=f"?schema={schema}{options}")
        self._plain = server.address()
        self._schema = schema
        self.clock = clock or VirtualClock()
        self._others: set[ShiftedProvider] = set()
        self.clock.busy_while(lambda: sum(one.pending for one in (self.postgres, *self._others)))
        self.provider = self.postgres = self._made()

    def _made(self) -> ShiftedProvider:
        return ShiftedProvider(self.address, self.clock)

    async def open(self) -> None:
        await self.provider.open()
        await self.sql(_SHIFTED.format(schema=self._schema))
        named = ", ".join(f"{self._schema}.{table}" for table in TABLES.split(", "))
        await self.sql(f"TRUNCATE {named} RESTART IDENTITY")

    async def sql(self, statement: str, *arguments: object) -> list[Any]:
        """Go round the provider."""
        return await run_sql(self._plain, statement, *arguments)

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        self.clock.step_wall(-seconds)

    async def corrupt(self, item_id: str) -> None:
        statement = f"UPDATE {self._schema}.work_items SET payload = '{{' || U&'\\FDD0' || '}}' WHERE id = $1"
        await self.sql(statement, item_id)

    async def reopen(self) -> None:
        await self.provider.close()
        self.provider = self.postgres = self._made()
        await self.provider.open()

    def now_ms(self) -> int:
        return self.clock.utc_ms()

    @asynccontextmanager
    async def another(self, *, ahead: float = 0) -> AsyncIterator[Provider]:
        other = ShiftedProvider(self.address, self.clock, SkewedClock(self.clock, ahead))
        self._others.add(other)
        await other.open()
        try:
            yield other
        finally:
            await other.close()
            self._others.discard(other)

    async def drop(self) -> bool:
        ended = await self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return bool(ended)

    async def open_as_older(self) -> None:
        await self.sql(f"UPDATE {self._schema}.meta SET schema_version = schema_version + 1")
        try:
            older = self._made()
            await older.open()
            await older.close()
        finally:
            await self.sql(f"UPDATE {self._schema}.meta SET schema_version = schema_version - 1")
