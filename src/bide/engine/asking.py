"""One call of a poll: ask through its connection, and make of the answer what the provider is to record."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from bide.clock import Clock
from bide.core.change import digest, event_payload
from bide.core.conditional import Validators, may_be_conditional, updated, validators_of
from bide.core.declaration import Connection, Operation, Poll
from bide.core.hints import hold_of
from bide.core.http import Response
from bide.errors import CallError
from bide.provider import Answered, Claim, NotModified, Schedule

ZERO = timedelta()


class Caller(Protocol):
    """A connection's client, as polls use it. Raises ``CallError`` and ``AnswerError``."""

    async def call(self, operation: Operation, validators: Validators) -> Response:
        """Make a declared request: slot, deadline, retries, log and caps are the client's."""
        ...

    async def run(self, operation: Operation) -> object:
        """Run an operation that is a function."""
        ...


@dataclass(frozen=True, slots=True)
class HeardPoll:
    """A poll that somebody hears, with all that calling it needs."""

    poll: Poll
    connection: Connection
    caller: Caller
    schedule: Schedule
    declaration: str
    """Hash of request, answer and event declarations: validators are good only under the same one."""
    patience_s: float = field(init=False)
    """Seconds that a claim may wait for its place; after that it may be another's, or its next call is due."""

    def __post_init__(self) -> None:
        patience = min(self.schedule.failure_retry, self.schedule.every / 2)
        object.__setattr__(self, "patience_s", patience.total_seconds())


def declaration_hash(poll: Poll, connection: Connection) -> str:
    """What a poll's validators depend on: where it asks, what it asks, how it reads, what it emits."""
    fields = ",".join(f"{name}:{kind}" for name, kind in sorted(poll.event.fields.items()))
    text = "\n".join((connection.base_url.text, poll.operation.fingerprint, poll.event.name, fields))
    return hashlib.sha256(text.encode()).hexdigest()


async def ask(heard: HeardPoll, claim: Claim, clock: Clock) -> Answered | NotModified:
    """Call the poll that ``claim`` gives the right to. Raises ``CallError`` or ``AnswerError``."""
    operation = heard.poll.operation
    if operation.function is not None:
        fields = operation.reader.read_value(await heard.caller.run(operation))
        return _answered(heard, clock, fields, Validators(), conditional=False, hold=None)
    conditional = may_be_conditional(
        claim.validators,
        kept_declaration=claim.declaration,
        declaration=heard.declaration,
        validated_ago=claim.validated_ago,
    )
    began = clock.monotonic()
    response = await heard.caller.call(operation, claim.validators if conditional else Validators())
    hold = hold_of(response.headers, now_ms=clock.utc_ms(), clamp=heard.connection.hint_clamp, success=True)
    if hold is not None:  # freshness counts from the request on
        hold = max(hold - timedelta(seconds=clock.monotonic() - began), ZERO)
    if response.status == 304:
        if not conditional:
            raise CallError("protocol", "answered 304 Not Modified to a request without validators")
        return NotModified(updated(claim.validators, response.headers), hold)
    fields = operation.reader.read(response.body, response.headers)
    return _answered(
        heard, clock, fields, validators_of(response.headers), conditional=conditional, hold=hold
    )


def _answered(
    heard: HeardPoll,
    clock: Clock,
    fields: dict[str, Any],
    validators: Validators,
    *,
    conditional: bool,
    hold: timedelta | None,
) -> Answered:
    event = heard.poll.event
    payload = event_payload(fields, event.fields)
    occurred = fields.get(event.occurred_at) if event.occurred_at else None
    return Answered(
        event_id=f"evt_{clock.new_id()}",
        event=event.name,
        payload=payload,
        digest=digest(payload),
        validators=validators,
        declaration=heard.declaration,
        occurred_at=None if occurred is None else int(occurred.timestamp() * 1000),
        conditional=conditional,
        hold=hold,
    )
