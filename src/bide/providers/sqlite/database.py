"""The file with its two threads: one that writes, one that reads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from bide.clock import Clock
from bide.errors import ProviderError
from bide.providers.longpoll import Bell
from bide.providers.sqlite.holding import Held
from bide.providers.sqlite.reader import Reader
from bide.providers.sqlite.standing import Standing
from bide.providers.sqlite.watching import Watch
from bide.providers.sqlite.writer import Transaction, Writer

_A = TypeVar("_A")
_R = TypeVar("_R")


class Database:
    """Whole transactions as functions: of the transaction and one argument.

    The futures that it answers are done once what was written is on disk.
    """

    def __init__(self, path: Path, clock: Clock, synchronous: str) -> None:
        self.path = path
        self.clock = clock
        self.bell = Bell()
        real = path.resolve()  # SQLite keeps the log beside what a symbolic link leads to
        self.watch = Watch(real.with_name(f"{real.name}-wal"), clock, self.bell.ring_everywhere)
        self.standing = Standing()
        self._writer = Writer(
            path,
            clock,
            bell=self.bell,
            knock=self.watch.knock,
            standing=self.standing,
            synchronous=synchronous,
        )
        self._reader = Reader(path, clock)
        self._holder: asyncio.Task[Any] | None = None
        """Whose transaction is open."""

    async def open(self) -> None:
        """Open or make the file, and migrate it."""
        await self._writer.open()
        try:
            await self._reader.open()
        except BaseException:
            await self._writer.close()
            raise

    async def close(self) -> None:
        """Finish what was handed in, and close. The last connection folds the write-ahead log into the file."""
        self.watch.close()
        await self._reader.close()
        await self._writer.close()

    @property
    def pending(self) -> int:
        """How many jobs were handed to the threads and not answered yet."""
        return len(self._writer.untold) + len(self._reader.untold)

    @property
    def transactions(self) -> int:
        """How many were begun so far."""
        return self._writer.transactions + self._reader.transactions

    def write(
        self, call: Callable[[Transaction, _A], _R], argument: _A, *, haste: bool = True
    ) -> asyncio.Future[_R]:
        """Run ``call(transaction, argument)``; it rolls back alone where it raises.

        Without ``haste`` it may wait a moment for others to share the transaction with.
        """
        self._refuse_holder()
        return self._writer.submit(call, argument, haste=haste)

    def write_batched(
        self, call: Callable[[Transaction, list[_A]], list[_R]], argument: _A, *, haste: bool = True
    ) -> asyncio.Future[_R]:
        """As :meth:`write`, for a ``call`` that is given the arguments of everybody who waits at once."""
        self._refuse_holder()
        return self._writer.submit(call, argument, batched=True, haste=haste)

    def write_unheard(self, call: Callable[[Transaction, _A], _R], argument: _A) -> None:
        """As :meth:`write`, where nobody waits for it: what fails is somebody else's to notice."""
        with contextlib.suppress(ProviderError):
            self.write(call, argument).add_done_callback(lambda done: done.cancelled() or done.exception())

    @asynccontextmanager
    async def held(self) -> AsyncIterator[Held]:
        """A transaction for the caller alone, from when it is open; to be committed or rolled back by the caller."""
        self._refuse_holder()
        held = Held(self._writer, self.clock)
        holder = asyncio.current_task()
        try:
            await self._writer.hold(held)
            self._holder = holder
            yield held
        finally:
            held.end("its block was left")
            if self._holder is holder:
                self._holder = None

    def _refuse_holder(self) -> None:
        """Whoever has a transaction open would wait for its own end."""
        if self._holder is not None and self._holder is asyncio.current_task():
            raise ProviderError(
                f"{self.path}: the transaction that is open here keeps all other writes waiting; "
                "enqueue within it (transaction=…), or end it first"
            )

    def read(self, call: Callable[[Transaction, _A], _R], argument: _A) -> asyncio.Future[_R]:
        """Run ``call(transaction, argument)`` on the reading connection, which sees one state of the store."""
        return self._reader.submit(call, argument)
