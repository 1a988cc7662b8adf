"""The ``tasks`` block: functions that work items are handled by, and when they run by themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from bide.config.operations import function_at
from bide.config.queues import refuse_deliveries
from bide.config.references import reference_to
from bide.config.report import Place
from bide.config.shape import (
    Table,
    check_name,
    duration,
    kind_of,
    named_entries,
    read_table,
    step_of,
    text,
    whole,
)
from bide.core.arguments import Signature, read_signature
from bide.core.pacing import DELIVERY_BACKOFF, Backoff
from bide.core.periodic import Rule, cron_rule, every_rule, zone_named
from bide.core.work import DEFAULT_QUEUE, MOST_PRIORITY, TaskDeclaration, is_priority
from bide.errors import SettingError
from bide.provider import DELIVERIES

T = TypeVar("T")

TASK_KEYS = (
    *("function", "queue", "max_attempts", "lock_timeout", "within", "priority", "max_concurrent", "timeout"),
    *("retry", "max_give_backs", "keep_result", "every", "cron", "timezone"),
)
RETRY_KEYS = ("initial", "maximum", "factor")
LEAST_EVERY = timedelta(seconds=1)


def read_tasks(root: Table, folder: Path) -> Iterator[TaskDeclaration]:
    """Every task of the ``tasks`` block that could be read whole."""
    coded = Table(root.place.coded("task.key_invalid", "task.value_invalid"), root.entries)
    for name, place, value in named_entries(coded, "tasks", "a task"):
        table = read_table(place, value, TASK_KEYS)
        task = _read_task(table, name, folder) if table is not None else None
        if task is not None:
            yield task


def _read_task(table: Table, name: str, folder: Path) -> TaskDeclaration | None:
    function = table.need("function", function_at(folder), 'function = "my.module:name"')
    function = getattr(function, "function", function) if _is_task(function) else function
    signature = _signature(table.place.at("function"), name, function) if function is not None else None
    rule = _read_rule(table, name, signature)
    keep_result = table.find("keep_result", duration)
    if keep_result is not None and signature is not None and (flaw := signature.results.flaw()) is not None:
        table.place.at("keep_result").refuse(f"what the function returns {flaw.message}", flaw.suggestion)
    options: dict[str, Any] = {
        "queue": table.read("queue", _queue, DEFAULT_QUEUE),
        "max_attempts": table.read("max_attempts", whole(1), 5),
        "lock_timeout": table.find("lock_timeout", duration),
        "within": table.find("within", duration),
        "priority": table.read("priority", _priority, 0),
        "max_concurrent": table.find("max_concurrent", whole(1)),
        "timeout": table.find("timeout", duration),
        "retry": table.read("retry", _backoff, DELIVERY_BACKOFF),
        "max_give_backs": table.read("max_give_backs", whole(0), 100),
    }
    if function is None or signature is None:
        return None
    value = table.entries["function"]
    reference = value if isinstance(value, str) else reference_to(function)
    return TaskDeclaration(
        name, function, reference, signature, keep_result=keep_result, rule=rule, **options
    )


def _is_task(function: object) -> bool:
    """Whether it is a task itself, as ``@app.task`` leaves one in its module: its function is meant then."""
    return inspect.isfunction(getattr(function, "function", None)) and hasattr(function, "submit")


def _signature(place: Place, name: str, function: Callable[..., Any]) -> Signature | None:
    signature, flaws = read_signature(name, function)
    for flaw in flaws:
        place.refuse(flaw.message, flaw.suggestion)
    return signature


def _read_rule(table: Table, name: str, signature: Signature | None) -> Rule | None:
    """When the task runs by itself, if it does."""
    every = table.find("every", _interval)
    cron = table.find("cron", text)
    timezone = table.read("timezone", text, "UTC")
    if "every" in table and "cron" in table:
        table.place.refuse_key("has every and cron, and one of them says when it runs", "Remove one of them.")
    if "timezone" in table and "cron" not in table:
        table.place.at("timezone").refuse_key(
            "is for cron, and there is none", "Remove timezone, or add cron."
        )
    way = next((key for key in ("every", "cron") if key in table), None)
    if way is None:
        return None
    if signature is not None and signature.required:
        needed = ", ".join(signature.required)
        table.place.at(way).refuse(
            f"nobody gives the function its arguments when it runs by itself, and it needs {needed}",
            f"Give {needed} a default, or remove {way}.",
        )
    if way == "every":
        return every_rule(name, every) if every is not None else None
    zone = _checked(table.place, zone_named, timezone)
    rule = _checked(table.place, cron_rule, cron, "UTC") if cron is not None else None
    return cron_rule(rule.expression, timezone) if rule is not None and zone is not None else None


def _checked(place: Place, make: Callable[..., T], *arguments: Any) -> T | None:
    """What ``make`` makes; None where it refuses one of its settings, which is reported there."""
    try:
        return make(*arguments)
    except SettingError as error:
        place.at(error.setting).refuse(error.reason.partition("; ")[0], step_of(error))
        return None


def _interval(place: Place, value: object) -> timedelta | None:
    found = duration(place, value)
    if found is not None and found < LEAST_EVERY:
        place.refuse("is shorter than a second", 'Write "1s" or longer.')
        return None
    return found


def _queue(place: Place, value: object) -> str | None:
    name = text(place, value)
    if name is None:
        return None
    check_name(place, name, "a queue")
    if name == DELIVERIES:
        refuse_deliveries(place.refuse)
    return name


def _priority(place: Place, value: object) -> int | None:
    if isinstance(value, int) and is_priority(value):
        return value
    place.refuse(
        f"must be a whole number up to {MOST_PRIORITY}, not {kind_of(value)}",
        "Write 10 for urgent, -10 for what may wait.",
    )
    return None


def _backoff(place: Place, value: object) -> Backoff | None:
    """A back-off, or its table: what is left out is as in the default."""
    if isinstance(value, Backoff):
        return value
    if not isinstance(value, Mapping):
        place.refuse(
            f"must be a table, not {kind_of(value)}", 'Write { initial = "1s", maximum = "1h", factor = 2 }.'
        )
        return None
    table = read_table(place, value, RETRY_KEYS)
    if table is None:
        return None
    initial = table.read("initial", duration, DELIVERY_BACKOFF.initial)
    maximum = table.read("maximum", duration, max(DELIVERY_BACKOFF.maximum, initial))
    factor = table.entries.get("factor", DELIVERY_BACKOFF.factor)
    return _checked(place, Backoff, initial, maximum, factor)
