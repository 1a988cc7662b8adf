"""How estimates are printed: a table of requests, a table of stores, and what was assumed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from bide.cli.instants import seconds_of
from bide.cli.pricing import basis, dollars, exact, per_million, prices_as_json, total_as_json, whole
from bide.cli.printing import add_row, counted, new_table, print_json, print_table, print_text
from bide.core.durations import format_duration, to_ms
from bide.core.estimates import LONGEST_STRETCH, Estimate, Workload, estimate
from bide.core.pacing import PollingStrategy
from bide.core.prices import MILLION, Bill, PriceList
from bide.core.requests import RequestModel

_IN_STORE = "waits in the store"


@dataclass(frozen=True)
class Estimated:
    """A workload on a store, with its prices. ``own_endpoint``: the address names a server of its own."""

    workload: Workload
    model: RequestModel
    prices: PriceList
    own_endpoint: bool = False

    @cached_property
    def estimate(self) -> Estimate:
        """Requests in a month."""
        return estimate(self.workload, self.model)

    @cached_property
    def bill(self) -> Bill:
        """What they cost."""
        return self.prices.bill(self.estimate.requests)

    @property
    def waits(self) -> bool:
        """Whether fetches wait in the store, so that the strategy decides nothing."""
        return self.model.waiting is not None and bool(self.workload.long_poll_timeout)

    @property
    def lacks_polls(self) -> bool:
        """Whether there are polls and the store keeps none."""
        return self.model.polls is None and bool(self.workload.polls.calls_a_day)

    def elsewhere(self, prices: PriceList, model: RequestModel, strategy: PollingStrategy) -> Estimated:
        """The same workload on another store, by another strategy."""
        return Estimated(replace(self.workload, strategy=strategy), model, prices)


def print_estimate(shown: Estimated, *, as_json: bool) -> None:
    """Print one estimate."""
    if as_json:
        print_json(_as_json(shown))
        return
    print_text(f"an estimate: a month of 30 days of requests to {shown.prices.place}\n")
    table = new_table("request", "for", "a month", "$ per million", "dollars", right=_NUMBERS)
    last = ""
    for share in shown.estimate.shares:
        price = shown.prices.per_million(share.name)
        cost = share.requests * (price or Decimal(0)) / MILLION
        name, last = ("" if share.name == last else share.name), share.name
        add_row(table, name, share.cause, f"{whole(share.requests):,}", per_million(price), dollars(cost))
    for allowance in shown.bill.allowances:
        add_row(
            table,
            "included",
            "free each month",
            f"{whole(allowance.requests):,}",
            "",
            f"-{dollars(allowance.dollars)}",
        )
    add_row(table, "total", "", f"{whole(shown.bill.requests):,}", "", dollars(shown.bill.dollars))
    print_table(table)
    print_text("\nassumed:")
    for line in (*_assumptions(shown), *basis(shown.prices)):
        print_text(f"- {line}")


_NUMBERS = ("a month", "$ per million", "dollars")


def print_comparison(others: list[Estimated], chosen: Estimated, *, as_json: bool) -> None:
    """Print several estimates of one workload, each in a line."""
    if as_json:
        print_json(
            {
                "workload": _workload_as_json(chosen.workload),
                "comparison": [
                    {
                        **prices_as_json(one.prices),
                        "kind": one.model.kind,
                        "strategy": None if one.waits else _strategy_as_json(one.workload.strategy),
                        "keeps_polls": one.model.polls is not None,
                        "requests": whole(one.bill.requests),
                        "dollars": exact(one.bill.dollars),
                        "chosen": _is_chosen(one, chosen),
                    }
                    for one in others
                ],
            }
        )
        return
    print_text("an estimate: a month of 30 days of requests, by store and strategy\n")
    table = new_table("", "store", "strategy", "requests", "dollars", right=("requests", "dollars"))
    for one in others:
        mark = "*" if _is_chosen(one, chosen) else "-" if one.lacks_polls else ""
        strategy = _IN_STORE if one.waits else in_words(one.workload.strategy)
        add_row(
            table,
            mark,
            one.prices.title,
            strategy,
            f"{whole(one.bill.requests):,}",
            dollars(one.bill.dollars),
        )
    print_table(table)
    print_text("")
    if any(_is_chosen(one, chosen) for one in others):
        print_text("* as it is set up")
    if any(one.lacks_polls for one in others):
        print_text("- keeps no polls: they are left out")
    print_text("assumed:")
    for line in _load(chosen.workload):
        print_text(f"- {line}")
    print_text(
        "- neither storage, traffic nor machines are counted; `bide cost -p s3` shows one store in full"
    )


def _is_chosen(one: Estimated, chosen: Estimated) -> bool:
    return (one.prices.name, one.workload.strategy) == (chosen.prices.name, chosen.workload.strategy)


def in_words(strategy: PollingStrategy) -> str:
    """A strategy in a few words."""
    if strategy.kind == "fixed":
        return f"fixed {format_duration(strategy.min_interval)}"
    return f"adaptive {format_duration(strategy.min_interval)} to {format_duration(strategy.max_interval)}"


def _load(workload: Workload) -> list[str]:
    """What there is to do, in words."""
    polls = workload.polls
    busy = workload.busy
    idle = f"busy {_percent(busy)} of the time" if busy else "always idle but for what comes"
    said = [f"{counted(workload.workers, 'worker')}, {counted(workload.queues, 'queue')}, {idle}"]
    if workload.items_a_day:
        said.append(f"{_number(workload.items_a_day)} items a day, spread evenly, {workload.batch} at a time")
    else:
        said.append("no work items (--items 100000/day adds some)")
    if polls.calls_a_day:
        if workload.loops > 1:
            said.append("each worker asks for work items and for deliveries (`bide run`)")
        said.append(
            f"{_number(polls.calls_a_day)} calls of polls a day, {_percent(polls.changed)} of them with a change "
            f"and {counted(polls.deliveries, 'delivery')} each"
        )
    return said


def _assumptions(shown: Estimated) -> list[str]:
    workload, made = shown.workload, shown.estimate
    said = _load(workload)
    if shown.waits:
        said.append("a fetch waits in the store while there is nothing, whatever the strategy")
    else:
        said.append(f"how often a worker asks while there is nothing: {in_words(workload.strategy)}")
    if made.stretch < LONGEST_STRETCH and workload.busy < 1:
        said.append(f"a worker is idle for {seconds_of(made.stretch.total_seconds())} at a time")
    if made.batch < workload.batch:
        said.append(f"{shown.model.title} takes at most {made.batch} items in a batch")
    if shown.lacks_polls:
        said.append(f"{shown.model.title} keeps no polls: they are left out")
    if shown.own_endpoint and any(tariff.per_million for tariff in shown.prices.tariffs):
        said.append("the address names a server of its own, whose prices may be others (--price-list)")
    return said


def _as_json(shown: Estimated) -> dict[str, Any]:
    return {
        "estimate": True,
        "days": 30,
        "kind": shown.model.kind,
        "prices": prices_as_json(shown.prices),
        "workload": _workload_as_json(shown.workload),
        "requests": [
            {
                "class": share.name,
                "for": share.cause,
                "requests": whole(share.requests),
                "per_million": None
                if (price := shown.prices.per_million(share.name)) is None
                else float(price),
                "dollars": exact(share.requests * (price or Decimal(0)) / MILLION),
            }
            for share in shown.estimate.shares
        ],
        **total_as_json(shown.bill),
        "assumed": [*_assumptions(shown), *basis(shown.prices)],
    }


def _workload_as_json(workload: Workload) -> dict[str, Any]:
    return {
        "workers": workload.workers,
        "queues": workload.queues,
        "busy": float(workload.busy),
        "items_a_day": float(workload.items_a_day),
        "batch": workload.batch,
        "poll_calls_a_day": float(workload.polls.calls_a_day),
        "changed": float(workload.polls.changed),
        "strategy": _strategy_as_json(workload.strategy),
        "long_poll_timeout_ms": to_ms(workload.long_poll_timeout),
    }


def _strategy_as_json(strategy: PollingStrategy) -> dict[str, Any]:
    if strategy.kind == "fixed":
        return {"strategy": "fixed", "interval_ms": to_ms(strategy.min_interval)}
    return {
        "strategy": "adaptive",
        "min_interval_ms": to_ms(strategy.min_interval),
        "max_interval_ms": to_ms(strategy.max_interval),
        "backoff_multiplier": strategy.backoff_multiplier,
    }


def _percent(part: Decimal) -> str:
    return f"{(part * 100).normalize():f}%"


def _number(number: Decimal) -> str:
    return f"{whole(number):,}" if number >= 10 else f"{number:.3g}"
