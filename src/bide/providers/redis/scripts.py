"""The scripts: one for each atomic step, put together from the parts that they need.

A script is a file of ``lua/``. Its first line may name the parts that go before it, in order. The server keeps them
by their SHA-1 and may forget them at any time (a restart, a failover), so that whoever runs one sends it again then.
They need Redis 7 or Valkey: what they begin with says that a script is refused as a whole where the server is out of
memory, instead of in the middle.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

_NEEDS = "-- needs:"
_SHEBANG = "#!lua\n"


@dataclass(frozen=True, slots=True)
class Script:
    """One script. ``sha`` is what the server knows it by."""

    name: str
    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


@cache
def script(name: str) -> Script:
    """The script of that name."""
    text = _file(name)
    needed = text.partition("\n")[0]
    parts = needed.removeprefix(_NEEDS).split() if needed.startswith(_NEEDS) else []
    return Script(name, _SHEBANG + "\n".join([*map(_file, parts), text]))


@cache
def _file(name: str) -> str:
    return (resources.files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
