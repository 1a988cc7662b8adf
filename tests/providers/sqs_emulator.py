"""Run by the emulator's own Python: MiniStack, with a clock that tests set and a side door to its queues.

A request with the header ``x-bench-now`` says what time it is, in milliseconds since the Unix epoch; before the first
one the machine's clock counts. Actions that SQS does not have: ``BenchTime`` lets every receive that waits look once
at the present instant, and says how many wait on; ``BenchMessages`` tells what is in the queues; ``BenchDamage``
damages the payload of an item in queues of a prefix.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from importlib import import_module
from typing import Any

_LOOK_S = 0.005
"""Real seconds after which a receive that waits looks for what was sent meanwhile."""

_machines_time = time.time


class _Clock:
    now_s: float | None = None

    def time(self) -> float:
        return _machines_time() if self.now_s is None else self.now_s


class _Waits:
    """Receives that wait: they look again when told to, and now and then."""

    def __init__(self) -> None:
        self.waiting = 0
        self.resumed = 0
        self._told = asyncio.Event()

    iscoroutine = staticmethod(asyncio.iscoroutine)

    async def sleep(self, _: float) -> None:
        """In place of asyncio's, which a receive sleeps by between its looks."""
        self.waiting += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._told.wait()
        self.waiting -= 1
        self.resumed += 1

    async def look(self) -> int:
        """Let each look once; how many wait on."""
        until = self.resumed + self.waiting
        told, self._told = self._told, asyncio.Event()
        told.set()
        for _ in range(1000):  # turns of the event loop: each takes two or three
            if self.resumed >= until:
                break
            await asyncio.sleep(0)
        return self.waiting


def _install(sqs: Any, clock: _Clock, waits: _Waits) -> None:
    handle = sqs.handle_request

    async def told(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]
    ) -> Any:
        if now_ms := headers.get("x-bench-now"):
            clock.now_s = int(now_ms) / 1000 + 1e-5  # so that whole milliseconds come out as they went in
        return await handle(method, path, headers, body, query)

    async def look(_: dict[str, Any], __: str) -> dict[str, Any]:
        return {"Waiting": await waits.look()}

    def messages(_: dict[str, Any], __: str) -> dict[str, Any]:
        return {
            "Messages": [
                {
                    "Queue": queue["name"],
                    "Body": message["body"],
                    "SentAt": int(message["sent_at"] * 1000),
                    "VisibleAt": int(message["visible_at"] * 1000),
                    "FirstAt": int((message["first_receive_at"] or 0) * 1000),
                    "Receives": message["receive_count"],
                }
                for queue in sqs._queues.values()
                for message in queue["messages"]
            ]
        }

    def damage(data: dict[str, Any], _: str) -> dict[str, Any]:
        for queue in sqs._queues.values():
            for message in queue["messages"] if queue["name"].startswith(data["Prefix"]) else ():
                body = json.loads(message["body"])
                if body["id"] == data["Id"]:
                    message["body"] = json.dumps({**body, "payload": [1]})
        return {}

    sqs.handle_request = told
    sqs.asyncio = waits
    sqs._HANDLERS |= {"BenchTime": look, "BenchMessages": messages, "BenchDamage": damage}


def main() -> None:
    clock = _Clock()
    time.time = clock.time
    _install(import_module("ministack.services.sqs"), clock, _Waits())
    import_module("ministack.app").main()


if __name__ == "__main__":
    main()
