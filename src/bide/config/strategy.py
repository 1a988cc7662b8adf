"""The polling strategy out of layers: which is chosen, and whether what else is given belongs to it."""

from __future__ import annotations

from bide.config.layers import Given, Layer, Origin
from bide.config.report import Place, Report
from bide.core.durations import format_duration
from bide.core.pacing import DEFAULT_MAX_INTERVAL, DEFAULT_MIN_INTERVAL, PollingStrategy

DEFAULT = Origin("default")

STRATEGY_OF = {
    "interval": "fixed",
    "min_interval": "adaptive",
    "max_interval": "adaptive",
    "backoff_multiplier": "adaptive",
}
"""Which strategy each setting belongs to."""


def modern(report: Report, layer: Layer) -> Layer:
    """``layer`` with ``poll_interval`` as the strategy that it means; anything of polling beside it is reported."""
    rest = {name: given for name, given in layer.items() if name != "poll_interval"}
    older = layer.get("poll_interval")
    if older is None:
        return rest
    beside = [rest[name].origin.name for name in ("strategy", *STRATEGY_OF) if name in rest]
    if not beside:
        return rest | {"strategy": Given("fixed", older.origin), "interval": older}
    are = "is" if len(beside) == 1 else "are"
    refuse(
        report,
        older.origin,
        f"means the fixed strategy, and {' and '.join(beside)} {are} given too",
        "Leave it out; the fixed strategy has an interval of its own.",
    )
    return rest


def made_in_code(polling: PollingStrategy, origin: Origin) -> Layer:
    """The settings of a strategy that code made. They hold only where no layer above chose another strategy."""
    if polling.kind == "fixed":
        return {"interval": Given(polling.min_interval, origin)}
    return {
        "min_interval": Given(polling.min_interval, origin),
        "max_interval": Given(polling.max_interval, origin),
        "backoff_multiplier": Given(polling.backoff_multiplier, origin),
    }


def check_belonging(report: Report, merged: Layer) -> None:
    """Report settings of the strategy that is not chosen, each with where both came from."""
    strategy = merged["strategy"]
    for name, kind in STRATEGY_OF.items():
        if name not in merged or kind == strategy.value:
            continue
        given = merged[name].origin
        refuse(
            report,
            given,
            f"{given} belongs to the {kind} strategy, and {strategy.origin} chooses the {strategy.value} one",
            f"Leave it out, or choose the {kind} one with {_choosing(kind, given)}.",
        )


def check_interval(report: Report, merged: Layer) -> None:
    """Report a fixed strategy without an interval."""
    strategy = merged["strategy"]
    if strategy.value != "fixed" or "interval" in merged:
        return
    example = {
        "environment": "BIDE_POLLING_INTERVAL_MS=500",
        "flag": "--polling-interval 500ms",
    }.get(strategy.origin.layer, "interval_ms = 500 under [worker.polling]")
    refuse(
        report,
        strategy.origin,
        "the fixed strategy needs an interval, and no layer gives one",
        f"Add {example}.",
    )


def check_bounds(report: Report, merged: Layer) -> None:
    """Report bounds of the adaptive strategy in the wrong order, each with where it came from."""
    if (strategy := merged.get("strategy")) is not None and strategy.value != "adaptive":
        return
    least = merged.get("min_interval", Given(DEFAULT_MIN_INTERVAL, DEFAULT))
    most = merged.get("max_interval", Given(DEFAULT_MAX_INTERVAL, DEFAULT))
    if most.value >= least.value:
        return
    refuse(
        report,
        most.origin if most.origin.name else least.origin,
        f"max_interval, {format_duration(most.value)} of {most.origin}, is shorter than min_interval, "
        f"{format_duration(least.value)} of {least.origin}",
        "Make max_interval at least as long.",
    )


def refuse(report: Report, origin: Origin, message: str, suggestion: str) -> None:
    """Report a mistake at where a setting came from."""
    Place(report, origin.name, "config.key_invalid", "config.value_invalid").refuse(message, suggestion)


def _choosing(kind: str, origin: Origin) -> str:
    match origin.layer:
        case "environment":
            return f"BIDE_POLLING_STRATEGY={kind}"
        case "flag":
            return f"--polling-strategy {kind}"
        case _:
            return f'strategy = "{kind}" under [worker.polling]'
