"""Deliveries: one event brought to one subscriber, as the handler of a work item.

At least once: a delivery is done when its receiver said so, and is tried again otherwise. One subscriber's
failure touches no other, since each delivery is an item of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, assert_never

from bide.clock import Clock, is_cancelled
from bide.core.change import read_json
from bide.core.declaration import Command, Function, Subscriber, Webhook
from bide.core.delivery import Delivered, Gone, Refused, judge_response, sign
from bide.core.http import Headers, Request, Response, shown_url
from bide.core.pacing import DELIVERY_BACKOFF
from bide.engine.commands import run_command
from bide.engine.functions import FunctionCalls, told_of
from bide.engine.outcome import Dead, GivenBack, Outcome, Retried, Succeeded
from bide.errors import AnswerError, CallError, NoFreeSlot
from bide.provider import Events, WorkItem
from bide.slots import NoWait, no_wait
from bide.telemetry import SubscriptionEnded, Telemetry

SLOT_RETRY = timedelta(seconds=1)
"""A delivery that found no free slot is due again so much later."""

ANSWER_CAP = 1024 * 1024
"""Bytes of a webhook's answer that are read; what it says beyond its status matters to nobody."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a function subscriber is called with: one event, on its way to this subscriber.

    ``data`` are the event's fields (numbers exact: ``int`` or ``Decimal``); ``previous`` those of the poll's
    event before, or None. ``id`` is the same at every attempt and replay, so that a receiver can tell what it
    already has; ``seq`` grows with every event of the store. ``attempt`` counts from 1.
    """

    id: str
    subscriber: str
    attempt: int
    event: str
    event_id: str
    seq: int
    connection: str
    poll: str
    created_at: datetime
    occurred_at: datetime | None
    data: Mapping[str, Any]
    previous: Mapping[str, Any] | None


LONGEST_HINT = timedelta(days=1)
"""What a receiver's Retry-After is cut to."""


class Sender(Protocol):
    """Sends one HTTP request; ``shown`` is its address for messages, where the real one holds a secret."""

    async def send(
        self,
        request: Request,
        *,
        timeout: float,
        cap: int,
        redirects: int,
        same_origin: bool,
        shown: str | None,
    ) -> Response: ...


class DeliveryHandler:
    """Brings deliveries to the subscribers that this process declares."""

    def __init__(
        self,
        subscribers: Mapping[str, Subscriber],
        *,
        sender: Sender,
        events: Events,
        clock: Clock,
        telemetry: Telemetry,
        environment: Mapping[str, str],
        hide: Callable[[str], str] = str,
        folder: str | None = None,
    ) -> None:
        self._subscribers = subscribers
        self._sender = sender
        self._events = events
        self._clock = clock
        self._telemetry = telemetry
        self._environment = environment
        self._hide = hide
        self._calls = {name: FunctionCalls() for name in subscribers}
        self._folder = folder

    async def handle(self, item: WorkItem) -> Outcome:
        """One attempt. An attempt that found a connection's slots all out is given back uncounted,
        also where the handler swallowed the exception."""
        subscriber = self._subscribers[item.name]
        if item.unreadable is not None:
            return Dead(f"the stored event cannot be read: {item.unreadable}")
        scope = NoWait()
        entered = no_wait.set(scope)
        try:
            outcome = await self._attempt(subscriber, item)
        except NoFreeSlot as error:
            return GivenBack(str(error), SLOT_RETRY)
        except CallError as error:
            outcome = self._failed(item, str(error), error.hint_ms)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise  # we did: a stop, or a lost lock
            outcome = self._failed(item, told_of(error))
        finally:
            no_wait.reset(entered)
            scope.over = True
        if scope.starved is not None:
            return GivenBack(f"connection {scope.starved!r} had no free slot", SLOT_RETRY)
        return outcome

    async def _attempt(self, subscriber: Subscriber, item: WorkItem) -> Outcome:
        match subscriber.target:
            case Webhook() as webhook:
                return await self._post(webhook, item)
            case Command() as command:
                return await self._run(command, item)
            case Function() as function:
                return await self._call(function, item)
            case _ as unreachable:
                assert_never(unreachable)

    async def _post(self, webhook: Webhook, item: WorkItem) -> Outcome:
        request = self._webhook_request(webhook, item)
        try:
            answer = await self._sender.send(
                request,
                timeout=webhook.timeout.total_seconds(),
                cap=ANSWER_CAP,
                redirects=5,
                same_origin=True,
                shown=shown_url(webhook.url.text) if webhook.url.variables else None,
            )
        except CallError as failed:
            if failed.status is None:
                raise
            # Its answer is broken or endless; what it said of the delivery is its status.
            answer = Response(failed.status, Headers(), b"", request.url)
        match judge_response(answer.status, answer.headers, self._clock.utc_ms()):
            case Delivered():
                return Succeeded()
            case Gone():
                return await self._end_subscription(item)
            case Refused(error=error, retry_after=retry_after):
                hint_ms = None if retry_after is None else retry_after // timedelta(milliseconds=1)
                return self._failed(item, error, hint_ms)
            case _ as unreachable:
                assert_never(unreachable)

    def _webhook_request(self, webhook: Webhook, item: WorkItem) -> Request:
        try:
            url = webhook.url.fill(self._environment)
            extra = [(name, value.fill(self._environment)) for name, value in webhook.headers.items()]
            secret = webhook.secret.fill(self._environment) if webhook.secret else None
        except KeyError as missing:
            reason = f"environment variable {missing.args[0]} is not set"
            raise CallError("environment", reason, sent=False) from missing
        timestamp = self._clock.utc_ms() // 1000
        headers = [
            ("content-type", "application/json"),
            ("webhook-id", item.id),
            ("webhook-timestamp", str(timestamp)),
            *extra,
        ]
        if secret is not None:
            headers.append(("webhook-signature", sign(secret, item.id, timestamp, item.payload)))
        return Request("POST", url, tuple(headers), item.payload.encode())

    async def _end_subscription(self, item: WorkItem) -> Outcome:
        reason = "the receiver answered 410 Gone"
        await self._events.end_subscriptions([item.name], reason)
        self._telemetry.emit(SubscriptionEnded(item.name, reason))
        return Dead(reason)

    async def _run(self, command: Command, item: WorkItem) -> Outcome:
        environment = {
            **self._environment,
            "BIDE_DELIVERY_ID": item.id,
            "BIDE_SUBSCRIBER": item.name,
            "BIDE_ATTEMPT": str(item.attempt),
        }
        error = await run_command(
            command.argv,
            item.payload.encode(),
            environment=environment,
            folder=self._folder,
            limit_s=command.timeout.total_seconds(),
            clock=self._clock,
        )
        return Succeeded() if error is None else self._failed(item, error)

    async def _call(self, function: Function, item: WorkItem) -> Outcome:
        assert function.function is not None, "resolved when the app opened"
        try:
            delivery = read_delivery(item)
        except (AnswerError, LookupError, TypeError, ValueError) as error:
            return Dead(f"the stored event cannot be read: {error}")
        calls = self._calls[item.name]
        if calls.lingering >= self._subscribers[item.name].max_concurrent:
            return GivenBack("its last call, which ran out of time, is still running", SLOT_RETRY)
        limit = None if function.timeout is None else function.timeout.total_seconds()
        try:
            async with asyncio.timeout(limit) as within:
                await calls.make(function.function, delivery)
        except TimeoutError:
            if not within.expired():
                raise  # the function's own
            return self._failed(item, f"no end after {limit:g} s")
        return Succeeded()

    def _failed(self, item: WorkItem, error: str, hint_ms: int | None = None) -> Retried:
        delay = DELIVERY_BACKOFF.delay(item.attempt, self._clock.draw())
        if hint_ms is not None:
            delay = max(delay, min(timedelta(milliseconds=hint_ms), LONGEST_HINT))
        return Retried(self._hide(error), delay)


def read_delivery(item: WorkItem) -> Delivery:
    """The delivery that a work item carries. Raises ``AnswerError`` or ``LookupError`` where it is unreadable."""
    envelope = read_json(item.payload)
    occurred = envelope["occurred_at"]
    return Delivery(
        id=item.id,
        subscriber=item.name,
        attempt=item.attempt,
        event=envelope["type"],
        event_id=envelope["id"],
        seq=envelope["seq"],
        connection=envelope["connection"],
        poll=envelope["poll"],
        created_at=datetime.fromisoformat(envelope["timestamp"]),
        occurred_at=None if occurred is None else datetime.fromisoformat(occurred),
        data=envelope["data"],
        previous=envelope["previous"],
    )
