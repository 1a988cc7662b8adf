"""What ``demo`` does: the whole of it in one folder, for a minute, without a network."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from bide.cli.instants import span
from bide.cli.logs import LogListener, PlainFormatter, write_logs
from bide.cli.loopback import LoopbackServer
from bide.cli.looping import run_quickly
from bide.cli.market import Market
from bide.cli.printing import counted, print_text
from bide.cli.receiver import Receiver
from bide.cli.running import summary, watched_run
from bide.cli.sample import sample_api
from bide.cli.starter import starter_text
from bide.cli.stopping import stop_on_signals
from bide.clock import SystemClock
from bide.errors import SettingError

if TYPE_CHECKING:
    from rich.console import Console

    from bide.app import App
    from bide.cli.view import View

FILES = ("prices.py", "ledger.py")
_STEP_S = 2.0
"""Seconds between moves of the prices."""


def run_demo(*, seconds: float, folder: Path, live: bool | None) -> None:
    """Run the demo in ``folder`` for ``seconds`` or until a signal, then say what it did.

    Raises ``SettingError`` where the folder cannot be written.
    """
    from rich.console import Console

    console = Console()
    drawn = console.is_terminal if live is None else live
    _write_files(folder)
    run_quickly(lambda: _demo(seconds, folder, console if drawn else None))


def _write_files(folder: Path) -> None:
    """Put the demo's files into ``folder``; those that are there stay as they are."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            if not (folder / name).exists():
                (folder / name).write_text(starter_text(name), "utf-8")
    except OSError as error:
        raise SettingError(
            "--folder", f"{folder} cannot be used: {error.strerror or error}; name another"
        ) from error


async def _demo(seconds: float, folder: Path, console: Console | None) -> None:
    clock = SystemClock()
    secret = secrets.token_urlsafe(24)
    receiver = Receiver(clock, secret=secret)
    async with LoopbackServer(sample_api(Market(clock, step_s=_STEP_S), receiver)) as server:
        os.environ["DEMO_API"], os.environ["AUDIT_SECRET"] = server.url, secret
        module = _imported(folder / "prices.py")
        app: App = module.app
        print_text(f"A sample API with moving prices is at {server.url}; {folder / 'prices.py'} polls it.")
        if console is None:
            write_logs("info", PlainFormatter())
            app.telemetry.listen(LogListener(clock))
        view = await _run(app, seconds, console)
    print_text("\n".join(_ending(folder, module, receiver, view, clock.utc_ms())))


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("prices", path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


async def _run(app: App, seconds: float, console: Console | None) -> View:
    stopping = asyncio.Event()

    async def end() -> None:
        await app.clock.sleep(seconds)
        stopping.set()

    ending = asyncio.ensure_future(end())
    footer = f"ends by itself after {span(seconds * 1000)}; Ctrl-C ends it now"
    try:
        async with app.open():
            with stop_on_signals(stopping, app.stop_now):
                return await watched_run(app, stopping, console, footer=footer)
    finally:
        ending.cancel()


def _ending(folder: Path, module: ModuleType, receiver: Receiver, view: View, now: int) -> Iterator[str]:
    """What the demo did, where it is kept, and what to try next."""
    yield ""
    yield from summary(view, now)
    checked = f"{receiver.verified} signatures verified by the receiver, {receiver.refused} refused"
    seen = ", ".join(f"{symbol} {price}" for symbol, price in module.latest.items())
    lines = _lines_of(folder / "ledger.jsonl")
    notes = {
        "audit": checked,
        "ledger": f"{folder / 'ledger.jsonl'} has {lines}",
        "notice": f"last saw {seen}",
    }
    for line in view.subscribers.values():
        note = f"; {notes[line.name]}" if line.name in notes else ""
        yield f"  {line.name:<8} {line.kind:<9} {line.succeeded} delivered{note}"
    bide = _program(folder)
    yield "Look at it:"
    yield f"  cd {shlex.quote(str(folder))}"
    yield f"  {bide} status -a prices:app"
    yield f"  {bide} events list -a prices:app"
    yield f"  {bide} deliveries list -a prices:app"
    yield '  sqlite3 bide.db "SELECT seq, poll, payload FROM events ORDER BY seq DESC LIMIT 5"'
    yield "Then poll something of your own, in a folder of its own:"
    yield f"  mkdir ../my-polls && cd ../my-polls && {bide} init"


def _lines_of(path: Path) -> str:
    """How many lines a file has, in words."""
    with contextlib.suppress(OSError):
        return counted(path.read_text("utf-8").count("\n"), "line")
    return "no lines"


def _program(folder: Path) -> str:
    """How this program is called from ``folder``."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m bide"
    if shutil.which("bide") or not called.is_file():
        return "bide"
    return shlex.quote(os.path.relpath(called, folder))
