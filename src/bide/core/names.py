"""Names: which are allowed, and which known one a slip was probably meant to be."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

NAME_RULE = "a letter or underscore, then letters, digits, underscores and hyphens (no dots)"
"""The rule of :func:`is_name` in words, for error messages."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

_CLOSE = 0.6
"""Least similarity, of 1, of a name worth suggesting (Ratcliff and Obershelp, as ``difflib`` measures it)."""


def is_name(text: str) -> bool:
    """Whether ``text`` may name a package, connection, poll, event, subscriber or watch."""
    return _NAME.fullmatch(text) is not None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that is most like ``name``, letter case aside, or None where none is near."""
    folded: dict[str, str] = {}
    for candidate in sorted(known):
        folded.setdefault(candidate.casefold(), candidate)
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=_CLOSE)
    return folded[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A sentence that suggests the nearest of ``known``, or None where none is near."""
    suggestion = nearest(name, known)
    return f"Did you mean {suggestion!r}?" if suggestion is not None else None
