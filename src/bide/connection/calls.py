"""A call through a connection: one or more attempts, each in a slot of its own, within one deadline."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from bide.clock import Clock
from bide.connection.failures import failure, is_passing
from bide.core.durations import format_duration
from bide.core.hints import retry_after
from bide.core.http import READS, Request, Response, shown_url
from bide.core.pacing import Backoff
from bide.errors import CallError
from bide.slots import SlotId, Slots
from bide.telemetry import CallAttempted, Telemetry

CALL_BACKOFF = Backoff(timedelta(milliseconds=100), timedelta(seconds=2))
"""Between attempts of one call; drawn with full jitter."""


class Transport(Protocol):
    """What carries one attempt; :class:`bide.connection.transport.HttpClient` does."""

    async def send(
        self, request: Request, *, timeout: float, bound: frozenset[str], shown: str | None
    ) -> Response:
        """The whole answer, whatever its status, within ``timeout`` seconds; raises ``CallError``."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One call to make. ``timeout`` (seconds) bounds all of it; ``retries`` are further attempts.

    ``allow``: statuses that are answers besides 2xx; ``conditional``: so is 304.
    """

    operation: str
    request: Request
    bound: frozenset[str]
    shown: str | None
    timeout: float
    retries: int
    allow: frozenset[int] = frozenset()
    conditional: bool = False

    @property
    def address(self) -> str:
        """Where it goes, as it may be shown."""
        return self.shown or shown_url(self.request.url)

    @property
    def subject(self) -> str:
        """What messages are about."""
        return f"{self.request.method} {self.address}"


class Caller:
    """Makes the calls of one connection."""

    def __init__(
        self, connection: str, *, transport: Transport, slots: Slots, clock: Clock, telemetry: Telemetry
    ) -> None:
        self.clock = clock
        self._connection = connection
        self._transport = transport
        self._slots = slots
        self._telemetry = telemetry

    async def perform(self, call: Call) -> Response:
        """The answer, after as many attempts as it takes and is allowed.

        A failed attempt is made again if the request cannot have done anything (a read, or one that was certainly
        not sent) and the failure may pass: a broken or refused connection, 429, 5xx. Between attempts it waits by
        :data:`CALL_BACKOFF`, or longer where the server says so, without a slot, and never into the deadline.
        Raises ``CallError`` and, where the caller does not wait for slots, ``NoFreeSlot``.
        """
        ends_at = self.clock.monotonic() + call.timeout
        attempt = 1
        while True:
            began_at = self.clock.monotonic()
            try:
                slot = self._slots.try_acquire() or await self._wait_for_slot(call, ends_at)
                try:
                    left = max(ends_at - self.clock.monotonic(), 0.001)
                    answer = await self._transport.send(
                        call.request, timeout=left, bound=call.bound, shown=call.shown
                    )
                finally:
                    self._slots.release(slot)
                failed = self._refusal(call, answer)
                status: int | None = answer.status
            except CallError as error:
                failed, status = error, error.status
            now = self.clock.monotonic()
            delay = None if failed is None else self._retry_in(call, failed, attempt, ends_at - now)
            if self._telemetry.heard:
                self._report(call, attempt, status, failed=failed, elapsed=now - began_at, delay=delay)
            if failed is None:
                return answer
            if delay is None:
                raise failed
            await self.clock.sleep(delay)
            attempt += 1

    async def _wait_for_slot(self, call: Call, ends_at: float) -> SlotId:
        try:
            async with asyncio.timeout(ends_at - self.clock.monotonic()):
                return await self._slots.acquire()
        except TimeoutError:
            waited = format_duration(timedelta(seconds=call.timeout))
            reason = (
                f"no slot of connection {self._connection} (max_concurrent {self._slots.cap}) "
                f"came free within {waited}"
            )
            failed = failure("timeout", call.subject, reason, sent=False)
        raise failed

    def _refusal(self, call: Call, answer: Response) -> CallError | None:
        """Why ``answer`` is none; None where it is one."""
        status = answer.status
        if 200 <= status < 300 or status in call.allow or (status == 304 and call.conditional):
            return None
        if status == 304:
            reason = "answered 304 (not modified) to a request that had no condition"
            return failure("protocol", call.subject, reason, status=status)
        failed = failure("status", call.subject, _said(answer), status=status)
        hint = retry_after(answer.headers, now_ms=self.clock.utc_ms())
        failed.hint_ms = None if hint is None else math.ceil(hint.total_seconds() * 1000)
        return failed

    def _retry_in(self, call: Call, failed: CallError, attempt: int, left: float) -> float | None:
        """Seconds to wait before the next attempt; None where there is none."""
        if attempt > call.retries or not failed.retryable:
            return None
        if failed.sent and call.request.method not in READS:
            return None
        delay = CALL_BACKOFF.delay(attempt, self.clock.draw()).total_seconds()
        delay = max(delay, (failed.hint_ms or 0) / 1000)
        return delay if delay < left else None

    def _report(
        self,
        call: Call,
        attempt: int,
        status: int | None,
        *,
        failed: CallError | None,
        elapsed: float,
        delay: float | None,
    ) -> None:
        self._telemetry.emit(
            CallAttempted(
                connection=self._connection,
                operation=call.operation,
                method=call.request.method,
                url=call.address,
                attempt=attempt,
                outcome="answered" if failed is None else failed.kind,
                status=status,
                elapsed_ms=elapsed * 1000,
                retry_in_ms=None if delay is None else delay * 1000,
            )
        )


def _said(answer: Response) -> str:
    by_way = f" after {len(answer.hops)} redirects" if answer.hops else ""
    word = "; asking again later may help" if is_passing(answer.status) else ""
    return f"answered {answer.status}{by_way}{word}"
