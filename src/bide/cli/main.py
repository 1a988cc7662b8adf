"""``bide``: the commands put together, and how their errors end.

Exit status: 0 where all is well, 1 where something declared, called or kept is wrong, 2 for a wrong command line.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from bide import __version__
from bide.cli.commands import declare, deliveries, events, polls, status, subscribers, trying, work
from bide.cli.options import Command, Group
from bide.cli.output import OutputLost, close_quietly, take_streams, write_err
from bide.errors import BideError, UnknownName

_LISTINGS = {
    "poll": "bide polls list",
    "subscriber": "bide subscribers list",
    "delivery": "bide deliveries list",
    "event": "bide plan",
}
"""Where names of a kind are shown."""


class _Commands(Group):
    """The root group: an error of bide is a message and exit status 1, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BideError as error:
            if not (isinstance(error, OutputLost) and error.closed):
                write_err(f"error: {_told(error)}")
            raise typer.Exit(1) from error


def _told(error: BideError) -> str:
    """What is wrong; for a name that is like no other, also where those that are there are shown."""
    if isinstance(error, UnknownName) and error.suggestion is None and error.kind in _LISTINGS:
        return f"{error}; `{_LISTINGS[error.kind]}` shows those that are there"
    return str(error)


cli = typer.Typer(
    name="bide",
    cls=_Commands,
    help="Durable polling: watch outside APIs, keep what changed, deliver it to every subscriber.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"bide {__version__}\n")
        raise typer.Exit


@cli.callback()
def bide(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Durable polling: watch outside APIs, keep what changed, deliver it to every subscriber."""


cli.command()(declare.init)
cli.command()(declare.check)
cli.command()(declare.plan)
cli.command()(work.tick)
cli.command()(work.run)
cli.command()(status.status)
cli.add_typer(polls.group, name="polls")
cli.add_typer(events.group, name="events")
cli.add_typer(deliveries.group, name="deliveries")
cli.add_typer(subscribers.group, name="subscribers")
cli.command(rich_help_panel="To try it out")(trying.sample)
cli.command(rich_help_panel="To try it out")(trying.demo)


for app in (cli, polls.group, events.group, deliveries.group, subscribers.group):
    for registered in app.registered_commands:
        registered.cls = Command


def run() -> None:
    """The entry point of the ``bide`` program."""
    take_streams()
    status: Any = 0
    try:
        cli()
    except SystemExit as ended:
        status = ended.code
    except OSError as error:
        if error.filename is not None:
            raise
        lost = OutputLost(error)
        if not lost.closed:
            write_err(f"error: {lost}")
        status = 1
    sys.exit(status if close_quietly() else status or 1)
