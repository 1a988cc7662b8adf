"""What a user declared, once checked: frozen values that the engine runs.

The builders in :mod:`bide.package` and the reader of ``bide.toml`` in :mod:`bide.config` both end here,
so that code and file mean the same things. Durations are ``timedelta``; a ``Template`` is text whose
``${VARIABLES}`` are filled from the environment only when a call is made, so that no declaration holds a secret.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from bide.core.answer import Reader
    from bide.core.fields import FieldType
    from bide.core.template import Template
    from bide.core.wait_declaration import WaitDeclaration
    from bide.core.work import QueueDeclaration, TaskDeclaration

Code = Literal[
    "config.file_unreadable",
    "config.syntax_invalid",
    "config.key_invalid",
    "config.value_invalid",
    "package.provider_invalid",
    "connection.key_invalid",
    "connection.value_invalid",
    "subscriber.key_invalid",
    "subscriber.value_invalid",
    "watch.key_invalid",
    "watch.value_invalid",
    "task.key_invalid",
    "task.value_invalid",
    "queue.key_invalid",
    "queue.value_invalid",
    "wait.key_invalid",
    "wait.value_invalid",
    "event.store_required",
    "store.unable",
    "environment.variable_missing",
]
"""Stable codes of mistakes; those of the specification's table and their neighbours for the other blocks."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong in what was declared: where, what, and one next step."""

    code: Code
    where: str
    message: str
    suggestion: str | None = None

    def __str__(self) -> str:
        step = f"\n    {self.suggestion}" if self.suggestion else ""
        return f"{self.where}: {self.message} [{self.code}]{step}"


@dataclass(frozen=True, slots=True)
class Twice:
    """Stands in what was declared where code gave one name to several things; the check refuses it."""

    first: Any
    second: Any


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """How an operation's request looks. ``body`` is JSON data whose strings may hold ``${VARIABLES}``, or None."""

    method: str
    path: Template
    query: Mapping[str, Template] = field(default_factory=dict)
    headers: Mapping[str, Template] = field(default_factory=dict)
    body: Any = None


OperationFunction = Callable[[Any], Awaitable[Any]]
"""An async function that gets the connection's client and answers an object (a mapping or dataclass)."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of the outside API. Exactly one of ``request`` and ``function`` is set.

    ``retries``: further attempts of a failed read within ``deadline``, which bounds the whole call. The
    ``reader`` follows from what ``fingerprint`` covers, so two operations are compared without it.
    """

    name: str
    answer: Mapping[str, FieldType]
    reader: Reader = field(compare=False)
    request: RequestTemplate | None = None
    function: OperationFunction | None = None
    retries: int = 2
    deadline: timedelta = timedelta(seconds=30)
    public: bool = False
    fingerprint: str = ""
    """Stable text of request and answer declarations; part of the hash kept beside validators."""


@dataclass(frozen=True, slots=True)
class EventType:
    """An event that a package's polls emit. ``name`` is full: ``"<package>.<event>"``."""

    name: str
    fields: Mapping[str, FieldType]
    public: bool
    occurred_at: str | None = None
    """The field that says when it happened on the other side, if one does."""


@dataclass(frozen=True, slots=True)
class Poll:
    """One running poll: an operation of one connection, called every so often.

    ``name`` is ``"<connection>.<poll>"``. ``active`` is False where nobody hears its event or it is paused
    in the declaration; ``reason`` says why in a few words.
    """

    name: str
    connection: str
    operation: Operation
    every: timedelta
    event: EventType
    active: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Connection:
    """One configured use of a package.

    ``quiet_after``: a poll of it without any change for so long is reported as quiet (once, on the edge).
    ``hint_clamp``: the longest wait that a server's hint may ask for; zero ignores hints.
    """

    name: str
    package: str
    base_url: Template
    headers: Mapping[str, Template] = field(default_factory=dict)
    max_concurrent: int | None = None
    quiet_after: timedelta | None = None
    paused: bool = False
    hint_clamp: timedelta = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Webhook:
    """POST the event's envelope to ``url``; signed where there is a ``secret``."""

    url: Template
    headers: Mapping[str, Template] = field(default_factory=dict)
    secret: Template | None = None
    timeout: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Command:
    """Run a program with the envelope on standard input; exit status 0 is success. Never through a shell."""

    argv: tuple[str, ...]
    timeout: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Function:
    """Call a Python function with the delivered event. ``reference`` is ``"module:name"`` or its qualified name.

    The check imports what a reference names, so ``function`` is None only where one was made by hand.
    """

    reference: str
    function: Callable[..., Any] | None = None
    timeout: timedelta | None = None


Target = Webhook | Command | Function


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Who hears an event. ``max_attempts`` None: attempts go on until ``within`` has passed."""

    name: str
    event: str
    target: Target
    within: timedelta = timedelta(days=3)
    ordered: bool = False
    max_attempts: int | None = None
    max_concurrent: int = 1
    """Deliveries of this subscriber at a time in one process, so that a slow one holds up nobody else."""


@dataclass(frozen=True, slots=True)
class Declarations:
    """Everything declared, checked and compiled."""

    provider: str
    tick: timedelta
    retention: timedelta
    failure_retry: timedelta
    connections: Mapping[str, Connection]
    polls: Mapping[str, Poll]
    """Active and inactive ones, by ``"<connection>.<poll>"``."""
    events: Mapping[str, EventType]
    """Every event declared, by ``"<package>.<event>"``."""
    subscribers: Mapping[str, Subscriber]
    concurrency: int = 20
    """Deliveries at a time in one process."""
    max_calls: int = 200
    """Calls of polls at a time in one process, over all connections."""
    tasks: Mapping[str, TaskDeclaration] = field(default_factory=dict)
    queues: Mapping[str, QueueDeclaration] = field(default_factory=dict)
    """Those that were declared; a task's queue need not be."""
    waits: Mapping[str, WaitDeclaration] = field(default_factory=dict)

    @property
    def variables(self) -> frozenset[str]:
        """Names of the environment variables that any request is filled from."""
        templates: list[Template] = []
        for connection in self.connections.values():
            templates += [connection.base_url, *connection.headers.values()]
        for poll in self.polls.values():
            if (request := poll.operation.request) is not None:
                templates += [request.path, *request.query.values(), *request.headers.values()]
        for subscriber in self.subscribers.values():
            if isinstance(target := subscriber.target, Webhook):
                templates += [target.url, *target.headers.values()]
                templates += [target.secret] if target.secret else []
        return frozenset(name for template in templates for name in template.variables)
