"""The live view: folding records into a value, and drawing the value at the size of a terminal."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from bide.cli.live import draw
from bide.cli.running import summary
from bide.cli.screen import change_lines
from bide.cli.view import ChangeLine, PollLine, SubscriberLine, View, shown_polls
from bide.provider import EventRow
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
    SubscriptionEnded,
    TaskSettled,
)

NOW = 1_767_268_800_000


def new_view(polls: int = 3) -> View:
    view = View("/home/you/bide.db", NOW - 32_000)
    for n in range(polls):
        view.polls[f"eu.p{n}"] = PollLine(f"eu.p{n}", 5000, next_due=NOW + 4000)
    for name, kind in (("audit", "webhook"), ("ledger", "command"), ("reprice", "function")):
        view.subscribers[name] = SubscriberLine(name, kind)
    view.fold(EngineState("running"), NOW)
    return view


def drawn(view: View, *, width: int = 80, height: int = 24) -> str:
    console = Console(record=True, width=width, height=height, file=io.StringIO())
    console.print(draw(view, NOW, height=height - 1, width=width))
    return console.export_text()


def test_answers_are_folded_into_their_poll_and_the_totals() -> None:
    view = new_view()
    view.fold(CallAttempted("eu", "price", "GET", "http://x/", 1, "answered", 200, 1.0), NOW)
    view.fold(PollAnswered("eu.p0", "changed", 0, 1.0, 0, "shop.PriceChanged", "evt_1", 3), NOW)
    view.fold(PollAnswered("eu.p0", "not_modified", 0, 1.0), NOW + 5)
    view.fold(PollAnswered("eu.p1", "unchanged", 0, 1.0), NOW)
    view.fold(PollAnswered("other.poll", "stale", 0, 1.0), NOW)
    line = view.polls["eu.p0"]
    assert (line.calls, line.changes, line.outcome, line.answered_at) == (2, 1, "not modified", NOW + 5)
    totals = view.totals
    assert (totals.calls, totals.changed, totals.not_modified, totals.unchanged, totals.stale) == (
        1,
        1,
        1,
        1,
        1,
    )
    assert totals.answered == 4


def test_a_failing_poll_shows_its_error_until_it_answers() -> None:
    view = new_view()
    view.fold(PollFailed("eu.p1", "refused", "connection refused", 1, 60_000.0), NOW)
    text = drawn(view)
    assert "eu.p1: connection refused" in text
    assert "in 1m" in text
    view.fold(PollAnswered("eu.p1", "unchanged", 0, 1.0), NOW)
    assert "connection refused" not in drawn(view)


def test_deliveries_are_counted_by_subscriber() -> None:
    view = new_view()
    for outcome in ("retried", "succeeded", "given_back", "dead", "lost"):
        view.fold(DeliverySettled("audit", "evt_1.audit", outcome, 1, 2.0), NOW)
    line = view.subscribers["audit"]
    assert (line.succeeded, line.retried, line.dead) == (1, 2, 1)
    assert (view.totals.succeeded, view.totals.given_back, view.totals.lost) == (1, 1, 1)
    assert view.subscribers["ledger"].succeeded == 0


def test_trouble_with_the_store_comes_first_and_goes_again() -> None:
    view = new_view()
    view.fold(PollFailed("eu.p1", "refused", "connection refused", 1, 60_000.0), NOW)
    view.fold(ProviderDown("claims", "disk full", 1), NOW)
    assert "the store fails: disk full" in drawn(view)
    view.fold(ProviderUp("claims", 1, 1.0), NOW)
    assert "disk full" not in drawn(view)
    view.fold(SubscriptionEnded("audit", "410 Gone"), NOW)
    assert "subscription audit ended: 410 Gone" in drawn(view)


def test_a_quiet_or_paused_poll_says_so() -> None:
    view = new_view()
    view.fold(PollQuiet("eu.p0", 1.0), NOW)
    view.polls["eu.p1"].paused = True
    text = drawn(view)
    assert "eu.p0 quiet" in text
    assert "paused" in text


def busy_view(polls: int) -> View:
    view = new_view(polls)
    view.changes = tuple(
        ChangeLine(n, NOW - 1000 * (40 - n), "shop.PriceChanged", "eu.p0", f"price {n}.5 → {n}, symbol OAK")
        for n in range(40)
    )
    view.waiting = 12
    for n in range(min(polls, 5)):
        view.fold(PollFailed(f"eu.p{n}", "http", "503 " + "Service Unavailable " * 20, 1, 60_000.0), NOW)
    return view


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (200, 60), (80, 12), (40, 10)])
@pytest.mark.parametrize("polls", [0, 1, 3, 200])
def test_it_fits_the_terminal(size: tuple[int, int], polls: int) -> None:
    width, height = size
    lines = drawn(busy_view(polls), width=width, height=height).rstrip("\n").split("\n")
    assert len(lines) < max(height, 13)
    assert max(len(line.rstrip()) for line in lines) <= width


def test_at_eighty_columns_everything_worth_seeing_is_there() -> None:
    view = busy_view(3)
    view.fold(PollAnswered("eu.p0", "changed", 0, 1.0, 0, "shop.PriceChanged", "evt_1", 3), NOW - 2000)
    view.fold(DeliverySettled("ledger", "evt_1.ledger", "succeeded", 1, 2.0), NOW - 3000)
    text = drawn(view)
    for part in (
        "running 32s",
        "/home/you/bide.db",
        "eu.p0",
        "changed",
        "price 39.5 → 39, symbol OAK",
        "12 wait",
    ):
        assert part in text
    assert "succeeded 3s ago" in text
    assert "eu.p1 and 1 more: 503 Service" in text


def test_of_many_polls_failing_and_fresh_ones_are_shown_first() -> None:
    view = new_view(200)
    view.fold(PollAnswered("eu.p150", "changed", 0, 1.0), NOW)
    view.fold(PollFailed("eu.p77", "http", "503", 1, 60_000.0), NOW)
    assert [line.name for line in shown_polls(view, 2)] == ["eu.p77", "eu.p150"]
    assert "more not shown" in drawn(view)


def test_few_polls_keep_the_order_they_were_declared_in() -> None:
    view = new_view(3)
    view.fold(PollFailed("eu.p2", "http", "503", 1, 60_000.0), NOW)
    assert [line.name for line in shown_polls(view, 3)] == ["eu.p0", "eu.p1", "eu.p2"]


def test_nothing_declared_is_said() -> None:
    text = drawn(View("memory", NOW))
    assert "no poll is active" in text
    assert "nobody subscribes" in text
    assert "none yet" in text


def test_markup_in_names_and_payloads_is_shown_as_it_is() -> None:
    view = new_view()
    view.changes = (ChangeLine(1, NOW, "shop.PriceChanged", "eu.p0", "note [red]sale[/red]"),)
    assert "note [red]sale[/red]" in drawn(view)


def event_row(seq: int, data: object, previous: str | None = None) -> EventRow:
    return EventRow(
        seq, f"evt_{seq}", "shop.PriceChanged", "eu.price", json.dumps(data), "1:x", NOW, None, previous
    )


def test_a_change_shows_what_it_was_before_where_that_is_known() -> None:
    rows = [
        event_row(1, {"price": 101.25, "symbol": "OAK"}, "evt_0"),
        event_row(2, {"price": 99, "symbol": "OAK"}, "evt_1"),
    ]
    assert [line.payload for line in change_lines(rows)] == [
        "price 101.25, symbol OAK",
        "price 101.25 → 99, symbol OAK",
    ]


@pytest.mark.parametrize("width", [30, 40, 60, 79])
def test_a_narrow_terminal_keeps_names_and_drops_columns(width: int) -> None:
    view = new_view(1)
    view.polls["eu.the-price-of-oak"] = PollLine("eu.the-price-of-oak", 5000)
    view.subscribers["a-ledger-of-prices"] = SubscriberLine("a-ledger-of-prices", "command")
    text = drawn(view, width=width)
    assert "eu.the-price-of-oak" in text
    assert "a-ledger-of-prices" in text


def test_control_characters_in_the_view_are_escaped() -> None:
    view = new_view()
    view.changes = (ChangeLine(1, NOW, "shop.PriceChanged", "eu.p0", "note \x1b[2J\x9b\n"),)
    view.fold(PollFailed("eu.p1", "answer", "odd \x1b]0;title\x07", 1, 60_000.0), NOW)
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(draw(view, NOW))
    assert not set(captured.get()) & set("\x1b\x9b\x07")
    assert "note \\x1b[2J" in captured.get()


def test_tasks_are_counted_and_shown_where_there_are_any() -> None:
    view = View("memory", NOW)
    assert "tasks" not in drawn(view)
    for outcome in ("succeeded", "succeeded", "retried", "dead"):
        view.fold(TaskSettled("send", "mail", "1", outcome, 1, 3.0), NOW)
    view.fold(QueuePolled("mail", "empty", 0, 5.0), NOW)
    assert view.tasks == {"succeeded": 2, "retried": 1, "dead": 1}
    assert "tasks: 2 succeeded, 1 retried, 1 dead" in "\n".join(summary(view, NOW))
    assert "tasks: 2 succeeded, 1 retried, 1 dead" in drawn(view)
    view.polls = new_view().polls
    assert "0 failed; tasks: 2 succeeded" in drawn(view, width=120)
