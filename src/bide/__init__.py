"""bide: durable polling for Python.

The names below are imported when they are first used, so that ``import bide`` loads no client, no database
driver and nothing else that a program does not use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bide.app import App as App
    from bide.app import load_app as load_app
    from bide.core.pacing import PollingStrategy as PollingStrategy
    from bide.engine.deliveries import Delivery as Delivery
    from bide.engine.running import TickReport as TickReport
    from bide.errors import AnswerError as AnswerError
    from bide.errors import BideError as BideError
    from bide.errors import CallError as CallError
    from bide.errors import DeclarationError as DeclarationError
    from bide.errors import NoFreeSlot as NoFreeSlot
    from bide.errors import ProviderError as ProviderError
    from bide.errors import SettingError as SettingError
    from bide.errors import UnknownName as UnknownName
    from bide.package import Event as Event
    from bide.package import Package as Package

_HOMES = {
    "App": "bide.app",
    "load_app": "bide.app",
    "PollingStrategy": "bide.core.pacing",
    "Delivery": "bide.engine.deliveries",
    "TickReport": "bide.engine.running",
    "AnswerError": "bide.errors",
    "BideError": "bide.errors",
    "CallError": "bide.errors",
    "DeclarationError": "bide.errors",
    "NoFreeSlot": "bide.errors",
    "ProviderError": "bide.errors",
    "SettingError": "bide.errors",
    "UnknownName": "bide.errors",
    "Event": "bide.package",
    "Package": "bide.package",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bide' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
