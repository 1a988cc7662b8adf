"""``worker``, ``submit`` and ``settings``: the tasks of an app at work."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from bide.cli.flags import (
    ConcurrencyFlag,
    GraceFlag,
    IntervalFlag,
    LockTimeoutFlag,
    LongPollFlag,
    MaxIntervalFlag,
    MetricsHostFlag,
    MetricsPortFlag,
    MinIntervalFlag,
    MinPollFlag,
    MultiplierFlag,
    PollIntervalFlag,
    QueuesFlag,
    StrategyFlag,
)
from bide.cli.options import DEFAULT_TARGET, JsonOption, TargetOption

LogLevel = Literal["debug", "info", "warning"]
LogFormat = Literal["json", "plain"]


def worker(
    app: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="The same as --app, without its name.")
    ] = None,
    target: TargetOption = DEFAULT_TARGET,
    *,
    queues: QueuesFlag = None,
    concurrency: ConcurrencyFlag = None,
    grace: GraceFlag = None,
    lock_timeout: LockTimeoutFlag = None,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="The least level logged.")] = "info",
    log_format: Annotated[
        LogFormat | None,
        typer.Option("--log-format", help="By default plain on a terminal, else JSON lines."),
    ] = None,
    strategy: StrategyFlag = None,
    poll_interval: PollIntervalFlag = None,
    interval: IntervalFlag = None,
    min_interval: MinIntervalFlag = None,
    max_interval: MaxIntervalFlag = None,
    backoff_multiplier: MultiplierFlag = None,
    long_poll_timeout: LongPollFlag = None,
    min_poll_interval: MinPollFlag = None,
    metrics_port: MetricsPortFlag = None,
    metrics_host: MetricsHostFlag = "127.0.0.1",
) -> None:
    """Run tasks until Ctrl-C or SIGTERM.

    And periodic ones when they are due. The first signal lets handlers finish; a second one does not wait for them.
    """
    from bide.cli.working import Logging, work_until_stopped

    work_until_stopped(
        app or target,
        {
            "queues": queues,
            "concurrency": concurrency,
            "grace": grace,
            "lock_timeout": lock_timeout,
            "strategy": strategy,
            "poll_interval": poll_interval,
            "interval": interval,
            "min_interval": min_interval,
            "max_interval": max_interval,
            "backoff_multiplier": backoff_multiplier,
            "long_poll_timeout": long_poll_timeout,
            "min_poll_interval": min_poll_interval,
        },
        logs=Logging(log_level, log_format),
        metrics_at=(metrics_host, metrics_port),
    )


def submit(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=TEXT|NAME:=JSON...", help="Its arguments; or one JSON object with all of them."
        ),
    ] = None,
    target: TargetOption = DEFAULT_TARGET,
    *,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="DURATION", help="Not before so long from now.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="INSTANT", help="Not before then, as 2026-01-31T09:00:00Z.")
    ] = None,
    within: Annotated[
        str | None, typer.Option("--within", metavar="DURATION", help="Dead unless done so long from now.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Submitted once for this key, however often it is.")
    ] = None,
    limit_key: Annotated[
        str | None, typer.Option("--limit-key", help="Shares the places that its queue gives each such key.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", help="A minute ahead for each step; may be negative.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Submit work to a task.

    Its arguments are checked as the task declares them. Prints the id of the work item.
    """
    from bide.cli.submitting import submit_work

    submit_work(
        target,
        task,
        arguments or [],
        {
            "delay": delay,
            "at": at,
            "within": within,
            "key": key,
            "limit_key": limit_key,
            "priority": priority,
        },
        as_json=as_json,
    )


def settings(target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Show how a worker runs, and which layer said so.

    Out of the file, the environment and the defaults; flags and what code gives a worker come on top.
    """
    from bide.cli.shown_settings import show_settings

    show_settings(target, as_json=as_json)
