"""``polls``: what is kept of each poll, and mending it."""

from __future__ import annotations

from typing import Annotated

import typer

from bide.cli.options import DEFAULT_TARGET, Group, JsonOption, LimitOption, TargetOption

group = typer.Typer(
    cls=Group, help="Look at polls, pause, resume, call or forget them.", no_args_is_help=True
)

NamesArgument = Annotated[
    list[str], typer.Argument(metavar="NAME...", help='Polls, each "<connection>.<poll>".')
]


@group.command("list")
def list_(
    target: TargetOption = DEFAULT_TARGET,
    limit: LimitOption = 100,
    after: Annotated[str | None, typer.Option("--after", help="Go on behind this name.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List polls, what came of the last call and when the next is due."""
    from bide.cli.polls import list_polls

    list_polls(target, limit=limit, after=after, as_json=as_json)


@group.command()
def pause(names: NamesArgument, target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Stop calling polls until they are resumed.

    In every instance, also after a restart. Nothing that is kept is lost.
    """
    from bide.cli.polls import pause_polls

    pause_polls(target, names, paused=True, as_json=as_json)


@group.command()
def resume(names: NamesArgument, target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Call paused polls again."""
    from bide.cli.polls import pause_polls

    pause_polls(target, names, paused=False, as_json=as_json)


@group.command()
def now(names: NamesArgument, target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Make polls due at once.

    The next tick or a running instance calls them, whatever a failure or a hint said.
    """
    from bide.cli.polls import call_now

    call_now(target, names, as_json=as_json)


@group.command()
def forget(names: NamesArgument, target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Remove what is kept of polls.

    Their events stay. The next answer is emitted as a first one.
    """
    from bide.cli.polls import forget_polls

    forget_polls(target, names, as_json=as_json)
