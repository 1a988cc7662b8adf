"""Attempts, slots, waits and records of one call, with time and chance in the test's hands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from bide.connection.calls import Call, Caller
from bide.core.http import Headers, Request, Response
from bide.errors import CallError, NoFreeSlot
from bide.slots import NoWait, Slots, no_wait
from bide.telemetry import CallAttempted, Record, Telemetry
from bide.testing import VirtualClock

Step = Response | CallError | Callable[[], Any]


def response(status: int = 200, *fields: tuple[str, str]) -> Response:
    return Response(status, Headers(fields), b"{}", "http://h/x")


def broken(kind: str = "reset", *, retryable: bool = True, sent: bool = True) -> CallError:
    return CallError(kind, f"GET http://h/x: {kind}", retryable=retryable, sent=sent)


@dataclass
class Rig:
    """A caller whose transport answers as scripted; the last step repeats."""

    steps: list[Step] = field(default_factory=lambda: [response()])
    cap: int | None = None
    draws: Any = 0.5
    sent_at: list[float] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = VirtualClock(autojump=True, draws=self.draws)
        self.slots = Slots("eu", self.cap)
        telemetry = Telemetry()
        telemetry.listen(self.records.append)
        self.caller = Caller("eu", transport=self, slots=self.slots, clock=self.clock, telemetry=telemetry)

    async def send(
        self, request: Request, *, timeout: float, bound: frozenset[str], shown: str | None
    ) -> Response:
        self.sent_at.append(self.clock.monotonic())
        self.timeouts.append(timeout)
        step = self.steps[min(len(self.sent_at), len(self.steps)) - 1]
        if callable(step):
            step = await step()
        if isinstance(step, CallError):
            raise step
        assert isinstance(step, Response)
        return step

    async def call(
        self,
        method: str = "GET",
        *,
        retries: int = 2,
        timeout: float = 30.0,
        allow: frozenset[int] = frozenset(),
        conditional: bool = False,
    ) -> Response:
        request = Request(method, "http://h/x?key=canary")
        call = Call("price", request, frozenset(), None, timeout, retries, allow, conditional)
        return await self.caller.perform(call)

    async def failure(self, *args: Any, **options: Any) -> CallError:
        with pytest.raises(CallError) as caught:
            await self.call(*args, **options)
        assert self.slots.in_use == 0
        return caught.value

    @property
    def attempts(self) -> list[CallAttempted]:
        return [record for record in self.records if isinstance(record, CallAttempted)]


# --- what is asked again -----------------------------------------------------------------------------------

PASSING: list[Step] = [
    broken("reset"),
    broken("incomplete"),
    broken("refused", sent=False),
    broken("unresolved", sent=False),
    response(500),
    response(503),
    response(429),
    response(408),
]
LASTING: list[Step] = [
    broken("tls", retryable=False, sent=False),
    broken("too_large", retryable=False),
    broken("encoding", retryable=False),
    broken("protocol", retryable=False),
    broken("redirects", retryable=False),
    response(400),
    response(401),
    response(404),
    response(410),
    response(304),
    response(301),
]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("step", PASSING)
async def test_a_read_is_asked_again_after_what_may_pass(step: Step, method: str) -> None:
    rig = Rig([step, step, response()])
    assert (await rig.call(method)).status == 200
    assert len(rig.sent_at) == 3
    assert [record.attempt for record in rig.attempts] == [1, 2, 3]


@pytest.mark.parametrize("step", LASTING)
async def test_what_will_not_pass_is_not_asked_again(step: Step) -> None:
    rig = Rig([step])
    error = await rig.failure()
    assert len(rig.sent_at) == 1
    assert not error.retryable


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("step", PASSING)
async def test_a_write_is_made_again_only_where_nothing_was_sent(step: Step, method: str) -> None:
    rig = Rig([step, response()])
    if isinstance(step, CallError) and not step.sent:
        assert (await rig.call(method)).status == 200
    else:
        await rig.failure(method)
        assert len(rig.sent_at) == 1


@pytest.mark.parametrize("retries", [0, 1, 2, 5])
async def test_attempts_are_counted_and_none_waits_after_the_last(retries: int) -> None:
    rig = Rig([broken()])
    await rig.failure(retries=retries, timeout=1000)
    assert len(rig.sent_at) == retries + 1
    assert rig.clock.monotonic() == rig.sent_at[-1]
    assert [record.retry_in_ms is None for record in rig.attempts] == [False] * retries + [True]


async def test_the_last_failure_is_the_one_that_is_raised() -> None:
    rig = Rig([broken("refused", sent=False), response(503), broken("incomplete")])
    assert (await rig.failure()).kind == "incomplete"


# --- waits -------------------------------------------------------------------------------------------------


async def test_waits_double_from_a_tenth_of_a_second_to_two_with_full_jitter() -> None:
    rig = Rig([broken()], draws=0.999999)
    await rig.failure(retries=7, timeout=1000)
    waits = [later - sooner for sooner, later in zip(rig.sent_at, rig.sent_at[1:], strict=False)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0], rel=1e-4)
    rig = Rig([broken()], draws=0.0)
    await rig.failure(retries=3)
    assert rig.sent_at == [0.0] * 4


async def test_no_attempt_starts_after_the_deadline() -> None:
    rig = Rig([broken()], draws=0.999999)
    await rig.failure(retries=1000, timeout=1.0)
    assert rig.sent_at[-1] < 1.0
    assert len(rig.sent_at) == 4  # at 0, 0.1, 0.3, 0.7; the next would be at 1.5
    assert rig.clock.monotonic() < 1.0
    assert rig.timeouts == pytest.approx([1.0, 0.9, 0.7, 0.3], rel=1e-4)


async def test_what_is_left_of_the_deadline_bounds_a_later_attempt() -> None:
    rig = Rig()

    async def fail_slowly() -> CallError:
        await rig.clock.sleep(20)
        return broken()

    rig.steps = [fail_slowly, response()]
    await rig.call(timeout=30)
    assert rig.timeouts == pytest.approx([30, 10], abs=0.1)


@pytest.mark.parametrize("status", [429, 503, 500])
async def test_a_wait_that_the_server_asks_for_is_kept(status: int) -> None:
    rig = Rig([response(status, ("Retry-After", "7")), response()])
    await rig.call()
    assert rig.sent_at == [0.0, 7.0]
    assert rig.attempts[0].retry_in_ms == 7000


async def test_a_wait_asked_for_that_does_not_fit_ends_the_call_at_once() -> None:
    for asked in ("30", "31", "9999999999", "9" * 400):
        rig = Rig([response(429, ("Retry-After", asked)), response()])
        error = await rig.failure(timeout=30)
        assert rig.sent_at == [0.0]
        assert rig.clock.monotonic() == 0
        assert (error.kind, error.status, error.retryable) == ("status", 429, True)
        assert error.hint_ms is not None
        assert error.hint_ms >= 30_000


@pytest.mark.parametrize("asked", ["0", "", "-5", "0.493", "1m0s", "soon"])
async def test_a_wait_that_is_none_leaves_the_own_one(asked: str) -> None:
    rig = Rig([response(429, ("Retry-After", asked)), response()], draws=0.999999)
    await rig.call()
    assert rig.sent_at == pytest.approx([0.0, 0.1], rel=1e-4)


@pytest.mark.parametrize(
    ("field", "hint_ms"),
    [("120", 120_000), ("Tue, 17 Jun 2025 12:02:00 GMT", 120_000), ("-5", None), ("", None), ("0", 0)],
)
async def test_a_hint_comes_with_the_failure(field: str, hint_ms: int | None) -> None:
    date = ("Date", "Tue, 17 Jun 2025 12:00:00 GMT")
    rig = Rig([response(404, ("Retry-After", field), date)])
    assert (await rig.failure()).hint_ms == hint_ms


# --- statuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 299])
async def test_every_success_is_an_answer(status: int) -> None:
    assert (await Rig([response(status)]).call()).status == status


async def test_304_is_an_answer_only_to_a_conditional_request() -> None:
    assert (await Rig([response(304)]).call(conditional=True)).status == 304
    error = await Rig([response(304)]).failure()
    assert (error.kind, error.status) == ("protocol", 304)


async def test_statuses_that_were_allowed_are_answers() -> None:
    rig = Rig([response(404)])
    assert (await rig.call(allow=frozenset({404}))).status == 404
    assert rig.attempts[0].outcome == "answered"


async def test_another_status_is_a_failure_that_names_it() -> None:
    error = await Rig([response(404)]).failure()
    assert (error.kind, error.status, error.hint_ms) == ("status", 404, None)
    assert str(error) == "GET http://h/x: answered 404"
    moved = Response(500, Headers(), b"", "http://h/y", (301, 302))
    assert "after 2 redirects" in str(await Rig([moved]).failure(retries=0))


# --- records -----------------------------------------------------------------------------------------------


async def test_every_attempt_is_recorded_without_secrets() -> None:
    rig = Rig([broken("refused", sent=False), response(503), response(204)])
    await rig.call()
    assert [(r.attempt, r.outcome, r.status) for r in rig.attempts] == [
        (1, "refused", None),
        (2, "status", 503),
        (3, "answered", 204),
    ]
    for record in rig.attempts:
        assert (record.connection, record.operation, record.method) == ("eu", "price", "GET")
        assert record.url == "http://h/x"
    assert "canary" not in repr(rig.records)


async def test_the_time_of_an_attempt_is_its_own() -> None:
    rig = Rig()

    async def take_two_seconds() -> Response:
        await rig.clock.sleep(2)
        return response(503)

    rig.steps = [take_two_seconds, response()]
    await rig.call()
    assert rig.attempts[0].elapsed_ms == pytest.approx(2000)
    assert rig.attempts[1].elapsed_ms == pytest.approx(0)


async def test_nothing_is_recorded_where_nobody_listens() -> None:
    rig = Rig()
    quiet = Caller("eu", transport=rig, slots=rig.slots, clock=rig.clock, telemetry=Telemetry())
    await quiet.perform(Call("price", Request("GET", "http://h/x"), frozenset(), None, 30.0, 2))
    assert rig.records == []


# --- slots -------------------------------------------------------------------------------------------------


async def test_a_slot_is_held_for_each_attempt_and_not_while_a_retry_waits() -> None:
    rig = Rig(cap=1)
    in_use: list[int] = []

    async def look() -> CallError:
        in_use.append(rig.slots.in_use)
        return broken()

    async def watch() -> None:
        await rig.clock.sleep(0.01)
        in_use.append(rig.slots.in_use)

    rig.steps = [look, look]
    watching = asyncio.ensure_future(watch())
    await rig.failure(retries=1)
    await watching
    assert in_use == [1, 0, 1]
    assert rig.slots.in_use == 0


async def test_a_call_waits_for_a_slot_in_line() -> None:
    rig = Rig(cap=1)
    slot = await rig.slots.acquire()
    waiting = asyncio.ensure_future(rig.call())
    await asyncio.sleep(0)
    assert rig.slots.waiting == 1
    rig.slots.release(slot)
    assert (await waiting).status == 200
    assert rig.slots.in_use == 0


async def test_waiting_for_a_slot_counts_into_the_deadline() -> None:
    rig = Rig(cap=1)
    await rig.slots.acquire()
    with pytest.raises(CallError) as caught:
        await rig.call(timeout=0.03)
    error = caught.value
    assert (error.kind, error.sent) == ("timeout", False)
    assert "max_concurrent 1" in str(error)
    assert rig.sent_at == []
    assert rig.slots.waiting == 0
    assert rig.attempts[0].outcome == "timeout"


async def test_a_delivery_does_not_wait_for_a_slot() -> None:
    rig = Rig(cap=1)
    slot = await rig.slots.acquire()
    mark = NoWait()
    token = no_wait.set(mark)
    try:
        with pytest.raises(NoFreeSlot):
            await rig.call()
        assert mark.starved == "eu"
        assert rig.sent_at == []
        rig.slots.release(slot)
        assert (await rig.call()).status == 200
    finally:
        no_wait.reset(token)


@pytest.mark.parametrize(
    "ending", [response(), response(404), broken(), RuntimeError("bug"), asyncio.CancelledError()]
)
async def test_the_slot_comes_back_whichever_way_an_attempt_ends(ending: Any) -> None:
    rig = Rig(cap=1)

    async def end() -> Response:
        if isinstance(ending, BaseException):
            raise ending
        assert isinstance(ending, Response)
        return ending

    rig.steps = [end]
    with contextlib.suppress(CallError, RuntimeError, asyncio.CancelledError):
        await rig.call(retries=0)
    assert rig.slots.in_use == 0
    assert rig.slots.waiting == 0


async def test_a_call_cancelled_while_it_waits_to_try_again_ends_at_once() -> None:
    rig = Rig([broken()])
    rig.clock.autojump = False
    calling = asyncio.ensure_future(rig.call())
    for _ in range(5):
        await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert rig.slots.in_use == 0
    assert len(rig.sent_at) == 1
