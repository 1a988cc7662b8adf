"""What ``status`` does: how polls, events and deliveries stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bide.cli.instants import relative, rfc3339, span
from bide.cli.opening import load, nothing_kept, with_open
from bide.cli.outside import safe_line
from bide.cli.printing import counted, print_json, print_text, quoted, step, tell
from bide.clock import SystemClock
from bide.provider import DELIVERIES, PollRow, QueueCounts

if TYPE_CHECKING:
    from bide.app import App
    from bide.planning import PlannedPoll


_COUNTED = 1000
"""Pending deliveries of one subscription are counted up to this."""


def show_status(target: str, *, as_json: bool) -> None:
    """Print how the store of ``target`` stands."""
    app = load(target)
    if app.store_exists():
        standing = with_open(app, _standing)
    else:
        tell(nothing_kept(app))
        standing = _summary(app.location, app.plan_offline().polls)
    if as_json:
        print_json(standing)
    else:
        _show(standing, target)


async def _standing(app: App) -> dict[str, Any]:
    latest = await app.provider.events(newest=True, limit=1)
    counts = await app.provider.counts()
    living = [row for row in await app.provider.subscriptions() if row.ended_at is None]
    names = [
        row.subscription.name for row in living if row.subscription.name not in app.declarations.subscribers
    ]
    return _summary(
        app.location,
        (await app.plan()).polls,
        rows=await app.provider.poll_rows(),
        latest=(latest[0].seq, latest[0].created_at) if latest else None,
        counts=counts,
        subscriptions=len(living),
        undeclared=[(name, await _pending(app, name)) for name in names],
    )


async def _pending(app: App, subscriber: str) -> int:
    return len(await app.provider.items(DELIVERIES, states=["ready"], name=subscriber, limit=_COUNTED))


def _summary(
    location: str,
    polls: Sequence[PlannedPoll],
    *,
    rows: Sequence[PollRow] = (),
    latest: tuple[int, int] | None = None,
    counts: Sequence[QueueCounts] = (),
    subscriptions: int = 0,
    undeclared: Sequence[tuple[str, int]] = (),
) -> dict[str, Any]:
    declared = {poll.name for poll in polls}
    active = {poll.name for poll in polls if poll.active}
    paused = {row.name for row in rows if row.paused and row.name in declared}
    queues = {one.queue: asdict(one) for one in sorted(counts, key=lambda one: one.queue)}
    deliveries = queues.pop(DELIVERIES, asdict(QueueCounts(DELIVERIES)))
    failing = [row for row in rows if row.name in active and row.failures]
    return {
        "store": location,
        "polls": {
            "active": len(active),
            "off": len(declared - active - paused),
            "paused": len(paused),
            "undeclared": sorted({row.name for row in rows} - declared),
            "failing": [{"poll": row.name, "error": row.last_error} for row in failing],
            "last_called_at": rfc3339(max((row.called_at for row in rows if row.called_at), default=None)),
        },
        "events": {
            "latest_seq": latest[0] if latest else None,
            "latest_at": rfc3339(latest[1]) if latest else None,
        },
        "deliveries": {
            "pending": deliveries["ready"],
            "running": deliveries["running"],
            "succeeded": deliveries["done"],
            "dead": deliveries["dead"],
            "oldest_pending_ms": deliveries["oldest_ms"],
        },
        "subscriptions": subscriptions,
        "queues": list(queues.values()),
        "undeclared": [{"subscriber": name, "pending": pending} for name, pending in undeclared],
    }


def _show(standing: dict[str, Any], target: str) -> None:
    now = SystemClock().utc_ms()
    polls, events, deliveries = standing["polls"], standing["events"], standing["deliveries"]
    print_text(f"store       {standing['store']}")
    others = f"{polls['off']} off, {polls['paused']} paused, {len(polls['failing'])} failing"
    print_text(
        f"polls       {polls['active']} active, {others}; last call {_ago(polls['last_called_at'], now)}"
    )
    for failing in polls["failing"][:10]:
        print_text(f"  failing   {failing['poll']}: {safe_line(failing['error'] or '')}")
    if len(polls["failing"]) > 10:
        print_text(f"  and {len(polls['failing']) - 10} more: {step('polls list', target)}")
    if polls["undeclared"]:
        forget = step(f"polls forget {quoted(polls['undeclared'])}", target)
        print_text(
            f"            {counted(len(polls['undeclared']), 'poll')} kept that nobody declares: {forget}"
        )
    if events["latest_seq"] is None:
        print_text("events      none yet")
    else:
        print_text(f"events      {events['latest_seq']} so far; the latest {_ago(events['latest_at'], now)}")
    counts = ", ".join(f"{deliveries[word]} {word}" for word in ("pending", "running", "succeeded", "dead"))
    oldest = deliveries["oldest_pending_ms"]
    waits = f"; the oldest has waited {span(oldest)}" if oldest else ""
    print_text(f"deliveries  {counts}{waits}")
    print_text(f"            to {counted(standing['subscriptions'], 'subscriber')}")
    for queue in standing["queues"]:
        counts = ", ".join(f"{queue[word]} {word}" for word in ("ready", "running", "done", "dead"))
        waits = f"; the oldest has waited {span(queue['oldest_ms'])}" if queue["oldest_ms"] else ""
        print_text(f"work        {counts}{waits}, in queue {safe_line(queue['queue'])}")
    for one in standing["undeclared"]:
        pending = (
            f"{one['pending']}{'+' if one['pending'] == _COUNTED else ''} pending to {one['subscriber']}"
        )
        print_text(
            f"            {pending}, which nobody declares: {step('subscribers prune', target)} ends that"
        )


def _ago(instant: str | None, now: int) -> str:
    if instant is None:
        return "never"
    from datetime import datetime

    return relative(round(datetime.fromisoformat(instant).timestamp() * 1000), now)
