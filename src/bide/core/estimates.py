"""How many requests a month of work and polls comes to, worked out from settings: an estimate, and only that.

A month is thirty days. Work is taken to come evenly, so that many workers with little to do are idle for short
stretches, in which a strategy does not come to its longest interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from bide.core.idling import Idling
from bide.core.pacing import PollingStrategy
from bide.core.requests import RequestModel, Requests

MONTH = timedelta(days=30)
DAYS = Decimal(30)
MINUTES = DAYS * 24 * 60
SECONDS = MINUTES * 60

LONGEST_STRETCH = timedelta(hours=1)
"""An idle stretch is taken to end after so long, even where nobody said what comes."""

Cause = Literal["idle fetches", "idle time", "upkeep", "items", "polls", "deliveries"]
CAUSES: tuple[Cause, ...] = ("idle fetches", "idle time", "upkeep", "items", "polls", "deliveries")
"""What requests are made for, in the order that they are shown."""


@dataclass(frozen=True, slots=True)
class PollLoad:
    """Calls of polls in a day, the share of them that finds a change, and the deliveries of each change."""

    calls_a_day: Decimal = Decimal(0)
    changed: Decimal = Decimal(0)
    deliveries: int = 1


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be estimated. ``busy`` is the share of time, from 0 to 1, in which a worker has something to do.

    ``workers`` are processes, each of which fetches from all of its ``queues``, in so many ``loops``: one for tasks
    and one for deliveries, where it has both. ``batch``: how many items are submitted, fetched and settled together.
    """

    strategy: PollingStrategy
    long_poll_timeout: timedelta = timedelta(seconds=30)
    min_poll_interval: timedelta = timedelta(milliseconds=100)
    workers: int = 1
    queues: int = 1
    loops: int = 1
    busy: Decimal = Decimal(0)
    items_a_day: Decimal = Decimal(0)
    batch: int = 1
    polls: PollLoad = PollLoad()


@dataclass(frozen=True, slots=True)
class Share:
    """Requests of one class in a month, made for one cause."""

    name: str
    cause: Cause
    requests: Decimal


@dataclass(frozen=True, slots=True)
class Estimate:
    """Requests in a month, by class and cause. ``stretch``: how long a worker is idle at a time."""

    shares: tuple[Share, ...]
    stretch: timedelta
    batch: int

    @property
    def requests(self) -> Requests:
        """By class."""
        return _sum(*({share.name: share.requests} for share in self.shares))


def estimate(workload: Workload, model: RequestModel) -> Estimate:
    """What ``workload`` asks in a month of a store of the kind that ``model`` is of.

    Polls are left out where the store keeps none.
    """
    batch = min(workload.batch, model.largest_batch or workload.batch)
    items, deliveries = DAYS * workload.items_a_day, DAYS * _deliveries_a_day(workload, model)
    stretches, stretch = _stretches(workload, (items + deliveries) / batch)
    causes: dict[Cause, Requests] = {
        "idle fetches": _idle_fetches(workload, model, stretches, stretch),
        "idle time": _times(model.idle_minute, workload.workers * MINUTES * (1 - workload.busy)),
        "upkeep": _sum(
            _times(model.upkeep_minute, workload.workers * MINUTES), _times(model.store_minute, MINUTES)
        ),
        "items": _handled(model, items, batch),
        "polls": _called(model, workload),
        "deliveries": _handled(model, deliveries, batch),
    }
    shares = (
        Share(name, cause, causes[cause][name])
        for name in model.classes
        for cause in CAUSES
        if causes[cause].get(name)
    )
    return Estimate(tuple(shares), stretch, batch)


def _stretches(workload: Workload, batches: Decimal) -> tuple[Decimal, timedelta]:
    """How often all workers together begin to be idle in a month of so many ``batches``, and for how long."""
    idle_s = workload.workers * workload.loops * SECONDS * (1 - workload.busy)
    longest_s = Decimal(int(LONGEST_STRETCH.total_seconds()))
    if batches * longest_s <= idle_s:
        return idle_s / longest_s, LONGEST_STRETCH
    return batches, timedelta(seconds=float(idle_s / batches))


def _idle_fetches(
    workload: Workload, model: RequestModel, stretches: Decimal, stretch: timedelta
) -> Requests:
    """By fetches that found nothing, and by looks of those that wait."""
    waiting = model.waiting
    timeout = min(workload.long_poll_timeout, waiting.longest) if waiting else timedelta()
    idling = Idling(workload.strategy, workload.min_poll_interval, timeout)
    fetches = stretches * idling.fetches(stretch) * (workload.queues if model.per_queue else 1)
    asked = _times(model.idle_fetch, fetches)
    if waiting is None or not timeout:
        return asked
    looks = -(-timeout // waiting.look_every) - 1 if waiting.look_every is not None else 0
    return _sum(asked, _times(waiting.besides, fetches), _times(waiting.look, fetches * looks))


def _deliveries_a_day(workload: Workload, model: RequestModel) -> Decimal:
    load = workload.polls
    return load.calls_a_day * load.changed * load.deliveries if model.polls is not None else Decimal(0)


def _handled(model: RequestModel, items: Decimal, batch: int) -> Requests:
    return _sum(_times(model.item, items), _times(model.batch, items / batch))


def _called(model: RequestModel, workload: Workload) -> Requests:
    load = workload.polls
    if model.polls is None or not load.calls_a_day:
        return {}
    calls = DAYS * load.calls_a_day
    return _sum(
        _times(model.polls.unchanged, calls * (1 - load.changed)),
        _times(model.polls.changed, calls * load.changed),
        _times(model.polls.minute, workload.workers * MINUTES),
    )


def _times(requests: Requests, number: Decimal) -> Requests:
    return {name: count * number for name, count in requests.items()}


def _sum(*several: Requests) -> Requests:
    total: dict[str, Decimal] = {}
    for requests in several:
        for name, count in requests.items():
            total[name] = total.get(name, Decimal(0)) + count
    return total
