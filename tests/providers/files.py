"""Files of the SQLite provider as its tests make them and look into them."""

from __future__ import annotations

from pathlib import Path

import apsw

from bide.provider import NewItem
from bide.providers.sqlite import SqliteProvider
from bide.testing import VirtualClock

ITEM = NewItem(id="a", queue="q", name="n", payload="{}")


def provider_of(path: Path) -> SqliteProvider:
    return SqliteProvider(path, clock=VirtualClock())


async def made(path: Path) -> Path:
    """A file with one item in it, closed."""
    provider = provider_of(path)
    await provider.open()
    await provider.enqueue([ITEM])
    await provider.close()
    return path


def sql(path: Path, statement: str, bindings: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute(statement, bindings))
    finally:
        connection.close()
