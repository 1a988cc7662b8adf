"""One line of a log, before it is written anywhere."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bide.cli.episodes import Ended, Lasts
from bide.cli.instants import span
from bide.cli.printing import counted


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a level of :mod:`logging`, a stable dotted word for machines, a text for people, and fields."""

    level: int
    event: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)


def lasting(what: str, subject: str, lasts: Lasts, error: str) -> Line:
    """What sums up trouble that goes on."""
    fields = {
        "subject": subject,
        "seconds": round(lasts.seconds),
        "failing": lasts.failing,
        "failures": lasts.failures,
        "error": error,
    }
    since = f"{subject} has been failing for {span(lasts.seconds * 1000)}, {lasts.failures} times"
    return Line(logging.WARNING, f"{what}.still_failing", f"{since}: {error}", fields)


def recovered(what: str, subject: str, ended: Ended) -> Line:
    """What ends trouble."""
    fields = {
        "subject": subject,
        "seconds": round(ended.seconds, 1),
        "members": ended.members,
        "failures": ended.failures,
    }
    lasted = f"after {span(ended.seconds * 1000)} and {counted(ended.failures, 'failure')}"
    return Line(logging.INFO, f"{what}.recovered", f"{subject} works again {lasted}", fields)
