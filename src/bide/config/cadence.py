"""How often a wait asks: ``every``, or a ``polling`` table as workers have one."""

from __future__ import annotations

from dataclasses import replace

from bide.config.layers import Layer, file_layer
from bide.config.shape import Table, duration
from bide.config.strategy import STRATEGY_OF
from bide.config.worker import SETTINGS
from bide.core.durations import format_duration
from bide.core.pacing import (
    DEFAULT_BACKOFF_MULTIPLIER,
    DEFAULT_MAX_INTERVAL,
    DEFAULT_MIN_INTERVAL,
    PollingStrategy,
)

POLLING = tuple(
    replace(setting, block="polling") for setting in SETTINGS if setting.block == "worker.polling"
)
"""The settings of a ``polling`` table, which are those of ``[worker.polling]``."""


def read_strategy(table: Table) -> PollingStrategy | None:
    """The strategy of ``every`` or ``polling``, by default the adaptive one; None where it is wrong, and reported."""
    every = table.find("every", duration)
    if "every" in table:
        if "polling" in table:
            table.place.at("every").refuse_key(
                "means the fixed strategy, and polling is given too", "Keep one of them."
            )
            _read_polling(table)
            return None
        return PollingStrategy.fixed(every) if every is not None else None
    return _read_polling(table)


def _read_polling(table: Table) -> PollingStrategy | None:
    before = len(table.place.report.mistakes)
    given = file_layer(table, POLLING)
    place = table.place.at("polling")
    if len(table.place.report.mistakes) > before:  # what is left out because it is wrong decides nothing
        return None
    kind = given["strategy"].value if "strategy" in given else "adaptive"
    for name, belongs_to in STRATEGY_OF.items():
        if name in given and belongs_to != kind:
            place.at(given[name].origin.name.rpartition(".")[2]).refuse_key(
                f"belongs to the {belongs_to} strategy, and this one is {kind}",
                f'Leave it out, or write strategy = "{belongs_to}".',
            )
    if kind == "fixed":
        if "interval" not in given:
            place.at("interval").refuse_key(
                "is missing: the fixed strategy needs one", 'Add interval = "5s".'
            )
    else:
        _check_bounds(table, given)
    if len(table.place.report.mistakes) > before:
        return None
    return _made(kind, given)


def _check_bounds(table: Table, given: Layer) -> None:
    least = given["min_interval"].value if "min_interval" in given else DEFAULT_MIN_INTERVAL
    most = given["max_interval"].value if "max_interval" in given else DEFAULT_MAX_INTERVAL
    if most < least:
        table.place.at("polling").at("max_interval").refuse(
            f"{format_duration(most)} is shorter than min_interval, {format_duration(least)}",
            "Make max_interval at least as long.",
        )


def _made(kind: str, given: Layer) -> PollingStrategy:
    values = {name: one.value for name, one in given.items()}
    if kind == "fixed":
        return PollingStrategy.fixed(values["interval"])
    return PollingStrategy.adaptive(
        values.get("min_interval"),
        values.get("max_interval"),
        values.get("backoff_multiplier", DEFAULT_BACKOFF_MULTIPLIER),
    )
