"""What an answer means to whoever waits: it is there, it will never be, or not yet.

A condition may answer these instead of a truth value, as :class:`bide.core.acceptors.Acceptors` do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Success:
    """What was waited for is there: ``value``."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failure:
    """It will never be there; ``reason`` says why in a few words."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotYet:
    """Ask again, no sooner than after ``hint`` where one was given; ``reason`` says what is missing."""

    hint: timedelta | None = None
    reason: str = ""


Verdict = Success | Failure | NotYet
