"""Connections on one event loop: statements, transactions, and calls that share a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from bide.core.addresses import PostgresAddress
from bide.errors import ProviderError
from bide.providers.batching import Batch
from bide.providers.postgres.faults import FAULTS, LOST, PASSING, explained
from bide.providers.postgres.texts import for_schema

if TYPE_CHECKING:
    from bide.providers.postgres.listening import Herald

CONNECT_S = 10.0
"""Seconds for a connection to be made."""

ANSWER_S = 60.0
"""Seconds for a statement to be answered, and for a connection to be free."""

TRIES = 5
"""How often a transaction is run that others were in the way of."""

CLOSE_S = 5.0
"""Seconds for what is under way to end when the provider is closed; then connections are cut."""

CUT_S = 1.0
"""Seconds for what is under way to notice that its connection was cut."""

CLOSED = "the provider was closed before there was a connection"

_R = TypeVar("_R")
_A = TypeVar("_A")

Act = Callable[[Any], Awaitable[_R]]
"""Something to do with a connection."""


class Session:
    """A pool of up to ``size`` connections, for the event loop on which it is opened."""

    herald: Herald
    """Who tells other processes what is done here; whoever makes the session sees to it."""

    def __init__(self, address: PostgresAddress, size: int) -> None:
        self.address = address
        self._size = size
        self._pool: Any = None
        self._batches: dict[Callable[..., Any], Batch[Any, Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._acquiring: set[asyncio.Task[Any]] = set()
        """What waits for a connection to be free, or to be made."""
        self.statements = 0
        """Statements sent so far, those that begin and end transactions among them. Only the loop counts."""

    async def open(self) -> None:
        """Make the pool, whose connections are made as they are needed."""
        self.loop = asyncio.get_running_loop()
        self._pool = asyncpg.create_pool(
            self.address.dsn,
            min_size=0,
            max_size=self._size,
            reset=_keep_as_it_is,
            **connection_options(self.address),
        )
        await self._pool

    async def prepare(self, act: Callable[[Any, PostgresAddress], Awaitable[None]]) -> None:
        """Run ``act`` on a bare connection in a transaction."""

        async def whole(connection: Any) -> None:
            async with connection.transaction():
                await act(connection, self.address)

        await self._attempt(whole)

    async def close(self) -> None:
        """Finish what is under way, and close every connection.

        What a server has not answered after :data:`CLOSE_S` is cut off, and fails with ``ProviderError``.
        """
        try:
            async with asyncio.timeout(CLOSE_S):
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
                if self._pool is not None:
                    await self._pool.close()
        except FAULTS:
            pass
        finally:
            self._cut()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CUT_S)
        await asyncio.sleep(0)  # in which the transports end

    def _cut(self) -> None:
        """End every connection that is not closed, and whatever waits for one."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()
        for task in self._acquiring:
            task.cancel()

    def start(self, act: Coroutine[Any, Any, _R]) -> asyncio.Task[_R]:
        """Run ``act`` whoever waits for it; closing waits. To be called on the session's event loop."""
        task = self.loop.create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def rows(self, statement: str, *arguments: Any) -> list[Any]:
        """Run one statement, a transaction of its own; all its rows."""
        text = for_schema(statement, self.address.schema)

        async def run(connection: Any) -> list[Any]:
            self.statements += 1
            rows: list[Any] = await connection.fetch(text, *arguments)
            return rows

        return await self._attempt(run)

    async def value(self, statement: str, *arguments: Any) -> Any:
        """Run one statement; the first column of its first row, or None."""
        rows = await self.rows(statement, *arguments)
        return rows[0][0] if rows else None

    async def atomically(self, act: Callable[[Transaction], Awaitable[_R]]) -> _R:
        """Run ``act`` in a transaction: all of it or nothing. It may be run again where others were in the way."""

        async def whole(connection: Any) -> _R:
            self.statements += 2  # its begin and its end
            async with connection.transaction():
                return await act(Transaction(self, connection))

        return await self._attempt(whole)

    async def lease(self) -> Lease:
        """A connection for the caller alone, in a transaction."""
        return await self._attempt(self._leased, keep=True)

    async def _leased(self, connection: Any) -> Lease:
        self.statements += 1
        await connection.execute("BEGIN")
        return Lease(self, connection)

    def batched(
        self,
        call: Callable[[Session, list[_A]], Awaitable[Sequence[_R | Exception]]],
        argument: _A,
        *,
        haste: bool = True,
    ) -> asyncio.Future[_R]:
        """What ``call`` answers for ``argument``, given together with those of everybody who asks just now.

        Without ``haste`` it may wait a moment for others.
        """
        batch: Batch[_A, _R] | None = self._batches.get(call)
        if batch is None:
            batch = self._batches[call] = Batch(partial(call, self), self.start)
        return batch.submit(argument, haste=haste)

    async def give_back(self, connection: Any) -> None:
        """Take back a leased connection."""
        if self._pool is not None:
            await self._pool.release(connection)

    async def _attempt(self, act: Act[_R], *, keep: bool = False) -> _R:
        try:
            for _ in range(TRIES - 1):
                try:
                    return await self._act(act, keep=keep)
                except PASSING:
                    continue
            return await self._act(act, keep=keep)
        except FAULTS as error:
            raise explained(error, self.address.place) from error

    async def _act(self, act: Act[_R], *, keep: bool = False) -> _R:
        """Run ``act`` with a connection, which it may ``keep`` where it succeeds."""
        pool = self._pool
        if pool is None:
            raise ProviderError(f"{self.address.place}: the provider is not open")
        connection = await self._acquired(pool)
        kept = False
        try:
            answer = await act(connection)
            kept = keep
            return answer
        except LOST:
            connection.terminate()
            raise
        finally:
            if not kept:
                await pool.release(connection)

    async def _acquired(self, pool: Any) -> Any:
        """A connection of ``pool``, which may be closed meanwhile."""
        task = asyncio.current_task()
        assert task is not None
        self._acquiring.add(task)
        try:
            return await pool.acquire(timeout=ANSWER_S)
        except asyncio.CancelledError as error:
            if self._pool is pool:
                raise
            task.uncancel()
            raise ProviderError(f"{self.address.place}: {CLOSED}", retryable=True) from error
        finally:
            self._acquiring.discard(task)


class Lease:
    """A connection in a transaction that the caller steers. What fails raises ``ProviderError``."""

    def __init__(self, session: Session, connection: Any) -> None:
        self.session = session
        self._connection = connection

    async def run(self, statement: str, *arguments: Any) -> list[Any]:
        """Run a statement as it is."""
        self.session.statements += 1
        try:
            rows: list[Any] = await self._connection.fetch(statement, *arguments)
        except FAULTS as error:
            raise explained(error, self.session.address.place) from error
        return rows

    async def rows(self, statement: str, *arguments: Any) -> list[Any]:
        """Run a statement of the store's."""
        return await self.run(for_schema(statement, self.session.address.schema), *arguments)

    async def end(self, *, commit: bool) -> None:
        """Commit or roll back. Raises ``ProviderError`` where it was to be committed and could not."""
        place = self.session.address.place
        self.session.statements += 1
        try:
            said = await self._connection.execute("COMMIT" if commit else "ROLLBACK")
        except FAULTS as error:
            self._connection.terminate()
            if commit:
                raise explained(error, place) from error
        else:
            if commit and said != "COMMIT":
                raise ProviderError(
                    f"{place}: a statement of the transaction had failed, so it was rolled back"
                )
        finally:
            await self.session.give_back(self._connection)


class Transaction:
    """What an act gets that runs in a transaction."""

    def __init__(self, session: Session, connection: Any) -> None:
        self._session = session
        self._connection = connection

    async def rows(self, statement: str, *arguments: Any) -> list[Any]:
        """Run one statement; all its rows."""
        self._session.statements += 1
        text = for_schema(statement, self._session.address.schema)
        rows: list[Any] = await self._connection.fetch(text, *arguments)
        return rows

    async def value(self, statement: str, *arguments: Any) -> Any:
        """Run one statement; the first column of its first row, or None."""
        rows = await self.rows(statement, *arguments)
        return rows[0][0] if rows else None


def connection_options(address: PostgresAddress) -> dict[str, Any]:
    """How every connection is made."""
    options: dict[str, Any] = {"timeout": CONNECT_S, "command_timeout": ANSWER_S}
    if not address.listen:
        # A pooler of transactions: the next one may be on another connection, where nothing is prepared.
        options["statement_cache_size"] = 0
    return options


async def _keep_as_it_is(connection: Any) -> None:
    """Nothing that we do outlives its transaction, so that a connection need not be put in order after it."""
