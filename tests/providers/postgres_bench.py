"""The PostgreSQL provider on a clock that tests move: the server's ``now_ms`` reads it from its connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from bide.core.addresses import PostgresAddress, postgres_address
from bide.providers.postgres import PostgresProvider
from bide.providers.postgres.database import Database
from bide.providers.postgres.session import Session
from bide.testing import VirtualClock
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

    def __init__(self, address: PostgresAddress, clock: VirtualClock) -> None:
        super().__init__(address, clock)
        self._virtual = clock

    def _made(self, size: int) -> Session:
        return ShiftedSession(self.address, size, self._virtual)


class ShiftedProvider(PostgresProvider):
    """The provider, on a virtual clock."""

    def __init__(self, address: str, clock: VirtualClock) -> None:
        super().__init__(address, clock=clock)
        self._database = ShiftedDatabase(postgres_address(address), clock)


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
        self.clock.busy_while(lambda: self.postgres.pending)
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
