"""What commands print: results on standard output, everything said beside them on standard error."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bide.cli.options import DEFAULT_TARGET
from bide.cli.output import write_err, write_json, write_out
from bide.cli.outside import safe, safe_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_BOUNDLESS = 100_000
_PIPED_WIDTH = _BOUNDLESS
"""Columns of a table that goes to no terminal: every row is one line, and whole, for ``grep``."""


def as_json(value: Any) -> str:
    """``value`` as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def print_json(value: Any) -> None:
    """Print ``value`` as JSON, as the whole result."""
    print_json_text(as_json(value))


def print_json_text(text: str) -> None:
    """Print JSON text as the whole result."""
    write_json(safe_json(text))


def print_text(text: str) -> None:
    """A line of the result, or several. Text from outside in it cannot move the cursor."""
    write_out(safe(text))


def tell(text: str) -> None:
    """A message beside the result."""
    write_err(text)


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


def add_row(table: Table, *cells: str) -> None:
    """Add a row of texts, shown as they are but for what would move the cursor."""
    from rich.text import Text

    table.add_row(*(Text(safe(cell)) for cell in cells))


def print_table(table: Table) -> None:
    """Print a table."""
    to = console()
    with to.capture() as captured:
        to.print(table)
    write_out("\n".join(line.rstrip() for line in captured.get().splitlines()))


def is_too_wide(table: Table) -> bool:
    """Whether some of ``table`` would be folded or cut where it goes."""
    from rich.measure import Measurement

    to = console()
    return Measurement.get(to, to.options.update(width=_BOUNDLESS), table).maximum > to.width


def step(words: str, target: str) -> str:
    """A command to go on with: ``bide`` and ``words``, for the same target."""
    return f"bide {words}" if target == DEFAULT_TARGET else f"bide {words} -a {shlex.quote(target)}"


def quoted(names: Iterable[str]) -> str:
    """Arguments of a command, as a shell takes them."""
    return shlex.join(names)


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
