"""A project folder with a shop on the other side, and commands run in it as a user would."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from bide.cli.loopback import Answer, Asked, LoopbackServer
from bide.cli.main import cli

DECLARED = """
[app]
tick = "1s"

[packages.shop]
max_concurrent = 4

[packages.shop.operations.price]
get = "/price"
answer = {{ symbol = "str", price = "number" }}
retry = 0

[packages.shop.operations.stock]
get = "/stock"
answer = {{ left = "int" }}
retry = 0

[packages.shop.events.PriceChanged]
public = true
fields = {{ symbol = "str", price = "number" }}

[packages.shop.events.StockChanged]
public = true
fields = {{ left = "int" }}

[packages.shop.polls.price]
call = "price"
every = "1h"
emits = "PriceChanged"

[packages.shop.polls.stock]
call = "stock"
every = "1h"
emits = "StockChanged"

[connections.eu]
package = "shop"
base_url = "{url}"
max_concurrent = 2

[subscribers.audit]
on = "shop.PriceChanged"
webhook = "{url}/hook"
"""
"""Two polls, of which nobody hears the second."""


@dataclass
class Shop:
    """The API on the other side, and what its webhook receiver got. ``down`` answers 503, ``gone`` 410."""

    price: str = "101.5"
    symbol: str = "OAK"
    down: bool = False
    gone: bool = False
    hook_status: int = 204
    received: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def answer(self, asked: Asked) -> Answer:
        if asked.path == "/hook":
            self.received.append(json.loads(asked.body))
            return Answer(self.hook_status)
        if self.down:
            return Answer(503)
        if self.gone:
            return Answer(410)
        if asked.path == "/price":
            body = f'{{"symbol": {json.dumps(self.symbol)}, "price": {self.price}}}'
            return Answer(200, body.encode(), (("content-type", "application/json"),))
        return Answer(200, b'{"left": 3}', (("content-type", "application/json"),))


@contextmanager
def open_shop() -> Iterator[Shop]:
    """Serve a shop from a thread of its own, since commands run event loops of theirs."""
    shop, ready, loop = Shop(), threading.Event(), asyncio.new_event_loop()
    closing = asyncio.Event()

    async def serve() -> None:
        async with LoopbackServer(shop.answer) as server:
            shop.url = server.url
            ready.set()
            await closing.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield shop
    finally:
        loop.call_soon_threadsafe(closing.set)
        thread.join()
        loop.close()


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Project:
    """A folder with a ``bide.toml`` for ``shop``."""

    folder: Path
    shop: Shop

    def declare(self, more: str = "", *, without: str = "") -> None:
        """Write ``bide.toml``: the usual declarations without a part of them, and more behind."""
        text = DECLARED.format(url=self.shop.url)
        assert without in text
        (self.folder / "bide.toml").write_text(text.replace(without, "") + more)

    def bide(self, *arguments: str) -> Ran:
        """Run a command in this process."""
        result = CliRunner().invoke(cli, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command as a process of its own in the folder."""
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "bide", *arguments],
            cwd=self.folder,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> Ran:
    """Signal a process and wait for its end."""
    process.send_signal(number)
    return ended(process)


def ended(process: subprocess.Popen[str]) -> Ran:
    """Wait for the end of a process."""
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return Ran(process.returncode, out, err)
