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
    from bide.config.options import WorkerRunOptions as WorkerRunOptions
    from bide.core.acceptors import Acceptor as Acceptor
    from bide.core.acceptors import Acceptors as Acceptors
    from bide.core.context import Context as Context
    from bide.core.context import Discard as Discard
    from bide.core.context import GiveBack as GiveBack
    from bide.core.context import Retry as Retry
    from bide.core.pacing import Backoff as Backoff
    from bide.core.pacing import PollingStrategy as PollingStrategy
    from bide.core.polling import PollingSettings as PollingSettings
    from bide.core.polling import PollingState as PollingState
    from bide.core.polling import PollOne as PollOne
    from bide.core.polling import QuitPolling as QuitPolling
    from bide.core.polling import RetryAfter as RetryAfter
    from bide.core.verdict import Failure as Failure
    from bide.core.verdict import NotYet as NotYet
    from bide.core.verdict import Success as Success
    from bide.core.waited import AttemptEnded as AttemptEnded
    from bide.core.waited import PollResult as PollResult
    from bide.engine.attempts import Attempt as Attempt
    from bide.engine.attempts import attempts as attempts
    from bide.engine.deliveries import Delivery as Delivery
    from bide.engine.hinting import retry_after as retry_after
    from bide.engine.hooks import on_every_attempt as on_every_attempt
    from bide.engine.outcome import Dead as Dead
    from bide.engine.outcome import GivenBack as GivenBack
    from bide.engine.outcome import Retried as Retried
    from bide.engine.outcome import Succeeded as Succeeded
    from bide.engine.poller import Poller as Poller
    from bide.engine.running import TickReport as TickReport
    from bide.engine.until import poll_result as poll_result
    from bide.engine.until import poll_until as poll_until
    from bide.errors import AnswerError as AnswerError
    from bide.errors import ArgumentError as ArgumentError
    from bide.errors import BideError as BideError
    from bide.errors import CallError as CallError
    from bide.errors import DeclarationError as DeclarationError
    from bide.errors import KeyConflict as KeyConflict
    from bide.errors import NoFreeSlot as NoFreeSlot
    from bide.errors import NoResult as NoResult
    from bide.errors import ProviderError as ProviderError
    from bide.errors import ResultError as ResultError
    from bide.errors import ResultTimeout as ResultTimeout
    from bide.errors import SettingError as SettingError
    from bide.errors import TaskFailed as TaskFailed
    from bide.errors import UnknownName as UnknownName
    from bide.errors import WaitFailed as WaitFailed
    from bide.errors import WaitStopped as WaitStopped
    from bide.errors import WaitTimeout as WaitTimeout
    from bide.metrics import Metrics as Metrics
    from bide.metrics import OpenTelemetryMetrics as OpenTelemetryMetrics
    from bide.package import Event as Event
    from bide.package import Package as Package
    from bide.task import Handle as Handle
    from bide.task import Task as Task
    from bide.worker import Worker as Worker

_HOMES = {
    "App": "bide.app",
    "load_app": "bide.app",
    "WorkerRunOptions": "bide.config.options",
    "Acceptor": "bide.core.acceptors",
    "Acceptors": "bide.core.acceptors",
    "Context": "bide.core.context",
    "Discard": "bide.core.context",
    "GiveBack": "bide.core.context",
    "Retry": "bide.core.context",
    "Backoff": "bide.core.pacing",
    "PollingStrategy": "bide.core.pacing",
    "PollingSettings": "bide.core.polling",
    "PollingState": "bide.core.polling",
    "PollOne": "bide.core.polling",
    "QuitPolling": "bide.core.polling",
    "RetryAfter": "bide.core.polling",
    "Failure": "bide.core.verdict",
    "NotYet": "bide.core.verdict",
    "Success": "bide.core.verdict",
    "AttemptEnded": "bide.core.waited",
    "PollResult": "bide.core.waited",
    "Attempt": "bide.engine.attempts",
    "attempts": "bide.engine.attempts",
    "Delivery": "bide.engine.deliveries",
    "retry_after": "bide.engine.hinting",
    "on_every_attempt": "bide.engine.hooks",
    "Dead": "bide.engine.outcome",
    "GivenBack": "bide.engine.outcome",
    "Retried": "bide.engine.outcome",
    "Succeeded": "bide.engine.outcome",
    "Poller": "bide.engine.poller",
    "TickReport": "bide.engine.running",
    "poll_result": "bide.engine.until",
    "poll_until": "bide.engine.until",
    "AnswerError": "bide.errors",
    "ArgumentError": "bide.errors",
    "BideError": "bide.errors",
    "CallError": "bide.errors",
    "DeclarationError": "bide.errors",
    "KeyConflict": "bide.errors",
    "NoFreeSlot": "bide.errors",
    "NoResult": "bide.errors",
    "ProviderError": "bide.errors",
    "ResultError": "bide.errors",
    "ResultTimeout": "bide.errors",
    "SettingError": "bide.errors",
    "TaskFailed": "bide.errors",
    "UnknownName": "bide.errors",
    "WaitFailed": "bide.errors",
    "WaitStopped": "bide.errors",
    "WaitTimeout": "bide.errors",
    "Metrics": "bide.metrics",
    "OpenTelemetryMetrics": "bide.metrics",
    "Event": "bide.package",
    "Package": "bide.package",
    "Handle": "bide.task",
    "Task": "bide.task",
    "Worker": "bide.worker",
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
