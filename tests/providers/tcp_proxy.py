"""A hop on the way to a server that tests can cut, hold up, or make deaf. It runs in the test's event loop."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class TcpProxy:
    """Hands bytes on to ``port`` of this machine; an async context manager.

    ``swallow_answers``: what comes back is dropped, as by a network that loses it.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallow_answers = False
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Take no connection any more, and cut those that there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def cut(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(to_writer)
            try:
                await asyncio.gather(
                    self._hand_on(reader, to_writer, back=False), self._hand_on(to_reader, writer, back=True)
                )
            finally:
                self._writers.discard(to_writer)
                to_writer.close()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _hand_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not (back and self.swallow_answers):
                    writer.write(data)
                    await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()
