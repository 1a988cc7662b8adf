"""From the target that a command was given to an app, and to its open store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from bide.cli.printing import tell
from bide.errors import UnknownName

if TYPE_CHECKING:
    from bide.app import App

T = TypeVar("T")


def load(target: str) -> App:
    """The app that ``target`` names. Raises ``DeclarationError`` or ``UnknownName``."""
    from bide.app import load_app

    return load_app(target)


def in_store(target: str, act: Callable[[App], Awaitable[T]]) -> T | None:
    """What ``act`` answers with the app's store open; None, said so, where no store was made yet."""
    app = load(target)
    if not app.store_exists():
        tell(f"nothing is kept yet: the first tick or run makes {app.location}")
        return None
    return with_open(app, act)


def with_open(app: App, act: Callable[[App], Awaitable[T]]) -> T:
    """What ``act`` answers with the app's store open, which is made where it is missing."""
    import asyncio

    async def opened() -> T:
        async with app.open():
            return await act(app)

    return asyncio.run(opened())


def require_known(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``UnknownName`` with the nearest known one for the first of ``names`` that is not known."""
    from bide.core.names import nearest

    there = set(known)
    for name in names:
        if name not in there:
            raise UnknownName(kind, name, nearest(name, there))
