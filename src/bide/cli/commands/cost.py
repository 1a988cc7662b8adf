"""``cost``: what a month of requests to the store costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bide.cli.flags import (
    IntervalFlag,
    LongPollFlag,
    MaxIntervalFlag,
    MinIntervalFlag,
    MinPollFlag,
    MultiplierFlag,
    PollIntervalFlag,
    StrategyFlag,
)
from bide.cli.options import DEFAULT_TARGET, JsonOption, TargetOption

_LOAD = "What it has to do"
_PRICES = "Prices"


def cost(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE...",
            help="With --observed: addresses of metrics, files or folders; else the counts beside bide.toml.",
        ),
    ] = None,
    target: TargetOption = DEFAULT_TARGET,
    *,
    observed: Annotated[bool, typer.Option("--observed", help="From what was really counted.")] = False,
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider", "-p", metavar="URL", help="Another store: an address, or a word such as s3."
        ),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Show other stores and strategies too.")] = False,
    workers: Annotated[
        int, typer.Option("--workers", "-w", min=1, max=1_000_000, help="Processes.", rich_help_panel=_LOAD)
    ] = 1,
    queues: Annotated[
        int | None,
        typer.Option(
            "--queues",
            "-q",
            min=1,
            max=1_000_000,
            help="Queues of each; else those declared.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    busy: Annotated[
        str,
        typer.Option(
            "--busy",
            metavar="SHARE",
            help="Share of time with something to do, as 10%.",
            rich_help_panel=_LOAD,
        ),
    ] = "0%",
    items: Annotated[
        str,
        typer.Option(
            "--items", metavar="RATE", help="Work items that come, as 100000/day.", rich_help_panel=_LOAD
        ),
    ] = "0",
    batch: Annotated[
        int,
        typer.Option("--batch", min=1, max=1000, help="Items that come together.", rich_help_panel=_LOAD),
    ] = 1,
    polls: Annotated[
        str | None,
        typer.Option(
            "--polls",
            metavar="RATE",
            help="Calls of polls, as 500/5m, or none; else those declared.",
            rich_help_panel=_LOAD,
        ),
    ] = None,
    changed: Annotated[
        str,
        typer.Option(
            "--changed", metavar="SHARE", help="Share of calls that find a change.", rich_help_panel=_LOAD
        ),
    ] = "1%",
    strategy: StrategyFlag = None,
    poll_interval: PollIntervalFlag = None,
    interval: IntervalFlag = None,
    min_interval: MinIntervalFlag = None,
    max_interval: MaxIntervalFlag = None,
    backoff_multiplier: MultiplierFlag = None,
    long_poll_timeout: LongPollFlag = None,
    min_poll_interval: MinPollFlag = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            "--prices", metavar="FILE", help="A TOML file of prices over bide's own.", rich_help_panel=_PRICES
        ),
    ] = None,
    price_list: Annotated[
        str | None,
        typer.Option(
            "--price-list", metavar="NAME", help="Another list of prices, as r2.", rich_help_panel=_PRICES
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a month of requests to the store costs.

    An estimate from settings and from what there is to do; with --observed from what was really counted. Neither
    storage nor traffic nor machines are in it.
    """
    from bide.cli.costing import Asked, show_estimate
    from bide.cli.observing import show_observed

    if sources and not observed:
        raise typer.BadParameter("are for --observed. Add it.", param_hint="SOURCE")
    if observed:
        show_observed(target, sources or [], prices=prices, price_list=price_list, as_json=as_json)
        return
    asked = Asked(
        target=target,
        provider=provider,
        workers=workers,
        queues=queues,
        busy=busy,
        items=items,
        batch=batch,
        polls=polls,
        changed=changed,
        flags={
            "strategy": strategy,
            "poll_interval": poll_interval,
            "interval": interval,
            "min_interval": min_interval,
            "max_interval": max_interval,
            "backoff_multiplier": backoff_multiplier,
            "long_poll_timeout": long_poll_timeout,
            "min_poll_interval": min_poll_interval,
        },
        prices=prices,
        price_list=price_list,
    )
    show_estimate(asked, compare=compare, as_json=as_json)
