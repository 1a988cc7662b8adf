"""Commands that are imported and built when they are used: help shows the one line that is known of each.

Building a command means reading its signature, which for all of them together takes longer than everything else
that ``bide --help`` does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand
from typer.main import get_command, get_group

from bide.cli.options import Command, Group


@dataclass(frozen=True, slots=True)
class Entry:
    """One command, or group of them, at ``home`` (``"module:name"``); ``summary`` is the first line of its help."""

    name: str
    home: str
    summary: str
    panel: str | None = None
    shape: str = "bide.cli.options:Command"
    """What a single command is an instance of."""

    def shown(self) -> TyperCommand:
        """What help lists of it."""
        return TyperCommand(self.name, help=self.summary, rich_help_panel=self.panel)

    def built(self) -> Any:
        """The command itself."""
        found = _at(self.home)
        if isinstance(found, typer.Typer):
            for registered in found.registered_commands:
                registered.cls = Command
            group = get_group(found)
            group.name = self.name
            return group
        alone = typer.Typer(add_completion=False)
        alone.command(self.name, cls=_at(self.shape), rich_help_panel=self.panel)(found)
        return get_command(alone)


def _at(place: str) -> Any:
    """What stands at ``"module:name"``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


class Commands(MutableMapping[str, Any]):
    """Commands by name, in the order of ``entries``, each built when it is first asked for."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = self._entries[name].built()
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class LazyGroup(Group):
    """A group of ``entries``, a class attribute of whoever inherits it."""

    entries: ClassVar[Mapping[str, Entry]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands(self.entries)
        self._listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._listing and cmd_name in self.entries:
            return self.entries[cmd_name].shown()
        return self.commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._names_only():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._names_only():
            return super().shell_complete(ctx, incomplete)

    @contextlib.contextmanager
    def _names_only(self) -> Iterator[None]:
        self._listing = True
        try:
            yield
        finally:
            self._listing = False
