"""``bide``: the commands put together, and how their errors end.

Exit status: 0 where all is well, 1 where something declared, called or kept is wrong, 2 for a wrong command line,
3 where a tool that a command needs is not installed. ``until`` has statuses of its own.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, ClassVar

import typer

from bide import __version__
from bide.cli.ending import leave_surely
from bide.cli.lazily import Entry, LazyGroup
from bide.cli.output import OutputLost, close_quietly, take_streams, write_err
from bide.errors import BideError, UnknownName

_LISTINGS = {
    "poll": "bide polls list",
    "subscriber": "bide subscribers list",
    "delivery": "bide deliveries list",
    "event": "bide plan",
    "work item": "bide work list",
    "queue": "bide queues",
    "task": "bide queues",
}
"""Where names of a kind are shown."""


_TRYING = "To try it out"

ENTRIES = (
    Entry("init", "bide.cli.commands.declare:init", "Write a first bide.toml."),
    Entry("check", "bide.cli.commands.declare:check", "Say everything that is wrong in what is declared."),
    Entry("plan", "bide.cli.commands.declare:plan", "Show which polls run, why the others do not, and when."),
    Entry("tick", "bide.cli.commands.work:tick", "Do one pass and exit, for cron."),
    Entry("run", "bide.cli.commands.work:run", "Poll, deliver and work until Ctrl-C or SIGTERM."),
    Entry("worker", "bide.cli.commands.working:worker", "Run tasks until Ctrl-C or SIGTERM."),
    Entry("submit", "bide.cli.commands.working:submit", "Submit work to a task."),
    Entry(
        "until",
        "bide.cli.commands.until:until",
        "Wait until an address answers, or a command writes, what is wanted.",
        shape="bide.cli.usage:UntilCommand",
    ),
    Entry("status", "bide.cli.commands.status:status", "Show how everything stands, and where it is kept."),
    Entry(
        "settings", "bide.cli.commands.working:settings", "Show how a worker runs, and which layer said so."
    ),
    Entry("cost", "bide.cli.commands.cost:cost", "Say what a month of requests to the store costs."),
    Entry("doctor", "bide.cli.commands.doctor:doctor", "Examine a store: whether it is as bide needs it."),
    Entry("queues", "bide.cli.commands.queues:queues", "Count what is in each queue."),
    Entry("work", "bide.cli.commands.items:group", "Look at work items, retry, discard or purge them."),
    Entry("polls", "bide.cli.commands.polls:group", "Look at polls, pause, resume, call or forget them."),
    Entry("events", "bide.cli.commands.events:group", "Look at the events that are kept."),
    Entry(
        "deliveries",
        "bide.cli.commands.deliveries:group",
        "Look at deliveries, send them again or give them up.",
    ),
    Entry(
        "subscribers",
        "bide.cli.commands.subscribers:group",
        "Look at subscriptions, end, prune or resume them.",
    ),
    Entry(
        "provider",
        "bide.cli.commands.provider:group",
        "Put a provider to the test.",
    ),
    Entry("sample", "bide.cli.commands.trying:sample", "Serve a small API whose prices move.", _TRYING),
    Entry("demo", "bide.cli.commands.trying:demo", "Watch it all at work for a minute.", _TRYING),
)
"""Every command, in the order of the help."""


class _Commands(LazyGroup):
    """The root group: an error of bide is a message and exit status 1, never a traceback."""

    entries: ClassVar = {entry.name: entry for entry in ENTRIES}

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
    help="Durable polling: watch outside APIs and deliver what changed, run queues of work, wait for a condition.",
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
    """Durable polling: watch outside APIs and deliver what changed, run queues of work, wait for a condition."""


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
    status = status if close_quietly() else status or 1
    leave_surely(status if isinstance(status, int) else int(status is not None))
    sys.exit(status)
