"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

TargetOption = Annotated[
    str,
    typer.Option(
        "--app", "-a", envvar="BIDE_APP", metavar="TARGET", help="A bide.toml, or module:attribute of an App."
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON on standard output, and nothing else there.")
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")]

DEFAULT_TARGET = "bide.toml"
