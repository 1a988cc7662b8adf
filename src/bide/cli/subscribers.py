"""What the ``subscribers`` commands do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from bide.cli.instants import relative, rfc3339, span
from bide.cli.opening import in_store, require_known
from bide.cli.outside import safe_line
from bide.cli.printing import (
    add_row,
    is_too_wide,
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
from bide.core.durations import to_ms
from bide.provider import SubscriptionRow

if TYPE_CHECKING:
    from rich.table import Table

    from bide.app import App


def list_subscribers(target: str, *, as_json: bool) -> None:
    """Print subscriptions by name."""

    async def act(app: App) -> tuple[list[SubscriptionRow], Collection[str]]:
        return await app.provider.subscriptions(), app.declarations.subscribers.keys()

    rows, declared = in_store(target, act) or ([], ())
    if as_json:
        print_json({"subscribers": [_as_json(row, declared) for row in rows]})
        return
    if not rows:
        tell("no subscribers")
        return
    table = _table(rows, declared, targets=True)
    whole = not is_too_wide(table)
    print_table(table if whole else _table(rows, declared, targets=False))
    for row in rows:
        name = row.subscription.name
        if not whole:
            print_text(f"{name}: {safe_line(row.subscription.target)}")
        if row.ended_reason:
            print_text(f"{name} ended: {safe_line(row.ended_reason)}")


def _table(rows: Sequence[SubscriptionRow], declared: Collection[str], *, targets: bool) -> Table:
    """The subscriptions; ``targets`` leaves out the column that is often the longest."""
    now = SystemClock().utc_ms()
    head = ("subscriber", "event", "kind", *(["target"] if targets else []), "within", "state")
    table = new_table(*head, fold="subscriber")
    for row in rows:
        subscription = row.subscription
        state = f"ended {relative(row.ended_at, now)}" if row.ended_at else _state(row, declared)
        target = [safe_line(subscription.target)] if targets else []
        within = span(to_ms(subscription.within))
        add_row(table, subscription.name, subscription.event, subscription.kind, *target, within, state)
    return table


def _state(row: SubscriptionRow, declared: Collection[str]) -> str:
    if row.ended_at is not None:
        return "ended"
    return "declared" if row.subscription.name in declared else "undeclared"


def _as_json(row: SubscriptionRow, declared: Collection[str]) -> dict[str, Any]:
    subscription = row.subscription
    return {
        "name": subscription.name,
        "event": subscription.event,
        "kind": subscription.kind,
        "target": subscription.target,
        "within_ms": to_ms(subscription.within),
        "ordered": subscription.ordered,
        "max_attempts": subscription.max_attempts,
        "state": _state(row, declared),
        "created_at": rfc3339(row.created_at),
        "declared_at": rfc3339(row.declared_at),
        "ended_at": rfc3339(row.ended_at),
        "ended_reason": row.ended_reason,
    }


def end_subscribers(target: str, names: Sequence[str], *, as_json: bool) -> None:
    """End exactly the subscriptions named."""

    async def act(app: App) -> list[str]:
        await _require(app, names)
        return await app.provider.end_subscriptions(names, "ended by hand")

    _say_ended(target, in_store(target, act) or [], names, as_json=as_json)


def prune_subscribers(target: str, *, as_json: bool) -> None:
    """End every living subscription that this version of the program does not declare."""

    async def act(app: App) -> list[str]:
        declared = app.declarations.subscribers
        living = [row.subscription.name for row in await app.provider.subscriptions() if row.ended_at is None]
        gone = [name for name in living if name not in declared]
        return await app.provider.end_subscriptions(gone, "no longer declared") if gone else []

    ended = in_store(target, act) or []
    if not ended and not as_json:
        print_text("every living subscription is declared; nothing to prune")
        return
    _say_ended(target, ended, ended, as_json=as_json)


def resume_subscribers(target: str, names: Sequence[str], *, as_json: bool) -> None:
    """Let exactly the subscriptions named live again."""

    async def act(app: App) -> list[str]:
        await _require(app, names)
        return await app.provider.resume_subscriptions(names)

    resumed = in_store(target, act) or []
    if as_json:
        print_json({"resumed": resumed})
        return
    if resumed:
        print_text(f"{listed(resumed)} will hear events to come")
        _say_how_to_replay(resumed, target)
    living = [name for name in names if name not in resumed]
    if living:
        tell(f"not ended: {listed(living)}")


def _say_ended(target: str, ended: Sequence[str], names: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"ended": list(ended)})
        return
    if ended:
        print_text(f"ended {listed(ended)}, with the deliveries that waited for them")
        print_text(f"undo with: {step(f'subscribers resume {quoted(ended)}', target)}")
        print_text("that brings back neither those deliveries nor events that come until then")
        _say_how_to_replay(ended, target)
    before = [name for name in names if name not in ended]
    if before:
        tell(f"ended before: {listed(before)}")


def _say_how_to_replay(names: Sequence[str], target: str) -> None:
    for name in names:
        replay = step(f"deliveries replay -s {name} --since 1h", target)
        print_text(f"what {name} missed, once it is resumed: {replay} (or since when it was)")


async def _require(app: App, names: Sequence[str]) -> None:
    require_known("subscriber", names, [row.subscription.name for row in await app.provider.subscriptions()])
