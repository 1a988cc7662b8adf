"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command whose help shows switches as such, without a value."""

    def get_params(self, ctx: Any) -> Any:
        return _without_values(super().get_params(ctx))


class Group(TyperGroup):
    """A group whose help shows switches as such, without a value."""

    def get_params(self, ctx: Any) -> Any:
        return _without_values(super().get_params(ctx))


def _without_values(params: Any) -> Any:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


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
