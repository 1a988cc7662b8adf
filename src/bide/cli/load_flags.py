"""Flags of ``cost``: what there is to do, where, and at which prices. Rates and shares are read by ``rates``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_LOAD = "What there is to do"
_PRICES = "Prices"
_MOST = 1_000_000

SourcesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SOURCE",
        help="With --observed: addresses of metrics, files or folders; else the counts beside bide.toml.",
    ),
]
ObservedFlag = Annotated[bool, typer.Option("--observed", help="From what was really counted.")]
CompareFlag = Annotated[bool, typer.Option("--compare", help="Show other stores and strategies too.")]
ProviderFlag = Annotated[
    str | None,
    typer.Option("--provider", "-p", metavar="URL", help="Another store: an address, or a word such as s3."),
]
WorkersFlag = Annotated[
    int, typer.Option("--workers", "-w", min=1, max=_MOST, help="Processes.", rich_help_panel=_LOAD)
]
QueuesFlag = Annotated[
    int | None,
    typer.Option(
        "--queues",
        "-q",
        min=1,
        max=_MOST,
        help="Queues of each; else those declared.",
        rich_help_panel=_LOAD,
    ),
]
BusyFlag = Annotated[
    str,
    typer.Option(
        "--busy", metavar="SHARE", help="Share of time with something to do, as 10%.", rich_help_panel=_LOAD
    ),
]
ItemsFlag = Annotated[
    str,
    typer.Option(
        "--items", metavar="RATE", help="Work items that come, as 100000/day.", rich_help_panel=_LOAD
    ),
]
BatchFlag = Annotated[
    int, typer.Option("--batch", min=1, max=1000, help="Items that come together.", rich_help_panel=_LOAD)
]
PollsFlag = Annotated[
    str | None,
    typer.Option(
        "--polls",
        metavar="RATE",
        help="Calls of polls, as 500/5m, or none; else those declared.",
        rich_help_panel=_LOAD,
    ),
]
ChangedFlag = Annotated[
    str,
    typer.Option(
        "--changed", metavar="SHARE", help="Share of calls that find a change.", rich_help_panel=_LOAD
    ),
]
PricesFlag = Annotated[
    Path | None,
    typer.Option(
        "--prices", metavar="FILE", help="A TOML file of prices over bide's own.", rich_help_panel=_PRICES
    ),
]
PriceListFlag = Annotated[
    str | None,
    typer.Option(
        "--price-list", metavar="NAME", help="Another list of prices, as r2.", rich_help_panel=_PRICES
    ),
]
