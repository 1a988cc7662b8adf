"""``deliveries``: what reached whom, and sending it again."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from bide.cli.options import DEFAULT_TARGET, Group, JsonOption, LimitOption, TargetOption

group = typer.Typer(
    cls=Group, help="Look at deliveries, send them again or give them up.", no_args_is_help=True
)

IdsArgument = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Deliveries, as `deliveries list` shows them.")
]


State = Literal["pending", "running", "succeeded", "dead"]
"""States of a delivery. One that waits to be tried again is pending too."""


@group.command("list")
def list_(
    target: TargetOption = DEFAULT_TARGET,
    *,
    state: Annotated[State | None, typer.Option("--state", help="Only those in this state.")] = None,
    subscriber: Annotated[
        str | None, typer.Option("--subscriber", "-s", help="Only those to this one.")
    ] = None,
    limit: LimitOption = 20,
    after: Annotated[str | None, typer.Option("--after", help="Go on behind this id.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List deliveries, newest first."""
    from bide.cli.deliveries import list_deliveries

    list_deliveries(target, state=state, subscriber=subscriber, limit=limit, after=after, as_json=as_json)


@group.command()
def replay(
    subscriber: Annotated[str, typer.Option("--subscriber", "-s", help="To whom.")],
    since: Annotated[
        str, typer.Option("--since", help='Events since then: "2h" ago, or an RFC 3339 instant.')
    ],
    target: TargetOption = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Send events again to one subscriber only.

    Each delivery keeps its id, so that a receiver can tell what it already has.
    """
    from bide.cli.deliveries import replay_deliveries
    from bide.errors import SettingError

    try:
        replay_deliveries(target, subscriber, since, as_json=as_json)
    except SettingError as error:
        if error.setting != "--since":
            raise
        raise typer.BadParameter(error.reason, param_hint="--since") from error


@group.command()
def retry(ids: IdsArgument, target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Try ended deliveries again.

    Dead and succeeded ones become pending, with attempts and life begun anew.
    """
    from bide.cli.deliveries import retry_deliveries

    retry_deliveries(target, ids, as_json=as_json)


@group.command()
def discard(ids: IdsArgument, target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Give up deliveries that wait.

    They are dead then, kept with that reason. `deliveries retry` undoes it.
    """
    from bide.cli.deliveries import discard_deliveries

    discard_deliveries(target, ids, as_json=as_json)
