"""What the ``deliveries`` commands do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bide.cli.instants import parse_since, relative, rfc3339
from bide.cli.opening import in_store, require_known
from bide.cli.outside import safe_line
from bide.cli.printing import (
    add_row,
    counted,
    listed,
    new_table,
    print_json,
    print_table,
    print_text,
    quoted,
    step,
    tell,
)
from bide.clock import SystemClock
from bide.errors import UnknownName
from bide.provider import DELIVERIES, ItemRow, ItemState

if TYPE_CHECKING:
    from bide.app import App

_SHOWN: dict[ItemState, str] = {"ready": "pending", "running": "running", "done": "succeeded", "dead": "dead"}
_KEPT: dict[str, ItemState] = {shown: kept for kept, shown in _SHOWN.items()}
_SEARCHED = 1000
"""How many of the newest deliveries are looked at for a name that is like an unknown one."""


def list_deliveries(
    target: str, *, state: str | None, subscriber: str | None, limit: int, after: str | None, as_json: bool
) -> None:
    """Print deliveries, newest first."""

    async def act(app: App) -> list[ItemRow]:
        if subscriber is not None:
            await _require_subscriber(app, subscriber)
        if after is not None:
            await _require_there(app, [after])
        states = [_KEPT[state]] if state is not None else None
        return await app.provider.items(
            DELIVERIES, states=states, name=subscriber, after=after, limit=limit + 1
        )

    found = in_store(target, act) or []
    rows, more = found[:limit], len(found) > limit
    if as_json:
        shown = [_as_json(row) for row in rows]
        print_json({"deliveries": shown, "next_after": rows[-1].id if more else None})
        return
    if not rows:
        tell("no deliveries")
        return
    now = SystemClock().utc_ms()
    table = new_table("delivery", "state", "tries", "made", "next", right=("tries", "made"), fold="delivery")
    for row in rows:
        due = relative(max(row.visible_at, now), now) if row.state == "ready" else "-"
        made = relative(row.enqueued_at, now)
        add_row(table, row.id, _SHOWN[row.state], str(row.attempts), made, due)
    print_table(table)
    for row in rows:
        if row.error:
            print_text(f"{row.id}: {safe_line(row.error)}")
    if more:
        tell(f"more: {step(f'deliveries list --after {quoted([rows[-1].id])}', target)}")


def _as_json(row: ItemRow) -> dict[str, Any]:
    envelope = _envelope(row.payload)
    return {
        "id": row.id,
        "subscriber": row.name,
        "event": envelope.get("type"),
        "event_id": envelope.get("id"),
        "poll": envelope.get("poll"),
        "state": _SHOWN[row.state],
        "attempts": row.attempts,
        "deaths": row.deaths,
        "created_at": rfc3339(row.enqueued_at),
        "next_try_at": rfc3339(row.visible_at) if row.state == "ready" else None,
        "expires_at": rfc3339(row.expires_at),
        "ended_at": rfc3339(row.ended_at),
        "error": row.error,
    }


def _envelope(payload: str) -> dict[str, Any]:
    """The delivered envelope, or an empty one where what is kept cannot be read."""
    try:
        value = json.loads(payload)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def replay_deliveries(target: str, subscriber: str, since: str, *, as_json: bool) -> None:
    """Send events since then to one subscriber again. Raises ``SettingError`` for an unreadable ``since``."""
    from_ms = parse_since(since, SystemClock().utc_ms())

    async def act(app: App) -> tuple[int, str | None]:
        why = await _why_deaf(app, subscriber, target)
        return (await app.provider.replay(subscriber, from_ms) if why is None else 0), why

    number, why = in_store(target, act) or (0, "nothing is kept yet")
    if as_json:
        print_json({"subscriber": subscriber, "since": rfc3339(from_ms), "replayed": number})
    if why is not None:
        tell(f"no delivery was made again: {why}")
    elif as_json:
        return
    elif number:
        print_text(
            f"{counted(number, 'delivery')} to {subscriber} will be made again by the next tick or run"
        )
        listing = step(f"deliveries list -s {subscriber} --state pending", target)
        print_text(f"to give some up: {listing}, then deliveries discard")
    else:
        print_text(f"no delivery was made again: {subscriber} hears no event that was kept since then")


async def _why_deaf(app: App, subscriber: str, target: str) -> str | None:
    """Why a subscriber gets nothing, and what to do; None where it can. Raises ``UnknownName``."""
    rows = {row.subscription.name: row for row in await app.provider.subscriptions()}
    declared = app.declarations.subscribers
    require_known("subscriber", [subscriber], [*rows, *declared])
    if subscriber not in rows:
        return f"{subscriber} was declared after the last tick or run, and the next one lets it hear"
    if rows[subscriber].ended_at is None:
        return None
    resume = step(f"subscribers resume {subscriber}", target)
    return f"the subscription ended: {rows[subscriber].ended_reason}; first {resume}"


def retry_deliveries(target: str, ids: Sequence[str], *, as_json: bool) -> None:
    """Make exactly the deliveries named pending again, where they had ended."""

    async def act(app: App) -> list[str]:
        made = await app.provider.requeue(ids)
        await _require_there(app, [one for one in ids if one not in made])
        return made

    made = in_store(target, act) or []
    if as_json:
        print_json({"retried": made})
        return
    if made:
        print_text(f"pending again: {listed(made)}")
    kept = [one for one in ids if one not in made]
    if kept:
        tell(f"not ended, so left as they are: {listed(kept)}")


def discard_deliveries(target: str, ids: Sequence[str], *, as_json: bool) -> None:
    """Give up exactly the deliveries named, where they wait."""

    async def act(app: App) -> list[str]:
        gone = await app.provider.discard(ids, "discarded by hand")
        await _require_there(app, [one for one in ids if one not in gone])
        return gone

    gone = in_store(target, act) or []
    if as_json:
        print_json({"discarded": gone})
        return
    if gone:
        back = step(f"deliveries retry {' '.join(gone)}", target)
        print_text(f"discarded {listed(gone)}; undo with: {back}")
    kept = [one for one in ids if one not in gone]
    if kept:
        tell(f"not pending, so left as they are: {listed(kept)}")


async def _require_subscriber(app: App, subscriber: str) -> None:
    kept = [row.subscription.name for row in await app.provider.subscriptions()]
    require_known("subscriber", [subscriber], kept)


async def _require_there(app: App, ids: Sequence[str]) -> None:
    """Raise ``UnknownName`` for an id that no delivery has, with one that is like it."""
    for one in ids:
        subscriber = one.partition(".")[2]
        after: str | None = None
        while page := await app.provider.items(DELIVERIES, name=subscriber, after=after, limit=_SEARCHED):
            if any(row.id == one for row in page):
                break
            after = page[-1].id
        else:
            from bide.core.names import nearest

            newest = await app.provider.items(DELIVERIES, limit=_SEARCHED)
            raise UnknownName("delivery", one, nearest(one, [row.id for row in newest]))
