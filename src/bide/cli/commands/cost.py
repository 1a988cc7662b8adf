"""``cost``: what a month of requests to the store costs."""

from __future__ import annotations

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
from bide.cli.load_flags import (
    BatchFlag,
    BusyFlag,
    ChangedFlag,
    CompareFlag,
    ItemsFlag,
    ObservedFlag,
    PollsFlag,
    PriceListFlag,
    PricesFlag,
    ProviderFlag,
    QueuesFlag,
    SourcesArgument,
    WorkersFlag,
)
from bide.cli.options import DEFAULT_TARGET, JsonOption, TargetOption


def cost(
    sources: SourcesArgument = None,
    target: TargetOption = DEFAULT_TARGET,
    *,
    observed: ObservedFlag = False,
    provider: ProviderFlag = None,
    compare: CompareFlag = False,
    workers: WorkersFlag = 1,
    queues: QueuesFlag = None,
    busy: BusyFlag = "0%",
    items: ItemsFlag = "0",
    batch: BatchFlag = 1,
    polls: PollsFlag = None,
    changed: ChangedFlag = "1%",
    strategy: StrategyFlag = None,
    poll_interval: PollIntervalFlag = None,
    interval: IntervalFlag = None,
    min_interval: MinIntervalFlag = None,
    max_interval: MaxIntervalFlag = None,
    backoff_multiplier: MultiplierFlag = None,
    long_poll_timeout: LongPollFlag = None,
    min_poll_interval: MinPollFlag = None,
    prices: PricesFlag = None,
    price_list: PriceListFlag = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a month of requests to the store costs.

    An estimate from settings and from what there is to do; with --observed from what was really counted.
    Storage, traffic and machines are not in it.
    """
    from bide.cli.costing import Asked, show_estimate
    from bide.cli.observing import show_observed

    if sources and not observed:
        raise typer.BadParameter(f"{sources[0]!r} is for --observed. Add it.", param_hint="SOURCE")
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
