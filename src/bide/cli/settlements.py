"""Lines about attempts that ended: of deliveries, by subscriber, and of tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

from bide.cli.episodes import Episodes, Lasts
from bide.cli.lines import Line, lasting, recovered
from bide.telemetry import DeliverySettled, TaskSettled


@dataclass(frozen=True, slots=True)
class _Wording:
    """How the lines of one kind read; ``{}`` is the subscriber's or the task's name."""

    what: str
    succeeded: str
    given_back: str
    failing: str
    failed: str
    dead: str


_DELIVERY = _Wording(
    what="delivery",
    succeeded="delivered to {}",
    given_back="{} waits for a slot",
    failing="deliveries to {} fail",
    failed="delivery to {} failed",
    dead="a delivery to {} is dead",
)
_TASK = _Wording(
    what="task",
    succeeded="{} is done",
    given_back="{} was given back",
    failing="{} fails",
    failed="{} failed",
    dead="a work item of {} is dead",
)


class Settlements:
    """Turns settled attempts into lines: each success, failures on their edges."""

    def __init__(self) -> None:
        self._failing = {_DELIVERY: Episodes(), _TASK: Episodes()}
        self._dead = {_DELIVERY: Episodes(), _TASK: Episodes()}

    def of(self, record: DeliverySettled | TaskSettled, now: float) -> Iterator[Line]:
        """The lines that ``record`` is worth. ``now`` is in seconds on a clock that does not step."""
        match record:
            case DeliverySettled(subscriber=name):
                wording, fields = _DELIVERY, {"subscriber": name, "delivery": record.delivery}
            case TaskSettled(task=name):
                wording, fields = _TASK, {"task": name, "queue": record.queue, "item": record.item}
            case _:
                assert_never(record)
        counted = {**fields, "attempt": record.attempt, "elapsed_ms": round(record.elapsed_ms, 1)}
        match record.outcome:
            case "succeeded":
                ended = self._failing[wording].recovered(name, name, now)
                if ended is not None:
                    yield recovered(wording.what, name, ended)
                yield Line(logging.INFO, f"{wording.what}.succeeded", wording.succeeded.format(name), counted)
            case "retried" | "lost":
                yield self._retried(record, name, wording, counted, now)
            case "dead":
                yield self._buried(record, name, wording, counted, now)
            case "given_back":
                message = wording.given_back.format(name)
                yield Line(logging.DEBUG, f"{wording.what}.given_back", message, counted)
            case _:
                assert_never(record.outcome)

    def _retried(
        self,
        record: DeliverySettled | TaskSettled,
        name: str,
        wording: _Wording,
        fields: dict[str, Any],
        now: float,
    ) -> Line:
        error = record.error or "its lock was lost"
        fields |= {"error": error, "retry_in_ms": round(record.retry_in_ms or 0)}
        match self._failing[wording].failed(name, wording.what, name, now):
            case Lasts() as lasts:
                return lasting(wording.what, name, lasts, error)
            case None:
                message = f"{wording.failed.format(name)}: {error}"
                return Line(logging.DEBUG, f"{wording.what}.failed", message, fields)
            case _:
                message = f"{wording.failing.format(name)}: {error}"
                return Line(logging.WARNING, f"{wording.what}.failing", message, fields)

    def _buried(
        self,
        record: DeliverySettled | TaskSettled,
        name: str,
        wording: _Wording,
        fields: dict[str, Any],
        now: float,
    ) -> Line:
        fields |= {"error": record.error}
        message = f"{wording.dead.format(name)}: {record.error}"
        told = self._dead[wording].failed(name, "dead", name, now)
        self._dead[wording].recovered(name, name, now)
        level = logging.WARNING if told is not None else logging.DEBUG
        return Line(level, f"{wording.what}.dead", message, fields)
