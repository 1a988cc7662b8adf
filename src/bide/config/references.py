"""References into Python code: ``"module:name"``.

The folder of ``bide.toml`` is put first on the import path when the first reference is followed, and stays
there, since the code found may import its neighbours later.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bide.core.declaration import Function
from bide.core.names import did_you_mean
from bide.errors import SettingError

_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_REFERENCE = re.compile(rf"({_DOTTED}):({_DOTTED})")


class BadReference(SettingError):
    """A reference that leads nowhere. ``suggestion`` is one next step."""

    def __init__(self, setting: str, reason: str, suggestion: str | None) -> None:
        self.suggestion = suggestion
        super().__init__(setting, reason)


def resolve_function(function: Function, folder: Path) -> Callable[..., Any]:
    """The function that ``function`` holds or names; ``folder`` is put on the import path to find it.

    Raises :class:`BadReference` where it cannot be found or called.
    """
    return function.function or imported_function(function.reference, folder)


def imported_function(reference: str, folder: Path) -> Callable[..., Any]:
    """What ``"module:name"`` names, if it can be called. Raises :class:`BadReference`."""
    found = imported(reference, folder)
    if callable(found):
        function: Callable[..., Any] = found
        return function
    raise BadReference(
        reference,
        f"{reference!r} is {_with_article(type(found).__name__)}, not a function",
        "Name a function of the module.",
    )


def imported(reference: str, folder: Path) -> Any:
    """What ``"module:name"`` names. Raises :class:`BadReference` where there is no such thing."""
    parts = _REFERENCE.fullmatch(reference)
    if not parts:
        raise BadReference(reference, f"{reference!r} is not module:name", 'Write it as "my.module:name".')
    found: Any = _module(reference, parts[1], folder)
    for name in parts[2].split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            known = [known for known in dir(found) if not known.startswith("_")]
            made = [known for known in known if not isinstance(getattr(found, known, None), type)]
            raise BadReference(
                reference,
                f"module {parts[1]} has no {parts[2]}",
                did_you_mean(name, made)
                or did_you_mean(name, known)
                or f"Define {parts[2]} in {parts[1]}, or name what is there.",
            ) from None
    return found


def reference_to(function: Callable[..., Any]) -> str:
    """The reference that leads to ``function``, as well as it can be told."""
    owner = function if hasattr(function, "__qualname__") else type(function)
    return f"{owner.__module__}:{owner.__qualname__}"


def _module(reference: str, name: str, folder: Path) -> Any:
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _failed(reference, name, error) from error
        raise BadReference(
            reference,
            f"there is no module {name}",
            f"Put it in {place}, or install the package that has it.",
        ) from None
    except (Exception, SystemExit) as error:
        raise _failed(reference, name, error) from error


def _with_article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in {*'aeiou'} else 'a'} {noun}"


def _failed(reference: str, module: str, error: BaseException) -> BadReference:
    return BadReference(
        reference,
        f"importing module {module} failed: {type(error).__name__}: {error}",
        f"Run `python -c 'import {module}'` to see where.",
    )
