"""What the ``polls`` commands do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bide.cli.instants import relative, rfc3339, span
from bide.cli.opening import (
    in_store,
    is_in_memory,
    load,
    nothing_kept,
    require_kept,
    require_known,
    with_open,
)
from bide.cli.outside import safe_line
from bide.cli.printing import (
    add_row,
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
from bide.provider import PollRow

if TYPE_CHECKING:
    from bide.app import App
    from bide.planning import PlannedPoll

UNDECLARED = "no connection declares it"
PAUSED_BY_HAND = "paused by hand"


def list_polls(target: str, *, limit: int, after: str | None, as_json: bool) -> None:
    """Print polls by name: those declared, and those of which something is kept still."""
    app = load(target)
    if app.store_exists():
        planned, rows = with_open(app, _plan_and_rows)
    else:
        planned, rows = app.plan_offline().polls, []
        if is_in_memory(app):
            tell(nothing_kept(app))
    plans, kept = {poll.name: poll for poll in planned}, {row.name: row for row in rows}
    names = [name for name in sorted(plans.keys() | kept.keys()) if after is None or name > after]
    page, more = names[:limit], len(names) > limit
    if as_json:
        shown = [_as_json(name, plans.get(name), kept.get(name)) for name in page]
        print_json({"polls": shown, "next_after": page[-1] if more else None})
        return
    if not page:
        tell("no polls")
        return
    _show(page, plans, kept)
    if more:
        tell(f"more: {step(f'polls list --after {quoted([page[-1]])}', target)}")


def _show(names: Sequence[str], plans: Mapping[str, PlannedPoll], kept: Mapping[str, PollRow]) -> None:
    now = SystemClock().utc_ms()
    table = new_table("poll", "every", "state", "called", "changed", "next", right=("every",), fold="poll")
    for name in names:
        _add_row(table, name, plans.get(name), kept.get(name), now)
    print_table(table)
    for name in names:
        why = _why(name, plans.get(name), kept.get(name))
        if why:
            print_text(f"{name}: {safe_line(why)}")


def _why(name: str, plan: PlannedPoll | None, row: PollRow | None) -> str | None:
    """What a poll's state comes from, where it does not speak for itself."""
    match _state(plan, row):
        case "failing":
            return row.last_error if row is not None else None
        case "undeclared":
            return f"{UNDECLARED}; `bide polls forget {name}` removes what is kept of it"
        case "paused" | "off" if plan is not None:
            return plan.reason
        case _:
            return None


async def _plan_and_rows(app: App) -> tuple[Sequence[PlannedPoll], list[PollRow]]:
    return (await app.plan()).polls, await app.provider.poll_rows()


def _state(plan: PlannedPoll | None, row: PollRow | None) -> str:
    if row is not None and row.paused:
        return "paused"
    if plan is None:
        return "undeclared"
    if not plan.active:
        return "off"
    return "failing" if row is not None and row.failures else "active"


def _as_json(name: str, plan: PlannedPoll | None, row: PollRow | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": name,
        "state": _state(plan, row),
        "reason": plan.reason if plan else UNDECLARED,
        "event": plan.event if plan else None,
        "every_ms": plan.every_ms if plan else None,
        "next_due": rfc3339(plan.next_due) if plan else None,
    }
    instants = ("called_at", "answered_at", "changed_at", "failing_since")
    shown |= {instant: rfc3339(getattr(row, instant)) if row else None for instant in instants}
    return shown | {"failures": row.failures if row else 0, "last_error": row.last_error if row else None}


def _add_row(table: Any, name: str, plan: PlannedPoll | None, row: PollRow | None, now: int) -> None:
    state = _state(plan, row)
    running = plan is not None and state in ("active", "failing")
    next_call = plan.next_due if plan is not None else None
    add_row(
        table,
        name,
        span(plan.every_ms) if plan else "-",
        state,
        relative(row.called_at, now) if row else "never",
        relative(row.changed_at, now) if row else "-",
        relative(max(next_call or now, now), now) if running else "-",
    )


def pause_polls(target: str, names: Sequence[str], *, paused: bool, as_json: bool) -> None:
    """Pause or resume exactly the polls named."""

    async def act(app: App) -> list[str]:
        await _require_polls(app, names)
        return await app.provider.pause_polls(names, paused)

    app = load(target)
    require_kept(app)
    changed = with_open(app, act)
    word, undo = ("paused", "resume") if paused else ("resumed", "pause")
    if as_json:
        print_json({word: changed})
        return
    unchanged = [name for name in names if name not in changed]
    if changed:
        back = step(f"polls {undo} {' '.join(changed)}", target)
        print_text(f"{word} {listed(changed)}; undo with: {back}")
    if unchanged:
        tell(f"{word} already: {listed(unchanged)}")


def call_now(target: str, names: Sequence[str], *, as_json: bool) -> None:
    """Make exactly the polls named due at once, and say which of them are not called for all that."""

    async def act(app: App) -> tuple[list[str], Mapping[str, PlannedPoll]]:
        await _require_polls(app, names)
        made = await app.provider.poll_now(names)
        return made, {poll.name: poll for poll in (await app.plan()).polls}

    made, plans = in_store(target, act) or (
        [],
        {poll.name: poll for poll in load(target).plan_offline().polls},
    )
    silent = {name: _why_not_called(name, plans.get(name)) for name in names}
    if as_json:
        print_json({"due": made})
    due = [name for name in made if silent[name] is None]
    if due and not as_json:
        print_text(f"due now: {listed(due)}; the next tick or a running instance calls them")
    never = [name for name in names if name not in made and silent[name] is None]
    if never:
        tell(f"never called yet, so due already: {listed(never)}")
    for name, why in silent.items():
        if why is not None:
            tell(f"{name} is not called: {why}")


def _why_not_called(name: str, plan: PlannedPoll | None) -> str | None:
    """Why a poll is not called though it is due, and what to do; None where it is."""
    if plan is None:
        return f"{UNDECLARED}; `bide polls forget {name}` removes what is kept of it"
    if plan.active:
        return None
    if "`bide " in plan.reason:
        return plan.reason
    if plan.reason == PAUSED_BY_HAND:
        return f"{plan.reason}; `bide polls resume {name}`"
    if plan.reason.startswith("nobody hears"):
        return f"{plan.reason}; declare a subscriber of it"
    return f"{plan.reason}; remove paused from the connection"


def forget_polls(target: str, names: Sequence[str], *, as_json: bool) -> None:
    """Remove what is kept of exactly the polls named."""

    async def act(app: App) -> list[str]:
        await _require_polls(app, names)
        return await app.provider.forget_polls(names)

    forgotten = in_store(target, act) or []
    if as_json:
        print_json({"forgotten": forgotten})
        return
    if forgotten:
        print_text(f"forgot {listed(forgotten)}; events stay, and the next answer is emitted as a first one")
        print_text(
            "this cannot be undone, and need not be: an active poll makes its state anew when it is called"
        )
    nothing = [name for name in names if name not in forgotten]
    if nothing:
        tell(f"nothing was kept of {listed(nothing)}")


async def _require_polls(app: App, names: Sequence[str]) -> None:
    kept = [row.name for row in await app.provider.poll_rows()]
    require_known("poll", names, [*kept, *(poll.name for poll in (await app.plan()).polls)])
