"""Flags that are settings of a worker: texts, which are read where every layer is (:mod:`bide.config.worker`)."""

from __future__ import annotations

from typing import Annotated

import typer

_POLLING = "Polling"

QueuesFlag = Annotated[
    str | None,
    typer.Option("--queues", "-q", metavar="NAMES", help="Queues to work on, separated by commas; else all."),
]
ConcurrencyFlag = Annotated[
    str | None, typer.Option("--concurrency", "-c", metavar="NUMBER", help="Items handled at a time.")
]
GraceFlag = Annotated[
    str | None,
    typer.Option("--grace", metavar="DURATION", help="How long a stop waits for what is under way."),
]
LockTimeoutFlag = Annotated[
    str | None,
    typer.Option("--lock-timeout", metavar="DURATION", help="How long an item is locked, unless renewed."),
]
StrategyFlag = Annotated[
    str | None,
    typer.Option(
        "--polling-strategy", metavar="STRATEGY", help="fixed or adaptive.", rich_help_panel=_POLLING
    ),
]
PollIntervalFlag = Annotated[
    str | None,
    typer.Option(
        "--poll-interval",
        metavar="DURATION",
        help="The fixed strategy with this interval, in one.",
        rich_help_panel=_POLLING,
    ),
]
IntervalFlag = Annotated[
    str | None,
    typer.Option(
        "--polling-interval", metavar="DURATION", help="Of the fixed strategy.", rich_help_panel=_POLLING
    ),
]
MinIntervalFlag = Annotated[
    str | None,
    typer.Option(
        "--polling-min-interval",
        metavar="DURATION",
        help="Of the adaptive one: after something was found.",
        rich_help_panel=_POLLING,
    ),
]
MaxIntervalFlag = Annotated[
    str | None,
    typer.Option(
        "--polling-max-interval",
        metavar="DURATION",
        help="Of the adaptive one: the longest while there is nothing.",
        rich_help_panel=_POLLING,
    ),
]
MultiplierFlag = Annotated[
    str | None,
    typer.Option(
        "--polling-backoff-multiplier",
        metavar="NUMBER",
        help="Of the adaptive one: how fast the interval grows.",
        rich_help_panel=_POLLING,
    ),
]
LongPollFlag = Annotated[
    str | None,
    typer.Option(
        "--long-poll-timeout",
        metavar="DURATION",
        help="How long a fetch may wait in the store; 0 never does.",
        rich_help_panel=_POLLING,
    ),
]
MinPollFlag = Annotated[
    str | None,
    typer.Option(
        "--min-poll-interval",
        metavar="DURATION",
        help="The least time between two fetches that find nothing.",
        rich_help_panel=_POLLING,
    ),
]

_METRICS = "Metrics"
MetricsPortFlag = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65535,
        help="Serve metrics for Prometheus there; 0 takes a free one.",
        rich_help_panel=_METRICS,
    ),
]
MetricsHostFlag = Annotated[
    str,
    typer.Option("--metrics-host", help="The address to serve them at.", rich_help_panel=_METRICS),
]
