"""``provider``: does a store keep what is promised of it?"""

from __future__ import annotations

from typing import Annotated

import typer

from bide.cli.options import Group, JsonOption

group = typer.Typer(cls=Group, help="Put a provider to the test.", no_args_is_help=True)


@group.callback()
def provider() -> None:
    """Put a provider to the test."""


@group.command("test")
def run_suite(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Address of a provider, as in app.provider of a bide.toml.")
    ],
    promises: Annotated[
        list[int] | None,
        typer.Option("--promise", "-p", min=1, max=16, help="Try this promise alone; may be given again."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the conformance suite against a provider.

    In a place of its own there (new files, a new schema), which is gone afterwards; what is kept is not touched.
    Prints which promises are kept. Exits with 1 where one is broken, and with 3 where pytest is not installed.
    """
    from bide.cli.trial import MISSING_TOOLS, is_ready, put_to_the_test

    if not is_ready():
        raise typer.Exit(MISSING_TOOLS)
    if not put_to_the_test(url, promises or [], as_json=as_json):
        raise typer.Exit(1)
