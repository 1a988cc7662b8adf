"""A command that ends with an exit status of its own where it was called wrongly."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import typer

from bide.cli.options import Command

BAD_USE = 3
"""Exit status of a wrong command line, where 2 means something else."""

COMMAND = "bide.command"
"""Where in the meta of a context the words behind ``--`` are."""

_UsageError: Any = typer.BadParameter.__base__


@contextlib.contextmanager
def _told_apart() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        error.exit_code = BAD_USE
        raise


class UntilCommand(Command):
    """Splits the command to run, behind ``--``, from its own arguments; ends with 3 for a wrong command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = args[at + 1 :]
            args = args[:at]
        with _told_apart():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _told_apart():
            return super().invoke(ctx)
