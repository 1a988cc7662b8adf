"""Files to start from, kept beside this module in ``starters``."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path

from bide.cli.printing import print_text
from bide.errors import SettingError


def starter_text(name: str) -> str:
    """The text of the starter file ``name``."""
    return files("bide.cli").joinpath("starters", name).read_text("utf-8")


def write_starter(path: Path, *, force: bool) -> None:
    """Write a first ``bide.toml``. Raises ``SettingError`` where one is there already or it cannot be written."""
    text = starter_text("bide.toml")
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SettingError(
            str(path), "is there already; name another file, or replace it with --force"
        ) from None
    except OSError as error:
        raise SettingError(
            str(path),
            f"cannot be written: {error.strerror or error}; name a file in a folder that is there and yours",
        ) from error
    print_text(f"wrote {path}. Next:")
    chosen = "" if path.name == str(path) == "bide.toml" else f" -a {shlex.quote(str(path))}"
    print_text(f"  bide check{chosen}")
    print_text("  bide sample          in another terminal: an API to poll, without a network")
    print_text(f"  bide run{chosen}")
