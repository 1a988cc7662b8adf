"""``doctor``: is a store as bide needs it?"""

from __future__ import annotations

from typing import Annotated

import typer

from bide.cli.options import DEFAULT_TARGET, JsonOption, TargetOption


def doctor(
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="Address of a store, as in app.provider; else the app's own."),
    ] = None,
    target: TargetOption = DEFAULT_TARGET,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for what is doubtful, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Examine a store: whether it is as bide needs it.

    Connects, measures and tries out what can be, and leaves nothing behind. Exits with 1 where bide cannot run on it.
    """
    from bide.cli.doctoring import examine_store

    if not examine_store(url, target, strict=strict, as_json=as_json):
        raise typer.Exit(1)
