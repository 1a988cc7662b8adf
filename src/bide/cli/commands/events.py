"""``events``: what changed."""

from __future__ import annotations

from typing import Annotated

import typer

from bide.cli.options import DEFAULT_TARGET, Group, JsonOption, LimitOption, TargetOption

group = typer.Typer(cls=Group, help="Look at the events that are kept.", no_args_is_help=True)


@group.command("list")
def list_(
    target: TargetOption = DEFAULT_TARGET,
    event: Annotated[
        list[str] | None,
        typer.Option("--event", "-e", help='Only this one, "<package>.<event>"; repeatable.'),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option("--after", min=0, help="Events behind this seq, oldest first; else the newest."),
    ] = None,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
) -> None:
    """List events with what they say."""
    from bide.cli.events import list_events

    list_events(target, names=event, after=after, limit=limit, as_json=as_json)
