"""Draws a :class:`bide.cli.view.View` for a terminal of a given height: a pure function of value and instant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from bide.cli.instants import relative, span
from bide.cli.outside import safe_line
from bide.cli.view import ChangeLine, PollLine, SubscriberLine, View, shown_polls, told_tasks

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
_GAP = 2
"""Blank columns between two of a table."""


@dataclass(frozen=True, slots=True)
class _Column:
    """``width`` 0: what is left. ``rank`` 0: always shown; the greatest is the first to go."""

    heading: str
    width: int
    right: bool = False
    rank: int = 0


_POLL_COLUMNS = (
    _Column("poll", 0),
    _Column("every", 6, right=True, rank=3),
    _Column("answer", 12, rank=1),
    _Column("ago", 6, right=True, rank=4),
    _Column("calls", 6, right=True, rank=6),
    _Column("changes", 7, right=True, rank=5),
    _Column("next", 9, right=True, rank=2),
)
_SUBSCRIBER_COLUMNS = (
    _Column("subscriber", 0),
    _Column("kind", 8, rank=4),
    _Column("done", 6, right=True, rank=2),
    _Column("retried", 7, right=True, rank=3),
    _Column("dead", 5, right=True, rank=1),
    _Column("latest", 22, rank=5),
)


def draw(
    view: View, now: int, *, height: int = 24, width: int = 80, footer: str = "Ctrl-C stops"
) -> RenderableType:
    """The whole view in at most ``height`` lines of ``width`` columns; columns that find no room are left out."""
    room = max(3, height - _FRAME)
    subscribers = min(len(view.subscribers), max(1, min(_MOST_SUBSCRIBERS, room // 3)))
    polls = min(len(view.polls), max(1, (room - subscribers) * 3 // 5))
    changes = max(1, room - subscribers - polls)
    hidden = len(view.polls) - polls
    title = f"polls ({hidden} more not shown)" if hidden else "polls"
    return Group(
        _head(view, now),
        _rule(title),
        _polls(shown_polls(view, polls), now, width),
        _rule("changes"),
        _changes(view.changes[-changes:], now),
        _rule(f"deliveries ({view.waiting} wait)" if view.waiting else "deliveries"),
        _subscribers(list(view.subscribers.values())[:subscribers], now, width),
        _totals(view),
        _foot(view, footer),
    )


def _head(view: View, now: int) -> RenderableType:
    head = Table.grid(expand=True)
    head.add_column(no_wrap=True)
    head.add_column(no_wrap=True, overflow="ellipsis", justify="right", ratio=1)
    state = Text.assemble(("bide ", "bold"), (view.state, "green"), f" {span(now - view.started_at)}")
    head.add_row(state, Text(safe_line(view.location), "dim", overflow="ellipsis"))
    return head


def _rule(title: str) -> Rule:
    return Rule(f"[bold]{title}[/]", align="left", style="dim", characters="─")


def _fitting(columns: Sequence[_Column], names: Sequence[str], width: int) -> list[_Column]:
    """The columns that leave room for ``names`` (up to 24 characters of them); the most dispensable go first."""
    wanted = min(24, max(map(len, names)))
    kept = list(columns)
    for column in sorted((column for column in columns if column.rank), key=lambda column: -column.rank):
        if width - sum(column.width + _GAP for column in kept) >= wanted:
            break
        kept.remove(column)
    return kept


def _table(columns: Sequence[_Column]) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(
            column.heading,
            width=column.width or None,
            ratio=None if column.width else 1,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    return table


def _polls(lines: list[PollLine], now: int, width: int) -> RenderableType:
    if not lines:
        return Text("no poll is active: nobody subscribes to an event of one", "dim")
    columns = _fitting(_POLL_COLUMNS, [line.name for line in lines], width)
    table = _table(columns)
    for line in lines:
        ago = span(now - line.answered_at) if line.answered_at is not None else ""
        name = Text(safe_line(line.name))
        if line.quiet:
            name.append(" quiet", "yellow")
        cells: dict[str, Text] = {
            "poll": name,
            "every": Text(span(line.every_ms)),
            "answer": Text(line.outcome or "-", _STYLES.get(line.outcome, "")),
            "ago": Text(ago, "dim"),
            "calls": Text(str(line.calls)),
            "changes": Text(str(line.changes)),
            "next": _next(line, now),
        }
        table.add_row(*(cells[column.heading] for column in columns))
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
        table.add_row(span(now - line.at), Text(safe_line(line.poll)), Text(safe_line(line.payload), "cyan"))
    return table


def _subscribers(lines: list[SubscriberLine], now: int, width: int) -> RenderableType:
    if not lines:
        return Text("nobody subscribes", "dim")
    columns = _fitting(_SUBSCRIBER_COLUMNS, [line.name for line in lines], width)
    table = _table(columns)
    for line in lines:
        latest = Text(line.latest)
        if line.latest_at is not None:
            latest.append(f" {relative(line.latest_at, now)}", "dim")
        cells: dict[str, Text] = {
            "subscriber": Text(safe_line(line.name)),
            "kind": Text(line.kind),
            "done": Text(str(line.succeeded)),
            "retried": Text(str(line.retried)),
            "dead": Text(str(line.dead), "bold red" if line.dead else ""),
            "latest": latest,
        }
        table.add_row(*(cells[column.heading] for column in columns))
    return table


def _totals(view: View) -> Text:
    totals = view.totals
    answers = f"{totals.changed} changed, {totals.not_modified} not modified, {totals.unchanged} unchanged"
    counted = f"{totals.answered + totals.failed} polled: {answers}, {totals.failed} failed"
    tasks = told_tasks(view)
    told = [tasks] if tasks and not view.polls else [counted, tasks] if tasks else [counted]
    return Text("; ".join(told), "dim", no_wrap=True, overflow="ellipsis")


def _foot(view: View, footer: str) -> Text:
    trouble = _trouble(view)
    if trouble:
        return Text(safe_line(trouble), "bold red", no_wrap=True, overflow="ellipsis")
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
