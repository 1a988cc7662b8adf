"""The live view at work: listens, glances at the store, and redraws a few times a second."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from bide.cli.payloads import compact
from bide.cli.view import ChangeLine, PollLine, SubscriberLine, View, shown_polls
from bide.core.durations import to_ms
from bide.errors import ProviderError
from bide.provider import DELIVERIES, EventRow

if TYPE_CHECKING:
    from rich.console import Console

    from bide.app import App

_FRAMES_A_SECOND = 4
_GLANCE_EVERY = 4
"""Frames between two glances at the store."""
_GLANCED_POLLS = 60
_GLANCED_EVENTS = 40


def view_of(app: App) -> View:
    """A view of an app that nothing was folded into yet."""
    view = View(app.location, app.clock.utc_ms())
    for poll in app.declarations.polls.values():
        if poll.active:
            view.polls[poll.name] = PollLine(poll.name, to_ms(poll.every))
    for subscriber in app.declarations.subscribers.values():
        kind = type(subscriber.target).__name__.lower()
        view.subscribers[subscriber.name] = SubscriberLine(subscriber.name, kind)
    return view


@contextlib.asynccontextmanager
async def showing(app: App, view: View, console: Console, *, footer: str) -> AsyncIterator[None]:
    """Draw ``view`` on ``console`` while the block runs; its last frame stays there."""
    from rich.live import Live

    from bide.cli.live import draw

    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def redraw() -> None:
            now, height = app.clock.utc_ms(), console.height - 1
            live.update(draw(view, now, height=height, width=console.width, footer=footer), refresh=True)

        async def keep_drawing() -> None:
            frame = 0
            while True:
                if frame % _GLANCE_EVERY == 0:
                    with contextlib.suppress(ProviderError):  # the engine says so, and the view shows it
                        await glance(app, view)
                frame += 1
                redraw()
                await app.clock.sleep(1 / _FRAMES_A_SECOND)

        drawing = asyncio.ensure_future(keep_drawing())
        try:
            yield
        finally:
            drawing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await drawing
            redraw()


async def glance(app: App, view: View) -> None:
    """Read from the store what records do not say: due instants, payloads, what waits, also of other processes."""
    names = [line.name for line in shown_polls(view, _GLANCED_POLLS)]
    for row in await app.provider.poll_rows(names):
        line = view.polls[row.name]
        line.paused = row.paused
        line.next_due = max(row.due_at, row.not_before_at or 0)
        line.changed_at = row.changed_at
    view.changes = change_lines(await app.provider.events(limit=_GLANCED_EVENTS, newest=True))
    counts = [one for one in await app.provider.counts() if one.queue == DELIVERIES]
    view.waiting = sum(one.ready + one.running for one in counts)


def change_lines(rows: list[EventRow]) -> tuple[ChangeLine, ...]:
    """Events with what each field was before, as far as that event is among them."""
    payloads = {row.id: row.payload for row in rows}
    return tuple(
        ChangeLine(
            row.seq,
            row.created_at,
            row.name,
            row.poll,
            compact(row.payload, payloads.get(row.previous_id or "")),
        )
        for row in rows
    )
