"""``subscribers``: who hears events."""

from __future__ import annotations

from typing import Annotated

import typer

from bide.cli.options import DEFAULT_TARGET, Group, JsonOption, TargetOption

group = typer.Typer(cls=Group, help="Look at subscriptions, end, prune or resume them.", no_args_is_help=True)

NamesArgument = Annotated[list[str], typer.Argument(metavar="NAME...", help="Subscribers.")]


@group.command("list")
def list_(target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """List subscriptions, also of other versions and ended ones."""
    from bide.cli.subscribers import list_subscribers

    list_subscribers(target, as_json=as_json)


@group.command()
def end(names: NamesArgument, target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """End subscriptions, and the deliveries that wait for them."""
    from bide.cli.subscribers import end_subscribers

    end_subscribers(target, names, as_json=as_json)


@group.command()
def prune(target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """End every subscription that is not declared any more."""
    from bide.cli.subscribers import prune_subscribers

    prune_subscribers(target, as_json=as_json)


@group.command()
def resume(names: NamesArgument, target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Let ended subscriptions hear events to come again."""
    from bide.cli.subscribers import resume_subscribers

    resume_subscribers(target, names, as_json=as_json)
