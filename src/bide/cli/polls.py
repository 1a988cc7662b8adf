"""What the ``polls`` commands do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bide.cli.instants import relative, rfc3339, span
from bide.cli.opening import in_store, load, require_known, with_open
from bide.cli.printing import listed, new_table, print_json, print_table, print_text, step, tell
from bide.clock import SystemClock
from bide.provider import PollRow

if TYPE_CHECKING:
    from bide.app import App
    from bide.planning import PlannedPoll


def list_polls(target: str, *, limit: int, after: str | None, as_json: bool) -> None:
    """Print polls by name: those declared, and those of which something is kept still."""
    app = load(target)
    if app.store_exists():
        planned, rows = with_open(app, _plan_and_rows)
    else:
        planned, rows = app.plan_offline().polls, []
    plans, kept = {poll.name: poll for poll in planned}, {row.name: row for row in rows}
    names = [name for name in sorted(plans.keys() | kept.keys()) if after is None or name > after]
    page, more = names[:limit], len(names) > limit
    if as_json:
        shown = [_as_json(name, plans.get(name), kept.get(name)) for name in page]
        print_json({"polls": shown, "next_after": page[-1] if more else None})
        return
    now = SystemClock().utc_ms()
    table = new_table("poll", "every", "state", "called", "changed", "next", right=("every",), fold="poll")
    for name in page:
        _add_row(table, name, plans.get(name), kept.get(name), now)
    print_table(table) if page else tell("no polls")
    if more:
        tell(f"more: {step(f'polls list --after {page[-1]}', target)}")


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
        "reason": plan.reason if plan else "no connection declares it",
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
    shown = f"{name}\n  {row.last_error}" if row is not None and row.failures else name
    if state == "off" and plan is not None:
        shown = f"{name}\n  {plan.reason}"
    table.add_row(
        shown,
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

    changed = with_open(load(target), act)
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
    """Make exactly the polls named due at once."""

    async def act(app: App) -> list[str]:
        await _require_polls(app, names)
        return await app.provider.poll_now(names)

    made = in_store(target, act) or []
    if as_json:
        print_json({"due": made})
        return
    if made:
        print_text(f"due now: {listed(made)}; the next tick or a running instance calls them")
    never = [name for name in names if name not in made]
    if never:
        tell(f"never called yet, so due already while active: {listed(never)}")


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
