"""What commands print: results on standard output, everything said beside them on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bide.cli.options import DEFAULT_TARGET

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_PIPED_WIDTH = 200
"""Columns of a table that goes to no terminal, so that names are whole for ``grep``."""


def as_json(value: Any) -> str:
    """``value`` as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def print_json(value: Any) -> None:
    """Print ``value`` as JSON, as the whole result."""
    print_text(as_json(value))


def print_text(text: str) -> None:
    """A line of the result."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """A message beside the result."""
    sys.stderr.write(f"{text}\n")


def console() -> Console:
    """Where tables go: standard output, as wide as it is."""
    from rich.console import Console

    wide = Console(highlight=False, markup=False)
    return wide if wide.is_terminal else Console(highlight=False, markup=False, width=_PIPED_WIDTH)


def new_table(*headings: str, right: Sequence[str] = (), fold: str = "", hide_head: bool = False) -> Table:
    """A table without lines. ``right``: headings of numbers; ``fold``: the one column that breaks, not crops."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim", show_header=not hide_head)
    for heading in headings:
        overflow: Any = "fold" if heading == fold else "ellipsis"
        justify: Any = "right" if heading in right else "left"
        table.add_column(heading, justify=justify, overflow=overflow, no_wrap=heading != fold)
    return table


def print_table(renderable: RenderableType) -> None:
    """Print a table, or anything else that rich draws."""
    to = console()
    if to.is_terminal:
        to.print(renderable)
        return
    with to.capture() as captured:
        to.print(renderable)
    print_text("\n".join(line.rstrip() for line in captured.get().splitlines()))


def step(words: str, target: str) -> str:
    """A command to go on with: ``bide`` and ``words``, for the same target."""
    return f"bide {words}" if target == DEFAULT_TARGET else f"bide {words} -a {target}"


def listed(names: Iterable[str]) -> str:
    """``"a, b and c"``; ``"none"`` where there are none."""
    items = list(names)
    if not items:
        return "none"
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def counted(number: int, noun: str) -> str:
    """``"1 poll"``, ``"2 polls"``, ``"3 deliveries"``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"
