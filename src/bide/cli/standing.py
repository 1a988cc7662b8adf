"""What ``status`` does: how polls, events and deliveries stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bide.cli.instants import relative, rfc3339, span
from bide.cli.opening import load, with_open
from bide.cli.printing import counted, print_json, print_text, step, tell
from bide.clock import SystemClock
from bide.provider import DELIVERIES, PollRow, QueueCounts

if TYPE_CHECKING:
    from bide.app import App


def show_status(target: str, *, as_json: bool) -> None:
    """Print how the store of ``target`` stands."""
    app = load(target)
    if app.store_exists():
        standing = with_open(app, _standing)
    else:
        tell(f"nothing is kept yet: the first tick or run makes {app.location}")
        plan = app.plan_offline()
        active = {poll.name for poll in plan.polls if poll.active}
        standing = _summary(app.location, active, len(plan.polls))
    if as_json:
        print_json(standing)
    else:
        _show(standing, target)


async def _standing(app: App) -> dict[str, Any]:
    plan = await app.plan()
    rows = await app.provider.poll_rows()
    latest = await app.provider.events(newest=True, limit=1)
    counts = [one for one in await app.provider.counts() if one.queue == DELIVERIES]
    living = [row for row in await app.provider.subscriptions() if row.ended_at is None]
    active = {poll.name for poll in plan.polls if poll.active}
    event = (latest[0].seq, latest[0].created_at) if latest else None
    return _summary(
        app.location,
        active,
        len(plan.polls),
        rows=rows,
        latest=event,
        counts=counts,
        subscriptions=len(living),
    )


def _summary(
    location: str,
    active: set[str],
    polls: int,
    *,
    rows: Sequence[PollRow] = (),
    latest: tuple[int, int] | None = None,
    counts: Sequence[QueueCounts] = (),
    subscriptions: int = 0,
) -> dict[str, Any]:
    kept = [row for row in rows if row.name in active]
    deliveries = asdict(counts[0]) if counts else asdict(QueueCounts(DELIVERIES))
    return {
        "store": location,
        "polls": {
            "active": len(active),
            "off": polls - len(active),
            "paused": sum(row.paused for row in rows),
            "failing": [{"poll": row.name, "error": row.last_error} for row in kept if row.failures],
            "last_called_at": rfc3339(max((row.called_at for row in kept if row.called_at), default=None)),
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
        print_text(f"  failing   {failing['poll']}: {failing['error']}")
    if len(polls["failing"]) > 10:
        print_text(f"  and {len(polls['failing']) - 10} more: {step('polls list', target)}")
    if events["latest_seq"] is None:
        print_text("events      none yet")
    else:
        print_text(f"events      {events['latest_seq']} so far; the latest {_ago(events['latest_at'], now)}")
    counts = ", ".join(f"{deliveries[word]} {word}" for word in ("pending", "running", "succeeded", "dead"))
    oldest = deliveries["oldest_pending_ms"]
    waits = f"; the oldest has waited {span(oldest)}" if oldest else ""
    print_text(f"deliveries  {counts}{waits}")
    print_text(f"            to {counted(standing['subscriptions'], 'subscriber')}")


def _ago(instant: str | None, now: int) -> str:
    if instant is None:
        return "never"
    from datetime import datetime

    return relative(round(datetime.fromisoformat(instant).timestamp() * 1000), now)
