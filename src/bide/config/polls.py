"""The running polls: each poll of a package for each connection, with whether it is heard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from bide.config.answers import complete
from bide.config.connections import ConnectionShape
from bide.config.operations import OperationShape
from bide.config.packages import PollShape
from bide.core.abilities import StoreKind, able, cannot
from bide.core.answer import Reader
from bide.core.declaration import Connection, Operation, Poll, RequestTemplate
from bide.core.template import Template

Heard = Mapping[str, Sequence[str]]
"""Names of the subscribers of each event, by the event's full name."""


def compile_polls(shape: ConnectionShape, heard: Heard) -> Iterator[Poll]:
    """Every poll of one connection, active or not. Only for what no mistake was found in."""
    assert shape.package is not None
    assert shape.connection is not None
    for name, poll in shape.package.polls.items():
        yield _compile_poll(shape.connection, poll, shape.intervals.get(name, poll.every), heard)


def check_store(connections: Iterable[ConnectionShape], heard: Heard, kind: StoreKind | None) -> None:
    """Report each connection whose events are heard, where a store of ``kind`` cannot keep events."""
    if kind is None or "events" not in kind.lacks:
        return
    for connection in connections:
        polls = connection.package.polls.values() if connection.package is not None else ()
        events = sorted(
            {poll.emits.name for poll in polls if poll.emits is not None and poll.emits.name in heard}
        )
        if events:
            connection.place.refuse(
                f"its polls emit {' and '.join(events)} (heard by {', '.join(heard[events[0]])}), "
                f"and {cannot(kind, 'events')}",
                f"Use a provider that can: {able('events')}.",
                code="event.store_required",
            )


def _compile_poll(connection: Connection, poll: PollShape, every: timedelta | None, heard: Heard) -> Poll:
    call, emits = poll.call, poll.emits
    assert call is not None
    assert emits is not None
    assert every is not None
    hearers = heard.get(emits.name, ())
    if not hearers:
        reason = f"nobody hears {emits.name}"
    elif connection.paused:
        reason = f"connection {connection.name} is paused"
    else:
        reason = f"heard by {', '.join(hearers)}"
    return Poll(
        name=f"{connection.name}.{poll.name}",
        connection=connection.name,
        operation=_compile_operation(connection, call),
        every=every,
        event=emits.event_type(),
        active=bool(hearers) and not connection.paused,
        reason=reason,
    )


def _compile_operation(connection: Connection, shape: OperationShape) -> Operation:
    answer = complete(shape.answer or {})
    return Operation(
        name=shape.name,
        answer=answer,
        reader=Reader(answer, complete(shape.select) or None),
        request=shape.request,
        function=shape.function,
        retries=shape.retries,
        deadline=shape.deadline,
        public=shape.public,
        fingerprint=_fingerprint(connection, shape),
    )


def _fingerprint(connection: Connection, shape: OperationShape) -> str:
    """A digest of what is asked, where, and how the answer is read.

    It covers texts as they were declared, variables by their names, so that a secret that is renewed changes
    nothing; and being a digest it tells nobody a secret that was written out.
    """
    described = {
        "base_url": connection.base_url.text,
        "headers": _texts(connection.headers),
        "request": _described(shape.request),
        "function": shape.reference,
        "answer": {name: str(kind) for name, kind in (shape.answer or {}).items()},
        "select": dict(shape.select),
    }
    text = json.dumps(described, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _described(request: RequestTemplate | None) -> Any:
    if request is None:
        return None
    return {
        "method": request.method,
        "path": request.path.text,
        "query": _texts(request.query),
        "headers": _texts(request.headers),
        "body": request.body,
    }


def _texts(templates: Mapping[str, Template]) -> dict[str, str]:
    return {name: made.text for name, made in templates.items()}
