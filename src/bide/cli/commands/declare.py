"""``init``, ``check`` and ``plan``: what is declared, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bide.cli.options import DEFAULT_TARGET, JsonOption, TargetOption


def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path(DEFAULT_TARGET),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a first bide.toml.

    It is commented, and works as it is with `bide sample`.
    """
    from bide.cli.starter import write_starter

    write_starter(path, force=force)


def check(
    target: TargetOption = DEFAULT_TARGET,
    strict: Annotated[bool, typer.Option("--strict", help="Count warnings as mistakes.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say everything that is wrong in what is declared.

    Calls nothing, opens no database, needs no secrets. Exits with 1 where there is a mistake.
    """
    from bide.cli.checking import check_target

    if not check_target(target, strict=strict, as_json=as_json):
        raise typer.Exit(1)


def plan(target: TargetOption = DEFAULT_TARGET, as_json: JsonOption = False) -> None:
    """Show which polls run, why the others do not, and when.

    Also the caps of connections and the events of packages. The database is asked only if it is there.
    """
    from bide.cli.planning import show_plan

    show_plan(target, as_json=as_json)
