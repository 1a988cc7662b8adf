"""What ``cost`` does without ``--observed``: from an app and flags to a workload, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from bide.cli.estimated import Estimated, print_comparison, print_estimate
from bide.cli.opening import load
from bide.cli.options import DEFAULT_TARGET
from bide.cli.pricing import list_for, prices_of
from bide.cli.rates import a_day, share
from bide.cli.shown_settings import settings_with_flags
from bide.config.worker import WorkerSettings
from bide.core.estimates import PollLoad, Workload
from bide.core.kinds import KINDS, kind_of
from bide.core.names import did_you_mean
from bide.core.pacing import PollingStrategy
from bide.core.prices import PriceList
from bide.core.requests import MODELS
from bide.errors import SettingError
from bide.stores import filled

if TYPE_CHECKING:
    from bide.app import App
    from bide.config.prices import PriceLists

_DAY = timedelta(days=1)
_COMPARED = (
    PollingStrategy.fixed("500ms"),
    PollingStrategy.adaptive(),
    PollingStrategy.adaptive(max_interval="30s"),
)
"""Strategies that people choose among, the dearest first."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line. ``flags`` are those of settings of workers."""

    target: str
    provider: str | None
    workers: int
    queues: int | None
    busy: str
    items: str
    batch: int
    polls: str | None
    changed: str
    flags: Mapping[str, str | None]
    prices: Path | None
    price_list: str | None


def show_estimate(asked: Asked, *, compare: bool, as_json: bool) -> None:
    """Print what is asked for; with ``compare`` beside other stores and strategies.

    Raises ``typer.BadParameter`` for a flag that is wrong, ``SettingError`` for a store or price list that is not
    known, and ``DeclarationError`` for what is wrong in the app or the file of prices.
    """
    app = _app_of(asked)
    settings = settings_with_flags(app, asked.flags)
    address = filled(app.declarations.provider if asked.provider is None else asked.provider, app.environment)
    lists = prices_of(app, asked.prices)
    kind = _kind(address)
    prices = list_for(kind, lists, asked.price_list)
    workload = _workload(asked, app, settings)
    chosen = Estimated(workload, MODELS[kind], prices, own_endpoint="endpoint=" in address)
    if compare:
        print_comparison(_others(chosen, lists), chosen, as_json=as_json)
    else:
        print_estimate(chosen, as_json=as_json)


def _app_of(asked: Asked) -> App:
    """The app that is asked about. Who names a store, and has no file yet, needs none."""
    if asked.provider is not None and asked.target == DEFAULT_TARGET and not Path(DEFAULT_TARGET).exists():
        from bide.app import App

        return App()
    return load(asked.target)


def _kind(address: str) -> str:
    scheme = address.partition(":")[0].strip().lower()
    kind = kind_of(scheme)
    if kind not in MODELS:
        step = did_you_mean(scheme, {*MODELS, *KINDS}) or f"known are {', '.join(sorted(MODELS))}"
        raise SettingError("--provider", f"{scheme!r} is no kind of store; {step}")
    return kind


def _workload(asked: Asked, app: App, settings: WorkerSettings) -> Workload:
    polls = _polls(asked, app)
    items = a_day(asked.items, "--items")
    works = bool(app.declarations.tasks or items) or not polls.calls_a_day
    return Workload(
        strategy=settings.strategy,
        long_poll_timeout=settings.long_poll_timeout,
        min_poll_interval=settings.min_poll_interval,
        workers=asked.workers,
        queues=asked.queues or _declared_queues(app, settings),
        busy=share(asked.busy, "--busy"),
        items_a_day=items,
        batch=asked.batch,
        polls=polls,
        loops=works + bool(polls.calls_a_day),
    )


def _declared_queues(app: App, settings: WorkerSettings) -> int:
    declarations = app.declarations
    declared = {task.queue for task in declarations.tasks.values()} | declarations.queues.keys()
    return max(1, len(settings.queues or declared))


def _polls(asked: Asked, app: App) -> PollLoad:
    """The polls that the command line says, else those of the app that are called."""
    changed = share(asked.changed, "--changed")
    if asked.polls is not None:
        return PollLoad(a_day(asked.polls, "--polls"), changed)
    declarations = app.declarations
    called = [poll for poll in declarations.polls.values() if poll.active]
    if not called:
        return PollLoad()
    calls = sum((_times_a_day(poll.every) for poll in called), Decimal(0))
    heard = [subscriber.event for subscriber in declarations.subscribers.values()]
    deliveries = max(heard.count(poll.event.name) for poll in called)
    return PollLoad(calls, changed, deliveries)


def _times_a_day(every: timedelta) -> Decimal:
    return Decimal(_DAY // timedelta(microseconds=1)) / Decimal(every // timedelta(microseconds=1))


def _others(chosen: Estimated, lists: PriceLists) -> list[Estimated]:
    """Every store, those that fetches cannot wait in with each strategy."""
    found = []
    for prices in lists.values():
        if prices.kind == "memory":
            continue
        model = MODELS[prices.kind]
        found += [chosen.elsewhere(prices, model, strategy) for strategy in _strategies(chosen, prices)]
    return found


def _strategies(chosen: Estimated, prices: PriceList) -> list[PollingStrategy]:
    own = chosen.workload.strategy
    if MODELS[prices.kind].waiting is not None and chosen.workload.long_poll_timeout:
        return [own]
    return [own, *(other for other in _COMPARED if other != own)]
