"""What ``settings`` does, and how the settings of a worker read in one line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import typer

from bide.cli.opening import load
from bide.cli.printing import add_row, new_table, print_json, print_table
from bide.config.layers import Origin
from bide.config.worker import WorkerSettings, worker_settings
from bide.core.durations import format_duration, to_ms
from bide.errors import DeclarationError

if TYPE_CHECKING:
    from bide.app import App


def show_settings(target: str, *, as_json: bool) -> None:
    """Print each setting of a worker of ``target``, and where it came from."""
    app = load(target)
    settled = worker_settings(app.raw(), app.environment)
    if as_json:
        print_json({"settings": [_as_json(*row) for row in settled.rows()]})
        return
    table = new_table("setting", "value", "from", fold="from")
    for name, value, origin in settled.rows():
        add_row(table, name, in_words(value), str(origin) if origin.name else origin.layer)
    print_table(table)


def _as_json(name: str, value: Any, origin: Origin) -> dict[str, Any]:
    layer = {"layer": origin.layer, "from": origin.name or None}
    if isinstance(value, timedelta):
        return {"name": f"{name}_ms", "value": to_ms(value), **layer}
    return {"name": name, "value": list(value) if isinstance(value, tuple) else value, **layer}


def in_words(value: Any) -> str:
    """A value of a setting as people read it."""
    match value:
        case None:
            return "all"
        case timedelta():
            return format_duration(value)
        case tuple():
            return ", ".join(value)
        case _:
            return f"{value:g}" if isinstance(value, float) else str(value)


def in_one_line(settings: WorkerSettings) -> str:
    """What a worker says of its settings when it starts."""
    strategy = settings.strategy
    if strategy.kind == "fixed":
        polling = f"every {format_duration(strategy.min_interval)}"
    else:
        polling = f"{format_duration(strategy.min_interval)} to {format_duration(strategy.max_interval)}"
    return (
        f"{settings.concurrency} at a time, polling {strategy.kind} {polling}, "
        f"long polls of {format_duration(settings.long_poll_timeout)}, "
        f"locks of {format_duration(settings.lock_timeout)}, grace {format_duration(settings.grace)}"
    )


def settings_with_flags(app: App, flags: Mapping[str, str | None]) -> WorkerSettings:
    """What a worker of ``app`` runs with.

    Raises ``typer.BadParameter`` for a flag that is wrong, and ``DeclarationError`` for what is wrong elsewhere.
    """
    try:
        return worker_settings(app.raw(), app.environment, flags=flags)
    except DeclarationError as error:
        if not all(mistake.where.startswith("--") for mistake in error.mistakes):
            raise
        mistake = error.mistakes[0]
        step = f". {mistake.suggestion}" if mistake.suggestion else ""
        raise typer.BadParameter(f"{mistake.message}{step}", param_hint=mistake.where) from error
