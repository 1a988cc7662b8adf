"""What is logged of what happened: one line for each edge, fields for machines, no secrets."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from bide.cli.lines import Line
from bide.cli.logs import JsonFormatter, Lines, LogListener, PlainFormatter
from bide.telemetry import (
    CallAttempted,
    DeliverySettled,
    EngineState,
    PollAnswered,
    PollFailed,
    PollQuiet,
    ProviderDown,
    ProviderUp,
    QueuePolled,
    Record,
    SubscriptionEnded,
    TaskSettled,
)
from bide.testing import VirtualClock

CALL = CallAttempted("eu", "price", "GET", "http://127.0.0.1:9000/price", 1, "answered", 200, 2.34)
CHANGED = PollAnswered("eu.price", "changed", 3, 2.5, 0, "shop.PriceChanged", "evt_1", 2)
UNCHANGED = PollAnswered("eu.price", "unchanged", 3, 2.5)
FAILED = PollFailed("eu.price", "refused", "connection refused", 1, 60_000.0)


def said(lines: Lines, record: Record, now: float = 0.0) -> list[tuple[str, str]]:
    return [(logging.getLevelName(line.level).lower(), line.event) for line in lines.of(record, now)]


@pytest.mark.parametrize(
    ("record", "level", "event"),
    [
        (CALL, "debug", "call"),
        (CHANGED, "info", "poll.changed"),
        (UNCHANGED, "debug", "poll.answered"),
        (PollAnswered("eu.price", "not_modified", 0, 1.0), "debug", "poll.answered"),
        (FAILED, "warning", "poll.failing"),
        (PollQuiet("eu.price", 86_400_000.0), "info", "poll.quiet"),
        (DeliverySettled("audit", "evt_1.audit", "succeeded", 1, 3.0), "info", "delivery.succeeded"),
        (
            DeliverySettled("audit", "evt_1.audit", "retried", 1, 3.0, "503", 1000.0),
            "warning",
            "delivery.failing",
        ),
        (DeliverySettled("audit", "evt_1.audit", "lost", 1, 3.0), "warning", "delivery.failing"),
        (DeliverySettled("audit", "evt_1.audit", "dead", 9, 3.0, "expired"), "warning", "delivery.dead"),
        (DeliverySettled("audit", "evt_1.audit", "given_back", 1, 3.0), "debug", "delivery.given_back"),
        (TaskSettled("send", "mail", "1", "succeeded", 1, 3.0), "info", "task.succeeded"),
        (TaskSettled("send", "mail", "1", "retried", 1, 3.0, "boom", 1000.0), "warning", "task.failing"),
        (TaskSettled("send", "mail", "1", "lost", 1, 3.0), "warning", "task.failing"),
        (TaskSettled("send", "mail", "1", "dead", 5, 3.0, "boom"), "warning", "task.dead"),
        (TaskSettled("send", "mail", "1", "given_back", 1, 3.0), "debug", "task.given_back"),
        (SubscriptionEnded("audit", "410 Gone"), "warning", "subscription.ended"),
        (ProviderDown("claims", "disk full", 1), "warning", "store.down"),
        (ProviderUp("claims", 3, 5000.0), "info", "store.up"),
        (EngineState("running"), "info", "engine.running"),
    ],
)
def test_each_record_has_its_level_and_word(record: Record, level: str, event: str) -> None:
    assert said(Lines(), record) == [(level, event)]


def test_a_change_names_poll_event_and_deliveries() -> None:
    (line,) = Lines().of(CHANGED, 0.0)
    assert line.message == "eu.price changed: shop.PriceChanged with 2 deliveries"
    assert line.fields["event_id"] == "evt_1"


def test_polls_of_a_queue_are_no_lines_since_metrics_count_them() -> None:
    assert said(Lines(), QueuePolled("mail", "empty", 0, 5.0)) == []


def test_a_task_that_always_fails_is_told_on_the_edge_and_its_items_by_id() -> None:
    lines = Lines()
    for attempt in range(1, 101):
        told = lines.of(
            TaskSettled("send", "mail", f"item-{attempt}", "retried", 1, 3.0, "boom", 1e3), attempt
        )
        assert [line.level for line in told] == [logging.WARNING if attempt == 1 else logging.DEBUG]
        assert told[0].fields["item"] == f"item-{attempt}"
    ended, done = lines.of(TaskSettled("send", "mail", "item-1", "succeeded", 2, 3.0), 200.0)
    assert (ended.event, ended.message) == ("task.recovered", "send works again after 3m19s and 100 failures")
    assert (done.event, done.message) == ("task.succeeded", "send is done")


def test_failures_of_a_task_and_of_a_subscriber_of_one_name_are_kept_apart() -> None:
    lines = Lines()
    assert said(lines, TaskSettled("audit", "mail", "1", "retried", 1, 3.0, "boom", 1e3)) == [
        ("warning", "task.failing")
    ]
    assert said(lines, DeliverySettled("audit", "evt_1.audit", "succeeded", 1, 3.0)) == [
        ("info", "delivery.succeeded")
    ]


def test_failures_are_told_on_their_edges() -> None:
    lines = Lines()
    assert said(lines, FAILED, 0.0) == [("warning", "poll.failing")]
    assert said(lines, FAILED, 60.0) == [("debug", "poll.failed")]
    recovered, answered = lines.of(UNCHANGED, 120.0)
    assert (recovered.level, recovered.event) == (logging.INFO, "poll.recovered")
    assert recovered.message == "eu works again after 2m and 2 failures"
    assert recovered.fields["seconds"] == 120.0
    assert answered.level == logging.DEBUG


def test_an_outage_of_fifty_sources_is_about_fifty_warnings() -> None:
    lines = Lines()
    warnings = [
        line
        for n in range(10_000)
        for line in lines.of(PollFailed(f"c{n % 50}.p{n}", "refused", "refused", 1, 60_000.0), n * 0.006)
        if line.level >= logging.INFO
    ]
    assert len(warnings) == 50


def test_a_lasting_outage_is_summed_up_every_hour() -> None:
    lines = Lines()
    loud = [
        line
        for minute in range(150)
        for line in lines.of(FAILED, minute * 60.0)
        if line.level >= logging.INFO
    ]
    assert [line.event for line in loud] == ["poll.failing", "poll.still_failing", "poll.still_failing"]
    assert loud[1].message == "eu has been failing for 1h, 61 times: connection refused"


def test_a_late_joiner_is_told_with_how_many_fail() -> None:
    lines = Lines()
    lines.of(FAILED, 0.0)
    (line,) = lines.of(PollFailed("eu.stock", "refused", "connection refused", 1, 60_000.0), 100.0)
    assert line.message == "1 more poll of eu failing, 2 in all: connection refused"
    assert line.level == logging.WARNING


def test_deliveries_that_fail_and_recover() -> None:
    lines = Lines()
    retried = DeliverySettled("audit", "evt_1.audit", "retried", 1, 3.0, "503 Service Unavailable", 1000.0)
    assert said(lines, retried, 0.0) == [("warning", "delivery.failing")]
    assert said(lines, retried, 5.0) == [("debug", "delivery.failed")]
    assert said(lines, retried, 3600.0) == [("warning", "delivery.still_failing")]
    succeeded = DeliverySettled("audit", "evt_1.audit", "succeeded", 3, 3.0)
    assert said(lines, succeeded, 3601.0) == [("info", "delivery.recovered"), ("info", "delivery.succeeded")]


def test_many_dead_deliveries_are_one_warning_a_minute() -> None:
    lines = Lines()
    loud = [
        line
        for n in range(1200)
        for line in lines.of(DeliverySettled("audit", f"evt_{n}.audit", "dead", 1, 1.0, "expired"), n / 10)
        if line.level >= logging.WARNING
    ]
    assert len(loud) == 2


def written(line: Line, formatter: logging.Formatter) -> str:
    record = logging.LogRecord("bide", line.level, "", 0, line.message, None, None)
    record.bide_event, record.bide_fields = line.event, line.fields
    return formatter.format(record)


def test_a_json_line_has_its_fields_beside_time_level_and_event() -> None:
    (line,) = Lines().of(CALL, 0.0)
    shown = json.loads(written(line, JsonFormatter()))
    assert shown.pop("time").endswith("Z")
    assert shown == {
        "level": "debug",
        "logger": "bide",
        "event": "call",
        "message": "GET http://127.0.0.1:9000/price answered 200",
        "connection": "eu",
        "operation": "price",
        "attempt": 1,
        "outcome": "answered",
        "status": 200,
        "elapsed_ms": 2.3,
    }


def test_a_json_line_stays_one_line() -> None:
    line = Line(logging.WARNING, "poll.failing", "two\nlines", {"error": "a\nb", "time": "not the time"})
    text = written(line, JsonFormatter())
    assert "\n" not in text
    assert json.loads(text)["time"] != "not the time"


def test_other_loggers_are_json_too_with_their_exceptions() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        record = logging.LogRecord("my.shop", logging.ERROR, "", 0, "went %s", ("wrong",), sys.exc_info())
    shown = json.loads(JsonFormatter().format(record))
    assert shown["message"] == "went wrong"
    assert shown["event"] == "log"
    assert "ValueError: no" in shown["exception"]


def test_a_plain_line_marks_what_is_wrong() -> None:
    lines = Lines()
    (wrong,) = lines.of(FAILED, 0.0)
    (right,) = lines.of(EngineState("stopping", "signal"), 0.0)
    assert written(wrong, PlainFormatter())[8:] == "  ! eu.price fails: connection refused; next try in 1m"
    assert written(right, PlainFormatter())[8:] == "  stopping: signal"


def test_the_listener_writes_what_its_level_lets_through(caplog: pytest.LogCaptureFixture) -> None:
    listener = LogListener(VirtualClock())
    with caplog.at_level(logging.INFO, logger="bide"):
        for record in (CALL, CHANGED, UNCHANGED, FAILED, FAILED):
            listener(record)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
