"""What the engine's tests share: a virtual clock, the reference provider, and an outside API of plain functions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from bide.core.answer import Reader
from bide.core.conditional import Validators
from bide.core.declaration import Connection, EventType, Operation, Poll
from bide.core.fields import parse_field_type
from bide.core.http import Headers, Response
from bide.core.template import Template
from bide.engine.asking import HeardPoll, declaration_hash
from bide.provider import EventRow, Schedule, Subscription
from bide.providers.memory import MemoryProvider
from bide.telemetry import Record, Telemetry
from bide.testing import VirtualClock

FIELDS = {"symbol": parse_field_type("str"), "price": parse_field_type("number")}
PRICE_CHANGED = EventType("shop.PriceChanged", FIELDS, public=True)
MINUTE = timedelta(minutes=1)


def price(amount: object, *, etag: str | None = None, **headers: str) -> Response:
    """An answer of 200 with a price."""
    fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
    if etag is not None:
        fields.append(("ETag", etag))
    body = json.dumps({"symbol": "A", "price": amount}).encode()
    return Response(200, Headers(fields), body, "http://shop.test/price")


def not_modified(**headers: str) -> Response:
    """An answer of 304."""
    return Response(304, Headers(headers.items()), b"", "http://shop.test/price")


R = TypeVar("R", bound=Record)
Answer = Response | Exception
Script = Callable[[str, Validators], Answer]


@dataclass
class Api:
    """The other side, as a connection's client shows it: ``script`` decides what each call is answered."""

    clock: VirtualClock
    script: Script = field(default=lambda name, validators: price(1))
    seconds: float = 0.0
    wait: Callable[[str], Awaitable[None]] | None = None
    calls: list[tuple[float, str, Validators]] = field(default_factory=list)

    def caller(self, name: str) -> ApiCaller:
        return ApiCaller(self, name)

    def times(self, name: str | None = None) -> list[float]:
        return [at for at, called, _ in self.calls if name in (None, called)]


@dataclass
class ApiCaller:
    api: Api
    name: str

    async def call(self, operation: Operation, validators: Validators) -> Response:
        self.api.calls.append((self.api.clock.monotonic(), self.name, validators))
        if self.api.seconds:
            await self.api.clock.sleep(self.api.seconds)
        if self.api.wait is not None:
            await self.api.wait(self.name)
        answer = self.api.script(self.name, validators)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def run(self, operation: Operation) -> object:
        raise AssertionError("no function operations here")


@dataclass
class Rig:
    """One process's worth of engine over a provider that may be shared with another rig."""

    clock: VirtualClock
    provider: MemoryProvider
    telemetry: Telemetry
    told: list[Record]
    api: Api

    @classmethod
    def make(cls, clock: VirtualClock | None = None, provider: MemoryProvider | None = None) -> Rig:
        clock = clock or VirtualClock()
        telemetry, told = Telemetry(), list[Record]()
        telemetry.listen(told.append)
        return cls(clock, provider or MemoryProvider(clock), telemetry, told, Api(clock))

    def heard(
        self,
        name: str,
        *,
        every: timedelta = MINUTE,
        max_concurrent: int | None = None,
        quiet_after: timedelta | None = None,
        event: EventType = PRICE_CHANGED,
        fingerprint: str = "GET /price",
        hint_clamp: timedelta = timedelta(days=1),
    ) -> HeardPoll:
        """The poll ``<connection>.<poll>``."""
        connection = Connection(
            name.split(".", maxsplit=1)[0],
            "shop",
            Template("http://shop.test"),
            max_concurrent=max_concurrent,
            quiet_after=quiet_after,
            hint_clamp=hint_clamp,
        )
        operation = Operation("price", FIELDS, Reader(FIELDS), fingerprint=fingerprint)
        poll = Poll(name, connection.name, operation, every, event, active=True, reason="heard by audit")
        return HeardPoll(
            poll, connection, self.api.caller(name), Schedule(name, every), declaration_hash(poll, connection)
        )

    def polls(self, *names: str, every: timedelta = MINUTE) -> Mapping[str, HeardPoll]:
        return {name: self.heard(name, every=every) for name in names}

    async def subscribe(self, name: str = "audit", event: str = PRICE_CHANGED.name) -> None:
        await self.provider.register_subscriptions(
            [Subscription(name, event, "function", "test:hear", timedelta(days=3))]
        )

    async def events(self) -> list[EventRow]:
        return await self.provider.events(limit=1000)

    def told_of(self, kind: type[R]) -> list[R]:
        return [record for record in self.told if isinstance(record, kind)]
