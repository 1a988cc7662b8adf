"""How a worker runs, settled from every layer: flag over environment over file over code over default.

A layer above replaces single settings. The older ``poll_interval`` stands for the fixed strategy and its interval,
both given by the layer that it is in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bide.config.layers import (
    COUNT,
    DURATION,
    DURATION_OR_ZERO,
    FACTOR,
    NAMES,
    STRATEGY,
    Given,
    Layer,
    Origin,
    Setting,
    environment_layer,
    file_layer,
    flag_layer,
)
from bide.config.options import WorkerRunOptions
from bide.config.report import Place, Report, nearest_or_known
from bide.config.shape import Table
from bide.config.strategy import (
    DEFAULT,
    check_belonging,
    check_bounds,
    check_interval,
    made_in_code,
    modern,
    refuse,
)
from bide.core.pacing import DEFAULT_BACKOFF_MULTIPLIER, PollingStrategy
from bide.errors import DeclarationError
from bide.provider import DELIVERIES

_POLLING = "worker.polling"

SETTINGS = (
    Setting("strategy", STRATEGY, _POLLING, "strategy", "BIDE_POLLING_STRATEGY", "--polling-strategy"),
    Setting("interval", DURATION, _POLLING, "interval", "BIDE_POLLING_INTERVAL", "--polling-interval"),
    Setting(
        "min_interval",
        DURATION,
        _POLLING,
        "min_interval",
        "BIDE_POLLING_MIN_INTERVAL",
        "--polling-min-interval",
    ),
    Setting(
        "max_interval",
        DURATION,
        _POLLING,
        "max_interval",
        "BIDE_POLLING_MAX_INTERVAL",
        "--polling-max-interval",
    ),
    Setting(
        "backoff_multiplier",
        FACTOR,
        _POLLING,
        "backoff_multiplier",
        "BIDE_POLLING_BACKOFF_MULTIPLIER",
        "--polling-backoff-multiplier",
    ),
    Setting("poll_interval", DURATION, "worker", "poll_interval", "BIDE_POLL_INTERVAL", "--poll-interval"),
    Setting("queues", NAMES, "worker", "queues", "BIDE_WORKER_QUEUES", "--queues"),
    Setting("concurrency", COUNT, "worker", "concurrency", "BIDE_WORKER_CONCURRENCY", "--concurrency"),
    Setting("lock_timeout", DURATION, "worker", "lock_timeout", "BIDE_WORKER_LOCK_TIMEOUT", "--lock-timeout"),
    Setting("grace", DURATION_OR_ZERO, "worker", "grace", "BIDE_WORKER_GRACE", "--grace"),
    Setting(
        "min_poll_interval",
        DURATION,
        "runtime",
        "dispatcher_min_poll_interval",
        "BIDE_DISPATCHER_MIN_POLL_INTERVAL",
        "--min-poll-interval",
    ),
    Setting(
        "long_poll_timeout",
        DURATION_OR_ZERO,
        "runtime",
        "dispatcher_long_poll_timeout",
        "BIDE_DISPATCHER_LONG_POLL_TIMEOUT",
        "--long-poll-timeout",
    ),
)
"""Every setting of a worker. A duration's key and variable may end in ``_ms`` and then give milliseconds."""

WORKER_BLOCKS = ("worker", "runtime")
VARIABLE_PREFIXES = ("BIDE_POLL", "BIDE_DISPATCHER_", "BIDE_WORKER_")
"""Variables that begin so are settings of a worker, or slips."""

_DEFAULTS: Layer = {
    name: Given(value, DEFAULT)
    for name, value in {
        "strategy": "adaptive",
        "queues": None,
        "concurrency": 20,
        "lock_timeout": timedelta(seconds=30),
        "grace": timedelta(seconds=30),
        "min_poll_interval": timedelta(milliseconds=100),
        "long_poll_timeout": timedelta(seconds=30),
    }.items()
}


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How one worker runs, and in ``origins``, by the name of each setting, which layer said so.

    - ``strategy``: how long to wait while there is nothing; adaptive from 100 ms to 5 s unless told otherwise.
    - ``queues``: those to fetch from; None is every queue that has a task.
    - ``concurrency`` (20): items handled at a time.
    - ``lock_timeout`` (30 s): of items whose task does not say; ``grace`` (30 s): for handlers at a stop.
    - ``long_poll_timeout`` (30 s): how long a fetch may block; ``min_poll_interval`` (100 ms): the least time between
      two fetches that found nothing.
    """

    strategy: PollingStrategy
    queues: tuple[str, ...] | None
    concurrency: int
    lock_timeout: timedelta
    grace: timedelta
    min_poll_interval: timedelta
    long_poll_timeout: timedelta
    origins: Mapping[str, Origin] = field(compare=False)

    def rows(self) -> Iterator[tuple[str, Any, Origin]]:
        """Each setting's name, its value and where it came from, as people are shown them."""
        strategy = self.strategy
        shown: dict[str, Any] = {"strategy": strategy.kind}
        if strategy.kind == "fixed":
            shown["interval"] = strategy.min_interval
        else:
            shown["min_interval"] = strategy.min_interval
            shown["max_interval"] = strategy.max_interval
            shown["backoff_multiplier"] = strategy.backoff_multiplier
        for name in (
            "queues",
            "concurrency",
            "lock_timeout",
            "grace",
            "min_poll_interval",
            "long_poll_timeout",
        ):
            shown[name] = getattr(self, name)
        for name, value in shown.items():
            yield name, value, self.origins.get(name, DEFAULT)


def worker_settings(
    raw: Mapping[str, object],
    environment: Mapping[str, str],
    *,
    flags: Mapping[str, str | None] | None = None,
    options: WorkerRunOptions | None = None,
    queues: Sequence[str] | None = None,
    concurrency: int | None = None,
    whole: bool = True,
) -> WorkerSettings:
    """What a worker runs with.

    ``raw`` are tables as of ``bide.toml``, of which ``worker`` and ``runtime`` are read; ``flags`` texts by the names
    of settings (None: not given). ``options``, ``queues`` and ``concurrency`` are what code says. Where that is not
    the ``whole`` of it yet, a strategy that cannot be settled is no mistake, and the default one stands for it.
    Raises :class:`~bide.errors.DeclarationError` with every mistake, each at its place, variable or flag.
    """
    report = Report()
    layers = [
        _code_layer(report, options, queues, concurrency),
        file_layer(_root(report, raw), SETTINGS),
        environment_layer(report, environment, SETTINGS, VARIABLE_PREFIXES),
        flag_layer(report, flags or {}, SETTINGS),
    ]
    given = _merged(report, layers)
    made, origin = _made_in_code(options)
    if made is not None and given["strategy"].value == made.kind:
        given = made_in_code(made, origin) | given
    merged = _DEFAULTS | given
    unsettled = report if whole else Report()
    for check in (check_belonging, check_interval, check_bounds):
        check(unsettled, merged)
    if report.mistakes:
        raise DeclarationError(report.mistakes)
    return _settled(merged, PollingStrategy.adaptive() if unsettled.mistakes else None)


def check_worker(root: Table, environment: Mapping[str, str]) -> None:
    """Report what is wrong in the file's blocks and in the environment, as far as it is known without code."""
    report = root.place.report
    layers = [
        file_layer(root, SETTINGS),
        environment_layer(report, environment, SETTINGS, VARIABLE_PREFIXES),
    ]
    merged = _merged(report, layers)
    if "strategy" in merged:
        check_belonging(report, merged)
    if "min_interval" in merged and "max_interval" in merged:
        check_bounds(report, merged)


def check_queues(root: Table, declared: Collection[str]) -> None:
    """Report queues of the file's workers that nobody declares: a worker would refuse them when it starts."""
    given = file_layer(root, SETTINGS).get("queues")
    if given is None or not declared:
        return
    for name in given.value:
        if name not in declared:
            step = nearest_or_known(name, declared) or "Declare it."
            refuse(root.place.report, given.origin, f"no queue is named {name!r}", step)


def _root(report: Report, raw: Mapping[str, object]) -> Table:
    place = Place(report, "", "config.key_invalid", "config.value_invalid")
    return Table(place, {block: raw[block] for block in WORKER_BLOCKS if block in raw})


def _code_layer(
    report: Report,
    options: WorkerRunOptions | None,
    queues: Sequence[str] | None,
    concurrency: int | None,
) -> Layer:
    layer: Layer = {}
    place = Place(report, "app.worker()", "config.key_invalid", "config.value_invalid")
    for name, value, kind in (("queues", queues, NAMES), ("concurrency", concurrency, COUNT)):
        if value is not None and (meant := kind.reading(place.at(name), value)) is not None:
            layer[name] = Given(meant, Origin("code", f"app.worker({name}=…)"))
    for name in ("lock_timeout", "grace", "min_poll_interval", "long_poll_timeout"):
        if (value := getattr(options, name, None)) is not None:
            layer[name] = Given(value, _of_code(name))
    made, origin = _made_in_code(options)
    if made is not None:
        layer["strategy"] = Given(made.kind, origin)
    return layer


def _made_in_code(options: WorkerRunOptions | None) -> tuple[PollingStrategy | None, Origin]:
    """The strategy that code made, in either way of saying so."""
    if options is not None and options.poll_interval is not None:
        return PollingStrategy.fixed(options.poll_interval), _of_code("poll_interval")
    return (options.polling if options is not None else None), _of_code("polling")


def _of_code(name: str) -> Origin:
    return Origin("code", f"WorkerRunOptions({name}=…)")


def _merged(report: Report, layers: Sequence[Layer]) -> Layer:
    """One layer out of several, the lowest first."""
    merged: Layer = {}
    for layer in layers:
        merged |= modern(report, layer)
    if (queues := merged.get("queues")) is not None and DELIVERIES in queues.value:
        refuse(
            report,
            queues.origin,
            f"{DELIVERIES!r} is the queue of deliveries, which `bide run` handles, and no worker does",
            "Leave it out.",
        )
    return merged


def _settled(merged: Layer, strategy: PollingStrategy | None) -> WorkerSettings:
    values = {name: given.value for name, given in merged.items()}
    return WorkerSettings(
        strategy=strategy or _strategy(values),
        queues=values["queues"],
        concurrency=values["concurrency"],
        lock_timeout=values["lock_timeout"],
        grace=values["grace"],
        min_poll_interval=values["min_poll_interval"],
        long_poll_timeout=values["long_poll_timeout"],
        origins={name: given.origin for name, given in merged.items()},
    )


def _strategy(values: Mapping[str, Any]) -> PollingStrategy:
    if values["strategy"] == "fixed":
        return PollingStrategy.fixed(values["interval"])
    return PollingStrategy.adaptive(
        values.get("min_interval"),
        values.get("max_interval"),
        values.get("backoff_multiplier", DEFAULT_BACKOFF_MULTIPLIER),
    )
