"""Tasks and queues as they were declared, once checked: frozen values that workers run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bide.core.arguments import Signature
from bide.core.pacing import DELIVERY_BACKOFF, Backoff
from bide.core.periodic import Rule

DEFAULT_QUEUE = "default"
"""The queue of tasks that name none."""

MOST_PRIORITY = 1_000_000
"""Priorities beyond it, in minutes nearly two years, are slips; they may be negative as far."""


def is_priority(value: object) -> bool:
    """Whether it is a whole number that a priority may be."""
    return isinstance(value, int) and not isinstance(value, bool) and -MOST_PRIORITY <= value <= MOST_PRIORITY


@dataclass(frozen=True, slots=True)
class TaskDeclaration:
    """One task: a function that work items of its name are handled by.

    ``within`` bounds an item's whole life, ``timeout`` one attempt; None: no bound. ``lock_timeout`` None: the
    worker's. ``max_concurrent`` is how many run at a time in one process; None: as many as it has places.
    ``keep_result`` is how long what it returns is kept; None: it is not. ``rule`` is when it runs by itself.
    """

    name: str
    function: Callable[..., Any] = field(compare=False)
    reference: str
    signature: Signature = field(compare=False)
    queue: str = DEFAULT_QUEUE
    max_attempts: int = 5
    lock_timeout: timedelta | None = None
    within: timedelta | None = None
    priority: int = 0
    max_concurrent: int | None = None
    timeout: timedelta | None = None
    retry: Backoff = DELIVERY_BACKOFF
    max_give_backs: int = 100
    keep_result: timedelta | None = None
    rule: Rule | None = None


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """How many items of a queue may be running at a time over the whole fleet, and of each limit key; None: any."""

    name: str
    limit: int | None = None
    per_key: int | None = None
