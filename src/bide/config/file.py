"""Reading ``bide.toml``: its text, and where it cannot be read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from bide.core.declaration import Code, Mistake
from bide.errors import DeclarationError

_POSITION = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_KEYS = re.compile(r"\((?:'[^']*',? ?)+\)")
"""How tomllib names a table: the tuple of its keys."""
_KEY = re.compile(r"'([^']*)'")


def read_file(path: str | Path) -> dict[str, Any]:
    """The tables of the file at ``path``, not checked any further than that they are TOML.

    Raises :class:`bide.errors.DeclarationError` with one mistake: ``config.file_unreadable`` where there is
    no file that can be read, ``config.syntax_invalid`` at ``<file>:<line>:<column>`` where its text is not
    TOML 1.0 in UTF-8.
    """
    path = Path(path)
    text = _decode(path, _read(path))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, text, str(error)) from None
    except RecursionError:
        raise _refusal(
            "config.syntax_invalid", str(path), "is nested too deeply", "Nest lists and tables less deeply."
        ) from None
    except ValueError as error:  # e.g. an integer of more digits than Python converts
        raise _refusal(
            "config.syntax_invalid",
            str(path),
            f"holds a value that cannot be read: {error}",
            "Write it shorter, or in quotes.",
        ) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        message, step = "there is no such file", "Run `bide init` to write a first one, or name another file."
    except IsADirectoryError:
        message, step = "is a folder, not a file", "Name the file in it, such as bide.toml."
    except OSError as error:
        message, step = f"cannot be read: {error.strerror or error}", "Make the file readable for this user."
    raise _refusal("config.file_unreadable", str(path), message, step)


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _line_and_column(data[: error.start].decode("utf-8", "replace"))
        raise _refusal(
            "config.syntax_invalid",
            f"{path}:{line}:{column}",
            f"byte 0x{data[error.start]:02x} at line {line}, column {column} is not UTF-8",
            "Save the file as UTF-8.",
        ) from None


def _syntax_error(path: Path, text: str, reason: str) -> DeclarationError:
    found = _POSITION.search(reason)
    if found and found[1]:
        line, column = int(found[1]), int(found[2])
    else:
        line, column = _line_and_column(text)
    reason = reason[: found.start()] if found else reason
    reason = _KEYS.sub(lambda keys: f"[{'.'.join(_KEY.findall(keys[0]))}]", reason)
    return _refusal(
        "config.syntax_invalid",
        f"{path}:{line}:{column}",
        f"is not TOML at line {line}, column {column}: {reason[:1].lower()}{reason[1:]}",
        "Mend that line; what follows it is read only then.",
    )


def _line_and_column(before: str) -> tuple[int, int]:
    """The position, counted from 1, of what comes after ``before``."""
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _refusal(code: Code, where: str, message: str, suggestion: str | None = None) -> DeclarationError:
    return DeclarationError([Mistake(code, where, message, suggestion)])
