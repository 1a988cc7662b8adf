"""What ``work list`` and ``work show`` do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bide.cli.instants import relative, rfc3339
from bide.cli.opening import in_store
from bide.cli.outside import safe_line
from bide.cli.printing import (
    add_row,
    new_table,
    print_json,
    print_table,
    print_text,
    quoted,
    step,
    tell,
)
from bide.cli.printing import (
    as_json as as_json_text,
)
from bide.cli.queues import declared, known_queues, require_queue, require_task
from bide.clock import SystemClock
from bide.errors import UnknownName
from bide.provider import DELIVERIES, ItemRow, ItemState

if TYPE_CHECKING:
    from bide.app import App


def list_items(
    target: str,
    *,
    queue: str | None,
    state: ItemState | None,
    task: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
) -> None:
    """Print work items, newest first; of every queue but that of deliveries, unless one is named."""

    async def act(app: App) -> list[ItemRow]:
        queues = await _queues(app, queue)
        if task is not None:
            await require_task(app, task, queues)
        if after is not None and await app.provider.item(after) is None:
            raise UnknownName("work item", after)
        found: list[ItemRow] = []
        for one in queues:
            found += await app.provider.items(
                one, states=[state] if state else None, name=task, after=after, limit=limit + 1
            )
        return sorted(found, key=lambda row: -row.enqueued_at) if len(queues) > 1 else found

    found = in_store(target, act) or []
    rows, more = found[:limit], len(found) > limit
    if as_json:
        follows = rows[-1].id if more and queue is not None else None
        print_json({"items": [item_json(row) for row in rows], "next_after": follows})
        return
    if not rows:
        tell("no work items")
        return
    _show(rows, several=queue is None)
    if more:
        words = f"work list -q {quoted([queue])} --after {rows[-1].id}" if queue else "work list -q QUEUE"
        tell(f"more: {step(words, target)}")


async def _queues(app: App, queue: str | None) -> list[str]:
    if queue is None:
        return [one for one in await known_queues(app) if one != DELIVERIES]
    await require_queue(app, queue)
    return [queue]


def _show(rows: Sequence[ItemRow], *, several: bool) -> None:
    now = SystemClock().utc_ms()
    headings = ["work item", *(["queue"] if several else []), "task", "state", "tries", "made", "next"]
    table = new_table(*headings, right=("tries", "made"), fold="work item")
    for row in rows:
        due = relative(max(row.visible_at, now), now) if row.state == "ready" else "-"
        queue = [row.queue] if several else []
        made = relative(row.enqueued_at, now)
        add_row(table, row.id, *queue, row.name, row.state, str(row.attempts), made, due)
    print_table(table)
    for row in rows:
        if row.error:
            print_text(f"{row.id}: {safe_line(row.error)}")


def item_json(row: ItemRow) -> dict[str, Any]:
    """A work item as JSON shows it in lists: all but its arguments and its result."""
    return {
        "id": row.id,
        "queue": row.queue,
        "task": row.name,
        "state": row.state,
        "attempts": row.attempts,
        "max_attempts": row.max_attempts,
        "deaths": row.deaths,
        "given_back": row.given_back,
        "priority": row.priority,
        "key": row.key,
        "limit_key": row.limit_key,
        "enqueued_at": rfc3339(row.enqueued_at),
        "visible_at": rfc3339(row.visible_at),
        "expires_at": rfc3339(row.expires_at),
        "ended_at": rfc3339(row.ended_at),
        "error": row.error,
    }


def show_item(target: str, id: str, *, as_json: bool) -> None:
    """Print one work item. Raises ``UnknownName`` where there is none (any more)."""

    async def act(app: App) -> tuple[ItemRow | None, bool]:
        row = await app.provider.item(id)
        return row, row is not None and (row.queue == DELIVERIES or row.queue in declared(app))

    row, heard = in_store(target, act) or (None, False)
    if row is None:
        raise UnknownName("work item", id)
    shown = item_json(row) | {"arguments": _read(row.payload), "result": _read(row.result)}
    if as_json:
        print_json(shown)
        return
    for name, value in shown.items():
        if value is not None and name not in ("arguments", "result"):
            print_text(f"{name.replace('_', ' '):13} {safe_line(str(value))}")
    print_text(f"{'arguments':13} {_indented(row.payload)}")
    if row.result is not None:
        print_text(f"{'result':13} {_indented(row.result)}")
    if not heard:
        tell(f"no task of {target} is in queue {row.queue}, so no worker of it takes this")


def _read(text: str | None) -> Any:
    """The value of JSON text; the text itself where it is none."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _indented(text: str) -> str:
    value = _read(text)
    return text if isinstance(value, str) else as_json_text(value).replace("\n", f"\n{' ' * 14}")
