"""Waits as they are declared: what is asked until it holds, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from bide.core.acceptors import Acceptors
from bide.core.declaration import Connection, RequestTemplate
from bide.core.pacing import PollingStrategy
from bide.core.template import Template

PASSING = ("refused", "unresolved", "timeout", "reset", "incomplete")
"""Kinds of failed calls after which a wait asks again unless it says otherwise: those that may pass by themselves."""

FAILURES = (*PASSING, "tls", "too_large", "encoding", "redirects", "protocol")
"""Kinds of failed calls that a wait may be told to ask again after."""


@dataclass(frozen=True, slots=True)
class Address:
    """A request to be made again and again. ``text`` is the body where that is no JSON, and filled as it is."""

    connection: Connection
    request: RequestTemplate
    text: Template | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A command to be run again and again, never through a shell."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WaitDeclaration:
    """One declared wait. ``timeout`` None: for ever.

    ``attempt_timeout`` None: a command may take all the time that is left, and a request the deadline of calls.
    ``hint_clamp``: the longest delay that a server's hint may ask for; zero ignores hints.
    """

    name: str
    target: Address | Program
    acceptors: Acceptors
    timeout: timedelta | None
    strategy: PollingStrategy
    attempt_timeout: timedelta | None
    times_in_row: int = 1
    stable_for: timedelta | None = None
    retry_on: frozenset[str] = frozenset(PASSING)
    hint_clamp: timedelta = timedelta(days=1)
