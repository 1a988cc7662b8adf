"""What ``run`` does: the engine until a signal, under a live view or with logs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from bide.cli.instants import span
from bide.cli.logs import JsonFormatter, LogListener, write_logs
from bide.cli.looping import run_quickly
from bide.cli.metering import metered
from bide.cli.opening import load
from bide.cli.printing import counted, print_text, tell
from bide.cli.screen import glance, showing, view_of
from bide.cli.shown_settings import settings_with_flags
from bide.cli.stopping import stop_on_signals
from bide.cli.tallying import tallied
from bide.cli.view import View, told_tasks
from bide.errors import ProviderError

if TYPE_CHECKING:
    from rich.console import Console

    from bide.app import App


def run_until_stopped(
    target: str,
    flags: Mapping[str, str | None],
    *,
    live: bool | None,
    log_level: str,
    metrics_at: tuple[str, int | None],
) -> None:
    """Run ``target`` until SIGINT or SIGTERM, then say what it did.

    ``metrics_at`` is the host and port to serve metrics at; no port serves none. Raises ``typer.BadParameter`` for a
    flag that is wrong.
    """
    from rich.console import Console

    app = load(target)
    settings_with_flags(app, flags)
    app.flags = flags
    console = Console()
    drawn = console.is_terminal if live is None else live

    async def work() -> None:
        async with app.open():
            if not drawn:
                write_logs(log_level, JsonFormatter())
                app.telemetry.listen(LogListener(app.clock))
            stopping = asyncio.Event()
            with stop_on_signals(stopping, app.stop_now), metered(app, *metrics_at) as served:
                if served is not None:
                    _tell_metrics(served, drawn=drawn)
                async with tallied(app):
                    view = await watched_run(app, stopping, console if drawn else None)
        ended = summary(view, app.clock.utc_ms())
        if drawn:
            print_text("\n".join(ended))
        else:
            extra = {
                "bide_event": "run.ended",
                "bide_fields": {**asdict(view.totals), "tasks": dict(view.tasks)},
            }
            logging.getLogger("bide").info("; ".join(ended), extra=extra)

    run_quickly(work)


def _tell_metrics(served: str, *, drawn: bool) -> None:
    if drawn:
        tell(f"metrics at {served}")
    else:
        extra = {"bide_event": "metrics.served", "bide_fields": {"url": served}}
        logging.getLogger("bide").info("metrics at %s", served, extra=extra)


async def watched_run(
    app: App, stopping: asyncio.Event, console: Console | None, *, footer: str = "Ctrl-C stops"
) -> View:
    """Run an open app until ``stopping`` is set; answers the view into which all that happened is folded."""
    view = view_of(app)
    unlisten = app.telemetry.listen(lambda record: view.fold(record, app.clock.utc_ms()))
    try:
        async with contextlib.AsyncExitStack() as stack:
            if console is not None:
                await stack.enter_async_context(showing(app, view, console, footer=footer))
            await app.run(stopping)
            with contextlib.suppress(ProviderError):
                await glance(app, view)
    finally:
        unlisten()
    return view


def summary(view: View, now: int) -> list[str]:
    """What a run did, in a few lines."""
    totals = view.totals
    polled = f"{counted(totals.answered + totals.failed, 'poll')} called in {span(now - view.started_at)}"
    unchanged = totals.unchanged + totals.not_modified
    deliveries = f"{totals.succeeded} succeeded, {totals.retried} retried, {totals.dead} dead"
    tasks = told_tasks(view)
    return [
        f"{polled}: {totals.changed} changed, {unchanged} unchanged, {totals.failed} failed",
        f"deliveries: {deliveries}, {view.waiting} wait",
        *([tasks] if tasks else []),
        f"all of it is kept in {view.location}",
    ]
