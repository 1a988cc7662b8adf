"""From a provider's address to the provider; drivers are imported only when their address is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from bide.clock import Clock
from bide.errors import SettingError
from bide.provider import Provider

SYNCHRONOUS = ("full", "normal")


def open_provider(address: str, folder: Path, clock: Clock) -> Provider:
    """The provider of ``address``, not opened yet. Relative paths are beside ``folder``. Raises ``SettingError``."""
    scheme = urlsplit(address).scheme
    if scheme not in _MAKERS:
        raise SettingError(
            "provider", f"{scheme!r} is no kind of store; known are {', '.join(sorted(_MAKERS))}"
        )
    return _MAKERS[scheme](address, folder, clock)


def place_of(address: str, folder: Path) -> Path | None:
    """The file that a store is in, or None where it is in none."""
    parts = urlsplit(address)
    if parts.scheme != "sqlite":
        return None
    # sqlite:///bide.db is beside the folder, sqlite:////var/lib/bide.db is absolute.
    return folder / unquote(parts.path.removeprefix("/"))


def _sqlite(address: str, folder: Path, clock: Clock) -> Provider:
    from bide.providers.sqlite import SqliteProvider

    place = place_of(address, folder)
    assert place is not None
    options = parse_qs(urlsplit(address).query, keep_blank_values=True)
    synchronous = options.pop("synchronous", ["full"])[-1].lower()
    if synchronous not in SYNCHRONOUS:
        raise SettingError("provider", f"synchronous is full or normal, not {synchronous!r}")
    if options:
        raise SettingError("provider", f"sqlite has no option {next(iter(options))!r}; it has synchronous")
    return SqliteProvider(place, clock=clock, synchronous=synchronous.upper())


def _memory(address: str, folder: Path, clock: Clock) -> Provider:
    from bide.providers.memory import MemoryProvider

    return MemoryProvider(clock)


_MAKERS: dict[str, Callable[[str, Path, Clock], Provider]] = {"sqlite": _sqlite, "memory": _memory}
