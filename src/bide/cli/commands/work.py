"""``tick`` and ``run``: doing it."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from bide.cli.flags import (
    GraceFlag,
    LockTimeoutFlag,
    LongPollFlag,
    MetricsHostFlag,
    MetricsPortFlag,
    MinPollFlag,
)
from bide.cli.options import DEFAULT_TARGET, JsonOption, TargetOption

LogLevel = Literal["debug", "info", "warning"]


def tick(target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Do one pass and exit, for cron.

    Delivers what waits, calls the polls that are due, delivers again. Exits with 1 where a poll failed.
    """
    from bide.cli.ticking import tick_once

    if not tick_once(target, as_json=as_json):
        raise typer.Exit(1)


def run(
    target: TargetOption = DEFAULT_TARGET,
    *,
    live: Annotated[
        bool | None,
        typer.Option("--live/--no-live", help="Draw a live view, or log; by default a view on a terminal."),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="With --no-live: the least level logged.")
    ] = "info",
    grace: GraceFlag = None,
    lock_timeout: LockTimeoutFlag = None,
    long_poll_timeout: LongPollFlag = None,
    min_poll_interval: MinPollFlag = None,
    metrics_port: MetricsPortFlag = None,
    metrics_host: MetricsHostFlag = "127.0.0.1",
) -> None:
    """Poll, deliver and work until Ctrl-C or SIGTERM.

    The first lets what is under way finish; a second one does not wait for it.
    """
    from bide.cli.running import run_until_stopped

    run_until_stopped(
        target,
        {
            "grace": grace,
            "lock_timeout": lock_timeout,
            "long_poll_timeout": long_poll_timeout,
            "min_poll_interval": min_poll_interval,
        },
        live=live,
        log_level=log_level,
        metrics_at=(metrics_host, metrics_port),
    )
