"""Draws a :class:`bide.cli.view.View` for a terminal of a given height: a pure function of value and instant."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from bide.cli.instants import relative, span
from bide.cli.view import ChangeLine, PollLine, SubscriberLine, View, shown_polls

_STYLES = {
    "changed": "bold green",
    "unchanged": "dim",
    "not modified": "dim",
    "failed": "bold red",
    "stale": "dim",
}
_FRAME = 9
"""Lines that are always there: head, three rules, two rows of column names, totals, trouble, foot."""
_MOST_SUBSCRIBERS = 6


def draw(view: View, now: int, *, height: int = 24, footer: str = "Ctrl-C stops") -> RenderableType:
    """The whole view in at most ``height`` lines."""
    room = max(3, height - _FRAME)
    subscribers = min(len(view.subscribers), max(1, min(_MOST_SUBSCRIBERS, room // 3)))
    polls = min(len(view.polls), max(1, (room - subscribers) * 3 // 5))
    changes = max(1, room - subscribers - polls)
    hidden = len(view.polls) - polls
    title = f"polls ({hidden} more not shown)" if hidden else "polls"
    return Group(
        _head(view, now),
        _rule(title),
        _polls(shown_polls(view, polls), now),
        _rule("changes"),
        _changes(view.changes[-changes:], now),
        _rule(f"deliveries ({view.waiting} wait)" if view.waiting else "deliveries"),
        _subscribers(list(view.subscribers.values())[:subscribers], now),
        _totals(view),
        _foot(view, footer),
    )


def _head(view: View, now: int) -> RenderableType:
    head = Table.grid(expand=True)
    head.add_column(no_wrap=True)
    head.add_column(no_wrap=True, overflow="ellipsis", justify="right", ratio=1)
    state = Text.assemble(("bide ", "bold"), (view.state, "green"), f" {span(now - view.started_at)}")
    head.add_row(state, Text(view.location, "dim", overflow="ellipsis"))
    return head


def _rule(title: str) -> Rule:
    return Rule(f"[bold]{title}[/]", align="left", style="dim", characters="─")


def _table(*columns: tuple[str, int | None, str]) -> Table:
    """A table of ``(heading, width or None for what is left, justification)``."""
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    for heading, width, justify in columns:
        table.add_column(
            heading,
            width=width,
            ratio=1 if width is None else None,
            justify="right" if justify == "right" else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    return table


def _polls(lines: list[PollLine], now: int) -> RenderableType:
    if not lines:
        return Text("no poll is active: nobody subscribes to an event of one", "dim")
    table = _table(
        ("poll", None, ""),
        ("every", 6, "right"),
        ("answer", 12, ""),
        ("ago", 6, "right"),
        ("calls", 6, "right"),
        ("changes", 7, "right"),
        ("next", 9, "right"),
    )
    for line in lines:
        ago = span(now - line.answered_at) if line.answered_at is not None else ""
        outcome = Text(line.outcome or "-", _STYLES.get(line.outcome, ""))
        name = Text(line.name)
        if line.quiet:
            name.append(" quiet", "yellow")
        counts = (str(line.calls), str(line.changes))
        table.add_row(name, span(line.every_ms), outcome, Text(ago, "dim"), *counts, _next(line, now))
    return table


def _next(line: PollLine, now: int) -> Text:
    if line.paused:
        return Text("paused", "yellow")
    if line.next_due is None or line.next_due <= now:
        return Text("now")
    return Text(relative(line.next_due, now))


def _changes(lines: tuple[ChangeLine, ...], now: int) -> RenderableType:
    if not lines:
        return Text("none yet", "dim")
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(width=8, justify="right", style="dim", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=24)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for line in reversed(lines):
        table.add_row(span(now - line.at), Text(line.poll), Text(line.payload, "cyan"))
    return table


def _subscribers(lines: list[SubscriberLine], now: int) -> RenderableType:
    if not lines:
        return Text("nobody subscribes", "dim")
    table = _table(
        ("subscriber", None, ""),
        ("kind", 8, ""),
        ("done", 6, "right"),
        ("retried", 7, "right"),
        ("dead", 5, "right"),
        ("latest", None, ""),
    )
    for line in lines:
        latest = Text(line.latest)
        if line.latest_at is not None:
            latest.append(f" {relative(line.latest_at, now)}", "dim")
        dead = Text(str(line.dead), "bold red" if line.dead else "")
        table.add_row(Text(line.name), line.kind, str(line.succeeded), str(line.retried), dead, latest)
    return table


def _totals(view: View) -> Text:
    totals = view.totals
    answers = f"{totals.changed} changed, {totals.not_modified} not modified, {totals.unchanged} unchanged"
    counted = f"{totals.answered + totals.failed} polled: {answers}, {totals.failed} failed"
    return Text(counted, "dim", no_wrap=True, overflow="ellipsis")


def _foot(view: View, footer: str) -> Text:
    trouble = _trouble(view)
    if trouble:
        return Text(trouble, "bold red", no_wrap=True, overflow="ellipsis")
    ended = view.state == "stopped"
    return Text("" if ended else footer, "dim", no_wrap=True, overflow="ellipsis")


def _trouble(view: View) -> str | None:
    """What most needs a look: the store, then a poll that fails, then a subscriber that does."""
    if view.trouble:
        return view.trouble
    failing: list[PollLine | SubscriberLine] = [line for line in view.polls.values() if line.error]
    failing += [line for line in view.subscribers.values() if line.error]
    if not failing:
        return None
    others = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
    return f"{failing[0].name}{others}: {failing[0].error}"
