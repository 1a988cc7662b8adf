"""From the target that a command was given to an app, and to its open store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from bide.cli.printing import tell
from bide.errors import SettingError, UnknownName

if TYPE_CHECKING:
    from bide.app import App

T = TypeVar("T")

_IN_MEMORY = (
    'with provider "memory://" nothing outlives the process that polls; '
    'use "sqlite:///bide.db" to look at it from another'
)


def load(target: str) -> App:
    """The app that ``target`` names. Raises ``DeclarationError``, or ``SettingError`` for what names nothing."""
    if not target.strip():
        raise SettingError("--app", "is empty; name a file such as bide.toml, or module:attribute")
    if target.endswith(":"):
        file = target.removesuffix(":")
        way = (
            f"write -a {file}"
            if file.endswith(".toml")
            else f"write -a {file}:app, or what your App is called"
        )
        raise SettingError("--app", f"{target!r} names nothing behind the colon; {way}")
    from bide.app import load_app

    return load_app(target)


def is_in_memory(app: App) -> bool:
    """Whether the app's store ends with the process that made it."""
    return app.declarations.provider.startswith("memory:")


def nothing_kept(app: App) -> str:
    """Why there is nothing to look at."""
    if is_in_memory(app):
        return f"nothing is kept: {_IN_MEMORY}"
    return f"nothing is kept yet: the first tick, run, worker or submit makes {app.location}"


def require_kept(app: App) -> None:
    """Raise ``SettingError`` where whatever is changed would be gone with this command."""
    if is_in_memory(app):
        raise SettingError("provider", f"nothing was changed: {_IN_MEMORY}")


def in_store(target: str, act: Callable[[App], Awaitable[T]]) -> T | None:
    """What ``act`` answers with the app's store open; None, said so, where no store was made yet."""
    app = load(target)
    if not app.store_exists():
        tell(nothing_kept(app))
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
