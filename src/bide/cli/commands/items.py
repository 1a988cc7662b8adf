"""``work``: the items of queues, one by one and many at once."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from bide.cli.options import DEFAULT_TARGET, Group, JsonOption, LimitOption, TargetOption

group = typer.Typer(cls=Group, help="Look at work items, retry, discard or purge them.", no_args_is_help=True)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="A work item, as `work list` shows it.")]
IdsArgument = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Work items, as `work list` shows them.")
]
PerhapsIdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="ID...", help="Work items, as `work list` shows them.")
]
State = Literal["ready", "running", "done", "dead"]
EndedState = Literal["done", "dead"]
QueueOption = Annotated[str | None, typer.Option("--queue", "-q", help="Only those of this queue.")]
TaskOption = Annotated[str | None, typer.Option("--task", "-t", help="Only those of this task.")]


@group.command("list")
def list_(
    target: TargetOption = DEFAULT_TARGET,
    *,
    queue: QueueOption = None,
    state: Annotated[State | None, typer.Option("--state", help="Only those in this state.")] = None,
    task: TaskOption = None,
    limit: LimitOption = 20,
    after: Annotated[str | None, typer.Option("--after", help="Go on behind this id, of one queue.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List work items, newest first."""
    from bide.cli.items import list_items

    if after is not None and queue is None:
        raise typer.BadParameter("goes on in one queue; name it with --queue", param_hint="--after")
    list_items(target, queue=queue, state=state, task=task, limit=limit, after=after, as_json=as_json)


@group.command()
def show(id: IdArgument, target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Show all that is kept of one work item.

    With its arguments, and its result if that is kept.
    """
    from bide.cli.items import show_item

    show_item(target, id, as_json=as_json)


@group.command()
def retry(
    ids: PerhapsIdsArgument = None,
    target: TargetOption = DEFAULT_TARGET,
    *,
    state: Annotated[
        EndedState | None, typer.Option("--state", help="Every one that ended so, of a queue.")
    ] = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make ended work items ready again.

    The ones named, or all of a queue in a state, with attempts and life begun anew.
    """
    from bide.cli.mending import retry_all, retry_items

    if ids:
        if state is not None or queue is not None or task is not None:
            raise typer.BadParameter("name work items, or a queue and a state, not both", param_hint="ID...")
        retry_items(target, ids, as_json=as_json)
    elif queue is None or state is None:
        raise typer.BadParameter(
            "which ones? name work items, or give --queue and --state, as in --queue mail --state dead",
            param_hint="ID...",
        )
    else:
        retry_all(target, queue=queue, state=state, task=task, as_json=as_json)


@group.command()
def discard(
    ids: IdsArgument,
    target: TargetOption = DEFAULT_TARGET,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Kept with them.")] = "discarded by hand",
    as_json: JsonOption = False,
) -> None:
    """Give up work items that wait.

    They are dead then, kept with the reason. `work retry` undoes it.
    """
    from bide.cli.mending import discard_items

    discard_items(target, ids, reason=reason, as_json=as_json)


@group.command()
def purge(
    queue: Annotated[str, typer.Option("--queue", "-q", help="Of this queue.")],
    state: Annotated[EndedState, typer.Option("--state", help="Those that ended so.")],
    target: TargetOption = DEFAULT_TARGET,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove ended work items for good."""
    from bide.cli.mending import purge_items

    if not purge_items(target, queue=queue, state=state, yes=yes, as_json=as_json):
        raise typer.Exit(1)
