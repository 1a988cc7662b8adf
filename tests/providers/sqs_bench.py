"""The SQS provider on its bench: an emulator whose clock is the test's, and a side door to its messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import aiohttp

from bide.clock import Clock
from bide.core.abilities import ABILITIES
from bide.provider import ItemRow, ItemState, Provider
from bide.providers.sqs import SqsProvider
from bide.providers.sqs.envelope import Envelope, read
from bide.providers.sqs.session import Session
from bide.providers.sqs.sessions import Sessions
from bide.testing.clock import VirtualClock
from bide.testing.conformance import Bench
from bide.testing.skew import SkewedClock
from tests.providers.sqs_server import Emulator
from tests.providers.tcp_proxy import TcpProxy

_PATIENCE_S = 10.0


class ShiftedSession(Session):
    """Tells the emulator what time it is with every request."""

    servers: VirtualClock

    async def open(self) -> None:
        await super().open()
        self._client.meta.events.register("before-send.sqs", self._stamp)

    def _stamp(self, request: Any, **_: Any) -> None:
        request.headers["x-bench-now"] = str(self.servers.utc_ms())


class ShiftedSessions(Sessions):
    """Its sessions are shifted to ``servers``."""

    servers: VirtualClock

    def _made(self) -> Session:
        session = ShiftedSession(self.address, self.clock, self.hour, self.traffic, self._queues)
        session.servers = self.servers
        return session


class ShiftedProvider(SqsProvider):
    """The provider, on a virtual clock; the process's own wall clock is ``ahead`` seconds before SQS's."""

    def __init__(self, address: str, clock: VirtualClock, ahead: float = 0) -> None:
        own: Clock = SkewedClock(clock, ahead)
        super().__init__(address, clock=own)
        self.sessions = self._sessions = ShiftedSessions(self._sessions.address, own)
        self.sessions.servers = clock
        self.holdings = self._holdings


_TWENTY = "a fetch waits for 20 s at most, as a receive does; test_sqs_waiting has the same for 15 s"
_NEXT = "SQS does not tell when a message will be visible"
_IDS = "SQS does not compare ids over calls: a second item of an id is a second message"
_CLOCK = "the clock is AWS's, and nobody sets it back"

ABSENT: dict[int | str, str] = {
    "test_01_a_blocked_fetch_ends_when_the_lock_of_a_place_expires": "SQS cannot limit what runs of a queue",
    "test_01_a_blocked_fetch_is_not_ended_by_a_lock_that_is_renewed": _TWENTY,
    "test_03_the_lock_starts_when_items_are_taken": _TWENTY,
    "test_03_the_lock_ends_when_it_is_over_however_long_the_wait_was": _TWENTY,
    "test_04_empty_says_when_something_will_be_eligible": _NEXT,
    "test_05_a_long_handler_that_renews_is_the_only_one": f"{_NEXT}; test_sqs_waiting has the rest of it",
    "test_09_a_delayed_item_comes_after_the_clock_was_set_back": _CLOCK,
    "test_09_a_lock_outlasts_a_clock_set_back_by_one_length": _CLOCK,
    "test_09_a_workers_clock_does_not_count": f"{_NEXT}; test_sqs_waiting has the rest of it",
    "test_10_enqueueing_says_what_became_of_each_item": _IDS,
    "test_10_one_of_many_enqueued_at_once_with_one_id_is_kept": _IDS,
    "test_10_of_many_payloads_at_once_one_has_the_key": "SQS cannot keep the keys of items",
    "test_15_a_blocked_fetch_outlives_a_lost_connection": "SQS does not notice that nobody hears a receive any more: "
    "what it answers then comes back when its lock ends",
    "test_prune_buries_what_nobody_fetches": "SQS does not look through what waits; a fetch buries what is past "
    "its life, and SQS itself drops what is older than the queue's MessageRetentionPeriod",
}
"""Single tests of what SQS keeps weaker, each with the reason."""


class SqsBench(Bench):
    """Queues of their own in ``emulator``, behind a proxy that can be cut."""

    absent = MappingProxyType(ABSENT)
    lacks = MappingProxyType({ability: f"SQS cannot {what}" for ability, what in ABILITIES.items()})

    def __init__(self, emulator: Emulator, prefix: str) -> None:
        self._emulator = emulator
        self._prefix = prefix
        self.proxy = TcpProxy(emulator.port)
        self.clock = VirtualClock()
        self.clock.busy_while(lambda: any(provider.sessions.traffic.short for provider in self._open))
        self._open: list[ShiftedProvider] = []

    @property
    def name(self) -> str:
        """The SQS queue of ``q``."""
        return f"{self._prefix}-q"

    async def open(self) -> None:
        self._http = aiohttp.ClientSession()
        await self.proxy.open()
        self.provider = self.sqs = self.made()
        await self.provider.open()

    async def close(self) -> None:
        for provider in list(self._open):
            await self.shut(provider)
        await self._http.close()
        await self.proxy.close()
        await asyncio.sleep(0)

    def made(self, ahead: float = 0, options: str = "create=true") -> ShiftedProvider:
        address = f"sqs://{self._prefix}?region=eu-west-1&endpoint={self.proxy.endpoint}&{options}"
        provider = ShiftedProvider(address, self.clock, ahead)
        self._open.append(provider)
        return provider

    async def shut(self, provider: ShiftedProvider) -> None:
        """Close it; a receive that still waits is let end."""
        closing = asyncio.ensure_future(provider.close())
        while not closing.done():
            await asyncio.wait({closing}, timeout=0.02)
            if not closing.done():
                await self.advance(20)
        await closing
        self._open.remove(provider)

    # --- the clock -----------------------------------------------------------------------------------------

    async def advance(self, seconds: float) -> None:
        await self._settle()
        left = seconds
        while left > 0:
            next_in = self.clock.next_in
            step = left if next_in is None else min(max(next_in, 0.0), left)
            await self.clock.advance(step)
            await self._settle()
            left -= step
        await self.clock.advance(0)

    async def _settle(self) -> None:
        """Until every receive that waits has looked at this instant, and what is answered has been heard."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE_S
        await self.clock.advance(0)
        while loop.time() < until:
            waiting = (await self._door("BenchTime"))["Waiting"]
            traffics = [provider.sessions.traffic for provider in self._open]
            if not any(traffic.short for traffic in traffics) and waiting <= sum(
                one.waiting for one in traffics
            ):
                await asyncio.sleep(0)
                if waiting == sum(one.waiting for one in traffics):
                    break
            await asyncio.sleep(0.001)
        await self.clock.advance(0)

    def set_back(self, seconds: float) -> None:
        self.clock.step_wall(-seconds)

    def now_ms(self) -> int:
        return self.clock.utc_ms()

    # --- the side door -------------------------------------------------------------------------------------

    async def corrupt(self, item_id: str) -> None:
        await self._door("BenchDamage", Id=item_id, Prefix=f"{self._prefix}-")

    async def reopen(self) -> None:
        await self.shut(self.sqs)
        self.provider = self.sqs = self.made()
        await self.provider.open()

    @asynccontextmanager
    async def another(self, *, ahead: float = 0) -> AsyncIterator[Provider]:
        provider = self.made(ahead)
        await provider.open()
        try:
            yield provider
        finally:
            await self.shut(provider)

    async def drop(self) -> bool:
        self.proxy.cut()
        return True

    async def item(self, id: str, queue: str = "q") -> ItemRow:
        return next(row for row in await self.rows(queue) if row.id == id)

    async def states(self, queue: str = "q") -> dict[str, str]:
        return {row.id: row.state for row in await self.rows(queue)}

    async def rows(self, queue: str = "q") -> list[ItemRow]:
        """Items of a queue as their messages have them."""
        now = self.now_ms()
        rows = []
        for message in (await self._door("BenchMessages"))["Messages"]:
            name, dead = message["Queue"].removesuffix("-dead"), message["Queue"].endswith("-dead")
            said = read(message["Body"])
            if name == f"{self._prefix}-{queue}" and isinstance(said, Envelope):
                rows.append(_row(message, said, queue, now, dead=dead))
        return rows

    async def messages(self) -> list[dict[str, Any]]:
        """What is in the queues of this bench."""
        messages: list[dict[str, Any]] = (await self._door("BenchMessages"))["Messages"]
        return [one for one in messages if one["Queue"].startswith(self._prefix)]

    async def _door(self, action: str, **data: Any) -> dict[str, Any]:
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        headers |= {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/eu-west-1/sqs/aws4_request"}
        headers["x-bench-now"] = str(self.clock.utc_ms())
        async with self._http.post(self._emulator.endpoint, data=json.dumps(data), headers=headers) as answer:
            told: dict[str, Any] = json.loads(await answer.text())
            assert answer.status == 200, told
            return told


def _row(message: dict[str, Any], said: Envelope, queue: str, now: int, *, dead: bool) -> ItemRow:
    locked = not dead and message["Receives"] > 0 and message["VisibleAt"] > now
    early = said.not_before is not None and message["FirstAt"] < said.not_before
    attempts = 0 if dead else max(message["Receives"] - early, 0)
    state: ItemState = (
        "dead" if dead else ("running" if locked and not (early and attempts == 0) else "ready")
    )
    enqueued_at = message["SentAt"] if said.sent_at is None else said.sent_at
    return ItemRow(
        id=said.id,
        queue=queue,
        name=said.name,
        state=state,
        payload="" if said.unreadable else str(said.payload),
        attempts=said.attempts + attempts,
        deaths=said.deaths + (0 if dead else max(attempts - 1, 0)),
        enqueued_at=enqueued_at,
        visible_at=said.not_before or message["VisibleAt"],
        expires_at=None if said.within_ms is None else enqueued_at + said.within_ms,
        ended_at=message["SentAt"] if dead else None,
        error=said.error,
        max_attempts=said.max_attempts,
        given_back=said.given_back,
    )
