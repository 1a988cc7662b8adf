"""A wire to a server, which can be cut, and on which answers get lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Wire:
    """Passes on what comes at ``port`` to the port of a server. ``loses``: what the server answers is not passed on,
    and the connection is cut once it answers."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.loses = False
        self.accepted = 0

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError):
                there, back = await asyncio.open_connection("127.0.0.1", self._server_port)
                self._writers |= {writer, back}
                sending = asyncio.create_task(self._pass_on(reader, back, answers=False))
                await self._pass_on(there, writer, answers=True)
                sending.cancel()
                self._writers -= {writer, back}
                back.transport.abort()
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if answers and self.loses:
                    return
                writer.write(data)
                await writer.drain()
