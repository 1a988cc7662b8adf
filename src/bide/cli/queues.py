"""What ``queues`` does, and which queues there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bide.cli.instants import span
from bide.cli.opening import load, nothing_kept, require_known, with_open
from bide.cli.printing import add_row, new_table, print_json, print_table, tell
from bide.provider import DELIVERIES, QueueCounts

if TYPE_CHECKING:
    from bide.app import App

_NUMBERS = ("ready", "running", "done", "dead")


def show_queues(target: str, *, as_json: bool) -> None:
    """Print each queue of ``target``: those declared, and those of which something is kept."""

    app, counts = load(target), dict[str, QueueCounts]()
    if app.store_exists():
        counts = {one.queue: one for one in with_open(app, _counts)}
    else:
        tell(nothing_kept(app))
    names = sorted({*counts, *declared(app)})
    rows = [_row(app, name, counts.get(name, QueueCounts(name))) for name in names]
    if as_json:
        print_json({"queues": rows})
    elif rows:
        _show(rows)
    else:
        tell("no queues")


async def _counts(app: App) -> list[QueueCounts]:
    return await app.provider.counts()


def declared(app: App) -> set[str]:
    """The queues that are declared, or that a task names."""
    declarations = app.declarations
    return {*declarations.queues, *(task.queue for task in declarations.tasks.values())}


async def known_queues(app: App) -> list[str]:
    """Every queue that is declared, or of which something is kept."""
    return sorted({*declared(app), *(one.queue for one in await app.provider.counts())})


async def require_queue(app: App, queue: str) -> None:
    """Raise ``UnknownName`` with the nearest queue where there is none of that name."""
    require_known("queue", [queue], await known_queues(app))


async def require_task(app: App, task: str, queues: Sequence[str]) -> None:
    """Raise ``UnknownName`` for a task that is neither declared nor one of which ``queues`` keep something."""
    declared_tasks = list(app.declarations.tasks)
    if task in declared_tasks:
        return
    for queue in queues:
        if await app.provider.items(queue, name=task, limit=1):
            return
    require_known("task", [task], declared_tasks)


def _row(app: App, name: str, counts: QueueCounts) -> dict[str, Any]:
    tasks = sorted(task.name for task in app.declarations.tasks.values() if task.queue == name)
    limits = app.declarations.queues.get(name)
    return {
        "queue": name,
        **{word: getattr(counts, word) for word in _NUMBERS},
        "oldest_ms": counts.oldest_ms,
        "limit": limits.limit if limits else None,
        "per_key": limits.per_key if limits else None,
        "tasks": tasks,
        "declared": name == DELIVERIES or name in declared(app),
    }


def _show(rows: Sequence[Mapping[str, Any]]) -> None:
    right = (*_NUMBERS, "oldest", "limit", "per key")
    table = new_table("queue", *_NUMBERS, "oldest", "limit", "per key", "tasks", right=right, fold="tasks")
    for row in rows:
        oldest = "-" if row["oldest_ms"] is None else span(row["oldest_ms"])
        limits = ["-" if row[word] is None else str(row[word]) for word in ("limit", "per_key")]
        tasks = ", ".join(row["tasks"]) or ("deliveries" if row["queue"] == DELIVERIES else "none declared")
        add_row(table, row["queue"], *(f"{row[word]:,}" for word in _NUMBERS), oldest, *limits, tasks)
    print_table(table)
