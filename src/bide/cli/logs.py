"""Structured logs: telemetry records become lines, failures on their edges only (:mod:`bide.cli.episodes`).

Levels: what changed, was delivered or recovered is ``info``; what began to fail is ``warning``; every single
attempt is ``debug``. No line holds a payload, a header or a secret, since no record does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any, assert_never

from bide.cli.episodes import Began, Episodes, Lasts, Spread
from bide.cli.instants import rfc3339, span
from bide.cli.lines import Line, lasting, recovered
from bide.cli.outside import safe_json, safe_line
from bide.cli.printing import counted
from bide.cli.settlements import Settlements
from bide.clock import Clock
from bide.telemetry import (
    CallAttempted,
    DeliverySettled,
    EngineState,
    PollAnswered,
    PollFailed,
    PollQuiet,
    ProviderDown,
    ProviderUp,
    QueueCounted,
    QueuePolled,
    Record,
    SubscriptionEnded,
    TaskSettled,
)


class Lines:
    """Turns records into lines. ``now`` is in seconds on a clock that does not step."""

    def __init__(self) -> None:
        self._polls = Episodes()
        self._settlements = Settlements()

    def of(self, record: Record, now: float) -> list[Line]:
        """The lines that ``record`` is worth, most often one."""
        match record:
            case CallAttempted():
                return [_attempt(record)]
            case PollAnswered():
                return [*self._answered(record, now)]
            case PollFailed():
                return [*self._failed(record, now)]
            case PollQuiet():
                message = f"{record.poll} has not changed for {span(record.quiet_for_ms)}"
                fields = {"poll": record.poll, "quiet_for_ms": round(record.quiet_for_ms)}
                return [Line(logging.INFO, "poll.quiet", message, fields)]
            case DeliverySettled() | TaskSettled():
                return [*self._settlements.of(record, now)]
            case SubscriptionEnded():
                message = f"subscription {record.subscriber} ended: {record.reason}"
                fields = {"subscriber": record.subscriber, "reason": record.reason}
                return [Line(logging.WARNING, "subscription.ended", message, fields)]
            case ProviderDown() | ProviderUp():
                return [_store(record)]
            case QueuePolled() | QueueCounted():
                return []
            case EngineState():
                detail = f": {record.detail}" if record.detail else ""
                return [Line(logging.INFO, f"engine.{record.state}", f"{record.state}{detail}")]
        assert_never(record)

    def _answered(self, record: PollAnswered, now: float) -> Iterator[Line]:
        ended = self._polls.recovered(_connection(record.poll), record.poll, now)
        if ended is not None:
            yield recovered("poll", _connection(record.poll), ended)
        fields: dict[str, Any] = {
            "poll": record.poll,
            "outcome": record.outcome,
            "lag_ms": record.lag_ms,
            "elapsed_ms": round(record.elapsed_ms, 1),
        }
        if record.outcome != "changed":
            yield Line(logging.DEBUG, "poll.answered", f"{record.poll} {record.outcome}", fields)
            return
        fields |= {"type": record.event, "event_id": record.event_id, "deliveries": record.deliveries}
        message = f"{record.poll} changed: {record.event} with {counted(record.deliveries, 'delivery')}"
        yield Line(logging.INFO, "poll.changed", message, fields)

    def _failed(self, record: PollFailed, now: float) -> Iterator[Line]:
        connection = _connection(record.poll)
        fields: dict[str, Any] = {
            "poll": record.poll,
            "connection": connection,
            "kind": record.kind,
            "error": record.error,
            "failures": record.failures,
            "retry_in_ms": round(record.retry_in_ms),
        }
        match self._polls.failed(connection, record.kind, record.poll, now):
            case None:
                yield Line(logging.DEBUG, "poll.failed", f"{record.poll} failed: {record.error}", fields)
            case Began():
                message = f"{record.poll} fails: {record.error}; next try in {span(record.retry_in_ms)}"
                yield Line(logging.WARNING, "poll.failing", message, fields)
            case Spread() as spread:
                polls = (
                    f"{counted(spread.more, 'more poll')} of {connection} failing, {spread.failing} in all"
                )
                fields |= {"more": spread.more, "failing": spread.failing}
                yield Line(logging.WARNING, "poll.failing", f"{polls}: {record.error}", fields)
            case Lasts() as lasts:
                yield lasting("poll", connection, lasts, record.error)


def _connection(poll: str) -> str:
    return poll.partition(".")[0]


def _attempt(record: CallAttempted) -> Line:
    fields = {
        "connection": record.connection,
        "operation": record.operation,
        "attempt": record.attempt,
        "outcome": record.outcome,
        "status": record.status,
        "elapsed_ms": round(record.elapsed_ms, 1),
    }
    status = f" {record.status}" if record.status is not None else ""
    return Line(logging.DEBUG, "call", f"{record.method} {record.url} {record.outcome}{status}", fields)


def _store(record: ProviderDown | ProviderUp) -> Line:
    fields: dict[str, Any] = {"loop": record.loop, "failures": record.failures}
    match record:
        case ProviderDown():
            message = f"the store fails ({record.loop}): {record.error}"
            return Line(logging.WARNING, "store.down", message, fields | {"error": record.error})
        case ProviderUp():
            message = f"the store answers again ({record.loop}) after {span(record.down_ms)}"
            return Line(logging.INFO, "store.up", message, fields | {"down_ms": round(record.down_ms)})
    assert_never(record)


class LogListener:
    """A telemetry listener that writes lines through the logger ``"bide"``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines = Lines()
        self._logger = logging.getLogger("bide")

    def __call__(self, record: Record) -> None:
        for line in self._lines.of(record, self._clock.monotonic()):
            if self._logger.isEnabledFor(line.level):
                extra = {"bide_event": line.event, "bide_fields": line.fields}
                self._logger.log(line.level, line.message, extra=extra)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, message, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        shown: dict[str, Any] = {
            "time": rfc3339(round(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "bide_event", "log"),
            "message": record.getMessage(),
        }
        for name, value in getattr(record, "bide_fields", {}).items():
            shown.setdefault(name, value)
        if record.exc_info:
            shown["exception"] = self.formatException(record.exc_info)
        return safe_json(json.dumps(shown, ensure_ascii=False, default=str))


class PlainFormatter(logging.Formatter):
    """A line for people: the time of day, a mark where something is wrong, and the text."""

    def format(self, record: logging.LogRecord) -> str:
        mark = "! " if record.levelno >= logging.WARNING else ""
        return f"{self.formatTime(record, '%H:%M:%S')}  {mark}{safe_line(record.getMessage())}"


def write_logs(level: str, formatter: logging.Formatter) -> None:
    """Send every logger's lines at ``level`` and above to standard error through ``formatter``."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(max(logging.INFO, root.level))  # says which selector it uses
