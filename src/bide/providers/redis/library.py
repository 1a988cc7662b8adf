"""The functions that every atomic step is one call of, as the server keeps them: one library.

``functions/`` has the parts that calls share, and ``functions/calls/`` one file for each call. The library's name
has the digest of its text, so that programs of different versions do not meet. A server may lose it at any time (a
restart without persistence), so that whoever calls loads it again then. It needs Redis 7 or Valkey.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

PARTS = ("store", "texts", "items", "enqueueing", "sweeping", "choosing", "looking", "polls", "events")
"""In the order in which they build upon each other."""

OPENING = "open"
"""The one call that does not begin by asking whether the store is of this version."""

NAMES = "bide_"
"""What the name of every library of ours begins with."""

_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Library:
    """A library. ``body`` are its parts and calls, in which ``@`` stands for its name."""

    body: str
    name: str = field(init=False)
    text: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha256(self.body.encode()).hexdigest()[:_DIGITS]
        object.__setattr__(self, "name", f"{NAMES}{digest}")
        object.__setattr__(self, "text", f"#!lua name={self.name}\n{self.body.replace('@', self.name)}")

    def function(self, call: str) -> str:
        """The name of a function on the server."""
        return f"{self.name}_{call}"


@cache
def library() -> Library:
    """The library of this version."""
    folder = resources.files(__package__) / "functions"
    parts = [(folder / f"{part}.lua").read_text(encoding="utf-8") for part in PARTS]
    calls = sorted(file.name.removesuffix(".lua") for file in (folder / "calls").iterdir())
    bodies = [
        _function(call, (folder / "calls" / f"{call}.lua").read_text(encoding="utf-8")) for call in calls
    ]
    return Library("\n".join([*parts, *bodies]))


def _function(call: str, body: str) -> str:
    begin = (
        "" if call == OPENING else "local refused = begin(KEYS, ARGV)\nif refused then return refused end\n"
    )
    return f"redis.register_function('@_{call}', function(KEYS, ARGV)\n{begin}{body}end)\n"
