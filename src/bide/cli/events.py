"""What ``events list`` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bide.cli.instants import relative, rfc3339
from bide.cli.opening import in_store, require_known
from bide.cli.payloads import compact
from bide.cli.printing import add_row, new_table, print_json_text, print_table, step, tell
from bide.cli.printing import as_json as json_text
from bide.clock import SystemClock
from bide.provider import EventRow

if TYPE_CHECKING:
    from bide.app import App


def list_events(
    target: str, *, names: Sequence[str] | None, after: int | None, limit: int, as_json: bool
) -> None:
    """Print events in order: the newest, or those behind ``after``."""

    async def act(app: App) -> tuple[list[EventRow], bool]:
        known = {f"{event.package}.{event.name}" for event in app.plan_offline().events}
        for name in names or ():
            if name not in known and not await app.provider.events(names=[name], limit=1):
                require_known("event", [name], known)
        rows = await app.provider.events(
            after=after or 0, names=names or None, limit=limit + 1, newest=after is None
        )
        page = rows[-limit:] if after is None else rows[:limit]
        return page, len(rows) > limit

    rows, more = in_store(target, act) or ([], False)
    if as_json:
        behind = rows[-1].seq if rows and more and after is not None else None
        print_json_text(_exact_json({"events": [_as_json(row) for row in rows], "next_after": behind}, rows))
        return
    if not rows:
        tell("no events")
        return
    now = SystemClock().utc_ms()
    table = new_table(
        "seq", "when", "event", "poll", "what it says", right=("seq", "when"), fold="what it says"
    )
    for row in rows:
        add_row(table, str(row.seq), relative(row.created_at, now), row.name, row.poll, compact(row.payload))
    print_table(table)
    if more and after is not None:
        tell(f"more: {step(f'events list --after {rows[-1].seq}', target)}")
    elif more:
        tell(f"older ones: {step('events list --after 0', target)}, or more at once: --limit {limit * 2}")


def _as_json(row: EventRow) -> dict[str, Any]:
    return {
        "seq": row.seq,
        "id": row.id,
        "type": row.name,
        "poll": row.poll,
        "created_at": rfc3339(row.created_at),
        "occurred_at": rfc3339(row.occurred_at),
        "data": _mark(row),
    }


def _mark(row: EventRow) -> str:
    return f"\0{row.id}\0"


def _exact_json(value: Any, rows: Sequence[EventRow]) -> str:
    """``value`` as JSON with each event's payload as it is kept, since floats would round its numbers."""
    text = json_text(value)
    for row in rows:
        text = text.replace(json_text(_mark(row)), row.payload)
    return text
