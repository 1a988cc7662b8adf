"""What ``plan`` does: which polls run, why the others do not, and what packages emit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bide.cli.instants import relative, rfc3339, span
from bide.cli.opening import load, with_open
from bide.cli.printing import add_row, counted, new_table, print_json, print_table, print_text, tell
from bide.clock import SystemClock

if TYPE_CHECKING:
    from bide.planning import Plan, PlannedPoll


def show_plan(target: str, *, as_json: bool) -> None:
    """Print the plan of ``target``; when polls are due is known only where its store exists already."""
    app = load(target)
    plan = with_open(app, lambda app: app.plan()) if app.store_exists() else app.plan_offline()
    if as_json:
        print_json(_as_json(plan))
        return
    if not plan.polls:
        tell("no connection has a poll")
    _show_polls(plan)
    _show_connections(plan)
    _show_events(plan)


def _as_json(plan: Plan) -> dict[str, Any]:
    return {
        "polls": [
            {
                "name": poll.name,
                "every_ms": poll.every_ms,
                "active": poll.active,
                "reason": poll.reason,
                "next_due": rfc3339(poll.next_due),
            }
            for poll in plan.polls
        ],
        "connections": [
            {
                "name": connection.name,
                "max_concurrent": connection.max_concurrent,
                "scope": connection.scope,
            }
            for connection in plan.connections
        ],
        "events": [
            {"package": event.package, "name": event.name, "fields": dict(event.fields)}
            for event in plan.events
        ],
    }


def _show_polls(plan: Plan) -> None:
    now = SystemClock().utc_ms()
    table = new_table("poll", "every", "state", "next", "why", right=("every",), fold="why")
    for poll in plan.polls:
        state = "active" if poll.active else "off"
        add_row(table, poll.name, span(poll.every_ms), state, _next(poll, now), poll.reason)
    if plan.polls:
        print_table(table)


def _next(poll: PlannedPoll, now: int) -> str:
    """When an active poll is due; one that was never called is due now."""
    if not poll.active:
        return "-"
    return "now" if poll.next_due is None or poll.next_due <= now else relative(poll.next_due, now)


def _show_connections(plan: Plan) -> None:
    capped = [connection for connection in plan.connections if connection.max_concurrent is not None]
    for connection in capped:
        calls = counted(connection.max_concurrent or 0, "call")
        print_text(f"connection {connection.name}: at most {calls} at once, per {connection.scope}")


def _show_events(plan: Plan) -> None:
    by_package: dict[str, list[str]] = {}
    for event in plan.events:
        by_package.setdefault(event.package, []).append(f"{event.name}({', '.join(event.fields)})")
    for package, events in by_package.items():
        print_text(f"package {package} emits {', '.join(events)}")
