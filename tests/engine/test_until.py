"""Waiting until a condition holds, in virtual time: when it asks, when it gives up, and what it says then."""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from bide import (
    AttemptEnded,
    CallError,
    PollingStrategy,
    RetryAfter,
    SettingError,
    WaitFailed,
    WaitTimeout,
    on_every_attempt,
    poll_result,
    poll_until,
    retry_after,
)
from bide.core.verdict import Failure, NotYet, Success
from bide.testing import VirtualClock

FIXED = PollingStrategy.fixed
ADAPTIVE = PollingStrategy.adaptive
MAKE: Any = poll_until
"""As a program calls it that no type checker reads."""

NEVER: dict[str, Any] = {"condition": lambda value: False, "retry_on": ()}


class Probe:
    """Answers in turn what it is given (the last for ever), raising exceptions, and notes when it was asked."""

    def __init__(self, clock: VirtualClock, *answers: Any, takes: float = 0.0) -> None:
        self.clock = clock
        self.answers = answers or (None,)
        self.takes = takes
        self.times: list[float] = []
        self.cancelled = 0

    async def __call__(self) -> Any:
        self.times.append(round(self.clock.monotonic(), 6))
        answer = self.answers[min(len(self.times), len(self.answers)) - 1]
        try:
            if self.takes:
                await self.clock.sleep(self.takes)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(autojump=True)


async def nothing_is_left(clock: VirtualClock) -> bool:
    await asyncio.sleep(0)
    return asyncio.all_tasks() == {asyncio.current_task()} and clock.sleeping == 0


async def times_out(probe: Callable[[], Awaitable[Any]], clock: VirtualClock, **options: Any) -> WaitTimeout:
    with pytest.raises(WaitTimeout) as caught:
        await poll_until(probe, clock=clock, **(NEVER | options))
    return caught.value


# --- when it asks -----------------------------------------------------------------------------------------------


async def test_it_asks_at_once_and_answers_the_value(clock: VirtualClock) -> None:
    probe = Probe(clock, 7)
    assert await poll_until(probe, lambda value: value == 7, timeout="1s", retry_on=(), clock=clock) == 7
    assert probe.times == [0]


async def test_it_waits_by_the_strategy_the_first_idle_wait_grown_already(clock: VirtualClock) -> None:
    probe = Probe(clock, *"abcdef")
    await poll_until(
        probe,
        lambda value: value == "f",
        strategy=ADAPTIVE("1s", "5s"),
        timeout=None,
        retry_on=(),
        clock=clock,
    )
    assert probe.times == [0, 2, 6, 10.75, 15.5, 20.25]


async def test_the_default_strategy_is_100_ms_to_5_s(clock: VirtualClock) -> None:
    probe = Probe(clock)
    await times_out(probe, clock, timeout="20s")
    gaps = [round(after - before, 6) for before, after in zip(probe.times, probe.times[1:], strict=False)]
    assert gaps[:7] == [0.2, 0.4, 0.8, 1.6, 3.2, 4.75, 4.75]


async def test_waits_are_jittered(clock: VirtualClock) -> None:
    clock.draws = (0.0, 0.5, 0.99)
    probe = Probe(clock)
    await times_out(probe, clock, strategy=FIXED("10s"), timeout="35s")
    assert probe.times[:4] == [0, 9, 19, 29.98]


async def test_without_a_condition_what_counts_as_true_is_waited_for(clock: VirtualClock) -> None:
    assert await poll_until(Probe(clock, None, 0, "", [], "x"), timeout="1m", retry_on=(), clock=clock) == "x"


async def test_only_the_monotonic_clock_is_looked_at() -> None:
    class NoWallClock(VirtualClock):
        def utc_ms(self) -> int:
            raise AssertionError("asked for the date")

    clock = NoWallClock(autojump=True)
    probe = Probe(clock)

    async def step_back() -> None:
        await clock.sleep(2)
        clock.step_wall(-8 * 365 * 86400)

    stepping = asyncio.ensure_future(step_back())
    await times_out(probe, clock, strategy=FIXED("2s"), timeout="9s")
    await stepping
    assert probe.times == [0, 2, 4, 6, 8, 8.95]


# --- the deadline -----------------------------------------------------------------------------------------------


async def test_fault_01_the_last_sleep_is_clipped_and_one_more_probe_made(clock: VirtualClock) -> None:
    probe = Probe(clock)
    await times_out(probe, clock, strategy=ADAPTIVE("500ms", "4s"), timeout=5)
    assert probe.times == [0, 1, 3, 4.95]
    assert clock.monotonic() == 4.95


@pytest.mark.parametrize("takes", [0.0, 0.01, 0.3, 0.7, 1.1, 2.4, 4.9, 5.0, 60.0])
@pytest.mark.parametrize("strategy", [FIXED("1s"), FIXED("7s"), ADAPTIVE("1ms", "3s", 10)])
@pytest.mark.parametrize("attempt_timeout", [None, "1s", "4s", "1m"])
async def test_no_wait_overshoots_and_no_probe_starts_after_the_deadline(
    clock: VirtualClock, takes: float, strategy: PollingStrategy, attempt_timeout: str | None
) -> None:
    probe = Probe(clock, takes=takes)
    error = await times_out(
        probe,
        clock,
        strategy=strategy,
        timeout=5,
        attempt_timeout=attempt_timeout,
        retry_on=TimeoutError,
    )
    assert clock.monotonic() <= 5
    assert all(time <= 4.95 for time in probe.times)
    if attempt_timeout is not None:
        budget = {"1s": 1, "4s": 4, "1m": 60}[attempt_timeout]
        assert all(time <= max(5 - budget, 0) for time in probe.times)
    assert error.elapsed == error.calling + error.waiting
    assert await nothing_is_left(clock)


async def test_the_last_probe_leaves_room_for_its_attempt_timeout(clock: VirtualClock) -> None:
    probe = Probe(clock)
    await times_out(probe, clock, strategy=FIXED("4s"), timeout="15s", attempt_timeout="5s")
    assert probe.times == [0, 4, 8, 10]
    assert clock.monotonic() == 10  # no sleep after the last attempt


async def test_the_last_probe_leaves_room_for_one_as_long_as_the_last(clock: VirtualClock) -> None:
    probe = Probe(clock, takes=1.0)
    await times_out(probe, clock, strategy=FIXED("3s"), timeout="10s")
    assert probe.times == [0, 4, 8, 9.475]  # where that has no room, half of what is left
    probe.times.clear()
    start = clock.monotonic()
    await times_out(probe, clock, strategy=FIXED("5s"), timeout="10s")
    assert [round(time - start, 6) for time in probe.times] == [0, 6, 8.95 - 0.0]


async def test_fault_02_a_probe_that_never_ends_is_cancelled_at_the_deadline(clock: VirtualClock) -> None:
    probe = Probe(clock, takes=10_000)
    error = await times_out(probe, clock, strategy=FIXED("3s"), timeout=4)
    assert (clock.monotonic(), probe.times, probe.cancelled) == (4, [0], 1)
    assert error.limit == "timeout"
    assert not error.still_running
    assert isinstance(error.error, TimeoutError)
    assert isinstance(error.__cause__, TimeoutError)


async def test_fault_02_a_probe_as_slow_as_the_limit_is_not_begun_after_it(clock: VirtualClock) -> None:
    probe = Probe(clock, takes=5)
    await times_out(probe, clock, strategy=FIXED("3s"), timeout=4)
    assert probe.times == [0]
    probe.takes = 1.5
    probe.times.clear()
    start = clock.monotonic()
    await times_out(probe, clock, strategy=FIXED("3s"), timeout=4)
    assert all(time - start < 4 for time in probe.times)


async def test_fault_02_a_blocking_probe_is_left_behind_and_named(clock: VirtualClock) -> None:
    unblock, entered = threading.Event(), threading.Event()
    clock.busy_while(lambda: not entered.is_set())

    def blocks() -> None:
        entered.set()
        unblock.wait(60)

    try:
        with pytest.raises(WaitTimeout) as caught:
            await poll_until(blocks, timeout=4, retry_on=(), strategy=FIXED("3s"), clock=clock)
    finally:
        unblock.set()
    assert clock.monotonic() == 4
    assert caught.value.still_running
    assert "blocks (test_until.py:" in str(caught.value)
    assert "still running in a thread" in str(caught.value)
    assert await nothing_is_left(clock)


async def test_an_answer_given_in_spite_of_the_cancellation_counts(clock: VirtualClock) -> None:
    async def stubborn() -> str:
        try:
            await clock.sleep(60)
        except asyncio.CancelledError:
            return "an answer"
        return "no"

    assert await poll_until(stubborn, timeout="5s", retry_on=(), clock=clock) == "an answer"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_timeout_of_none_is_for_ever(clock: VirtualClock) -> None:
    probe = Probe(clock, *[False] * 5000, True)
    await poll_until(probe, strategy=FIXED("1h"), timeout=None, retry_on=(), clock=clock)
    assert clock.monotonic() == 5000 * 3600


async def test_a_timeout_of_0_asks_once(clock: VirtualClock) -> None:
    probe = Probe(clock, True)
    assert await poll_until(probe, timeout=0, retry_on=(), clock=clock)
    await times_out(probe, clock, timeout=0)
    assert len(probe.times) == 2


async def test_a_loop_that_was_blocked_past_the_deadline_asks_no_more() -> None:
    clock = VirtualClock()
    probe = Probe(clock)
    waiting = asyncio.ensure_future(times_out(probe, clock, strategy=FIXED("3s"), timeout=4))
    await clock.advance(2.5)
    clock._now_ns += 2_000_000_000  # time passes and nothing runs
    await clock.advance(0)
    error = await waiting
    assert probe.times == [0]
    assert error.attempts == 1


# --- the limit of an attempt -----------------------------------------------------------------------------------


async def test_an_attempt_that_takes_too_long_is_cancelled_and_asked_again(clock: VirtualClock) -> None:
    probe = Probe(clock, takes=10_000)
    error = await times_out(
        probe, clock, strategy=FIXED("3s"), timeout="12s", attempt_timeout="2s", retry_on=TimeoutError
    )
    assert probe.times == [0, 5, 10]
    assert probe.cancelled == 3
    assert error.calling == timedelta(seconds=6)
    assert error.limit == "timeout"


async def test_a_later_attempt_is_cancelled_at_its_own_limit_too(clock: VirtualClock) -> None:
    asked = 0

    async def probe() -> None:
        nonlocal asked
        asked += 1
        await clock.sleep(10_000 if asked == 5 else 0.5)

    error = await times_out(probe, clock, timeout="1h", attempt_timeout="10s", strategy=FIXED("1s"))
    assert (clock.monotonic(), error.limit, error.attempts) == (16, "attempt_timeout", 5)


async def test_an_attempt_timeout_that_is_not_retried_ends_the_wait_by_its_name(clock: VirtualClock) -> None:
    probe = Probe(clock, takes=10_000)
    error = await times_out(probe, clock, timeout="1m", attempt_timeout="2s", retry_on=ConnectionError)
    assert (clock.monotonic(), error.limit, error.attempts) == (2, "attempt_timeout", 1)
    assert "took longer than one attempt may (2s), and TimeoutError is not retried" in str(error)


async def test_a_blocking_probe_is_never_called_beside_itself(clock: VirtualClock) -> None:
    calls, entered, unblock, left = 0, threading.Event(), threading.Event(), threading.Event()
    attempts: list[AttemptEnded] = []
    clock.busy_while(lambda: not entered.is_set() or (unblock.is_set() and not left.is_set()))

    def blocks() -> str:
        nonlocal calls
        calls += 1
        entered.set()
        unblock.wait(60)
        left.set()
        return "late"

    def note(ended: AttemptEnded) -> None:
        attempts.append(ended)
        if len(attempts) == 2:
            unblock.set()

    value = await poll_until(
        blocks,
        timeout="1m",
        attempt_timeout="1s",
        retry_on=TimeoutError,
        strategy=FIXED("3s"),
        on_attempt=note,
        clock=clock,
    )
    assert (value, calls) == ("late", 1)
    assert [ended.outcome for ended in attempts[:2]] == ["timed_out", "timed_out"]


# --- what an answer means --------------------------------------------------------------------------------------


async def test_fault_03_a_state_that_can_no_longer_succeed_ends_the_wait_at_once(clock: VirtualClock) -> None:
    probe = Probe(clock, "RUNNING", "FAILED")
    with pytest.raises(WaitFailed) as caught:
        await poll_until(
            probe,
            lambda state: state == "DONE",
            failed=lambda state: state == "FAILED",
            timeout="60s",
            retry_on=(),
            strategy=FIXED("1s"),
            clock=clock,
        )
    assert (caught.value.value, caught.value.attempts, clock.monotonic()) == ("FAILED", 2, 1)
    assert "failed for good at attempt 2" in str(caught.value)
    assert "'FAILED'" in str(caught.value)


async def test_failed_is_asked_before_the_condition(clock: VirtualClock) -> None:
    with pytest.raises(WaitFailed):
        await poll_until(
            Probe(clock, 1), lambda v: True, failed=lambda v: True, timeout=1, retry_on=(), clock=clock
        )


async def test_a_condition_may_answer_verdicts(clock: VirtualClock) -> None:
    verdicts = iter([NotYet(), NotYet(timedelta(seconds=30), "still building"), Success("the artifact")])
    probe = Probe(clock, "anything")
    value = await poll_until(
        probe, lambda answer: next(verdicts), timeout="10m", retry_on=(), strategy=FIXED("1s"), clock=clock
    )
    assert value == "the artifact"
    assert probe.times == [0, 1, 31]
    with pytest.raises(WaitFailed, match="410 Gone") as caught:
        await poll_until(probe, lambda answer: Failure("410 Gone"), timeout="10m", retry_on=(), clock=clock)
    assert (caught.value.value, caught.value.reason) == ("anything", "410 Gone")
    error = await times_out(probe, clock, timeout=1, condition=lambda answer: NotYet(reason="status 202"))
    assert "status 202" in str(error)


async def test_a_condition_that_has_to_be_awaited_is_refused_and_not_taken_for_true(
    clock: VirtualClock,
) -> None:
    async def condition(value: object) -> bool:
        return False

    for wrong in ({"condition": condition}, {"failed": condition}):
        with pytest.raises(TypeError, match="has to be a plain function"):
            await MAKE(Probe(clock), timeout=1, retry_on=Exception, clock=clock, **wrong)


async def test_what_a_condition_raises_is_raised(clock: VirtualClock) -> None:
    with pytest.raises(KeyError):
        await poll_until(
            Probe(clock, {}), lambda job: job["state"], timeout="1m", retry_on=KeyError, clock=clock
        )


async def test_times_in_row_wants_the_condition_so_often_without_a_break(clock: VirtualClock) -> None:
    probe = Probe(clock, 1, 1, 0, 1, RetryAfter(), 1, OSError(), 1, 1, 1)
    result = await poll_result(
        probe,
        lambda value: value == 1,
        times_in_row=3,
        timeout="1m",
        retry_on=OSError,
        strategy=FIXED("1s"),
        clock=clock,
    )
    assert result.attempts == 10


async def test_stable_for_wants_the_condition_for_so_long(clock: VirtualClock) -> None:
    probe = Probe(clock, 1, 0, 1)
    await poll_until(
        probe, stable_for="10s", timeout="1m", retry_on=(), strategy=ADAPTIVE("1s", "4s"), clock=clock
    )
    # From 3 on it held; after the first look that held the strategy begins anew, and the last look is on the second.
    assert probe.times == [0, 1, 3, 4, 6, 9.8, 13]


# --- hints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hint", [30, 30.0, timedelta(seconds=30), "30s", "30000ms", "0.5m"])
async def test_a_probe_may_answer_a_hint_in_every_form_of_a_duration(clock: VirtualClock, hint: Any) -> None:
    probe = Probe(clock, RetryAfter(hint), True)
    await poll_until(probe, timeout="1m", retry_on=(), strategy=FIXED("1s"), clock=clock)
    assert probe.times == [0, 30]


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1, True, "soon", "-5", 1e18])
async def test_fault_05_a_hint_that_is_nonsense_is_an_error_of_the_probe(
    clock: VirtualClock, nonsense: Any
) -> None:
    async def probe() -> RetryAfter:
        return RetryAfter(nonsense)

    with pytest.raises(SettingError, match="RetryAfter"):
        await poll_until(probe, timeout="1m", retry_on=(), clock=clock)


async def test_a_hint_is_a_floor_for_the_next_delay_only(clock: VirtualClock) -> None:
    probe = Probe(clock, RetryAfter("2s"), RetryAfter("20s"), RetryAfter(), RetryAfter(0), True)
    await poll_until(probe, timeout="5m", retry_on=(), strategy=FIXED("10s"), clock=clock)
    assert probe.times == [0, 10, 30, 40, 50]


@pytest.mark.parametrize(("clamp", "second"), [("1d", 3600), ("1m", 60), (0, 1)])
async def test_hints_are_clamped(clock: VirtualClock, clamp: Any, second: float) -> None:
    probe = Probe(clock, RetryAfter("1h"), True)
    await poll_until(probe, timeout=None, retry_on=(), strategy=FIXED("1s"), hint_clamp=clamp, clock=clock)
    assert probe.times == [0, second]


async def test_the_default_clamp_is_a_day(clock: VirtualClock) -> None:
    probe = Probe(clock, RetryAfter("300d"), True)
    await poll_until(probe, timeout=None, retry_on=(), strategy=FIXED("1s"), clock=clock)
    assert probe.times == [0, 86400]


async def test_a_hint_past_the_deadline_ends_the_wait_at_once_and_says_so(clock: VirtualClock) -> None:
    error = await times_out(Probe(clock, RetryAfter("1h")), clock, timeout="10m")
    assert (clock.monotonic(), error.limit) == (0, "hint")
    assert "asked to wait past the deadline" in str(error)


async def test_exceptions_may_bring_hints(clock: VirtualClock) -> None:
    busy = CallError("status", "busy", retryable=True, hint_ms=30_000)
    probe = Probe(clock, busy, ConnectionError("x"), True)
    await poll_until(
        probe, timeout="5m", retry_on=(CallError, ConnectionError), strategy=FIXED("1s"), clock=clock
    )
    assert probe.times == [0, 30, 31]
    probe = Probe(clock, busy, True)
    start = clock.monotonic()
    await poll_until(
        probe, timeout="5m", retry_on=lambda error: RetryAfter("7s"), strategy=FIXED("1s"), clock=clock
    )
    assert probe.times == [start, start + 7]


NOW = "Sun, 15 Jun 2025 15:06:40 GMT"  # the wall clock of a VirtualClock that is 0


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        ("120", 120),
        (" 120 ", 120),
        ("0", 0),
        ("-5", None),
        ("0.493", None),
        ("1m0s", None),
        ("", None),
        ("9999999999", 3650 * 86400),
        ("9" * 400, 3650 * 86400),
        ("Sun, 15 Jun 2025 15:07:40 GMT", 60),
        ("Sunday, 15-Jun-25 15:07:40 GMT", 60),
        ("Sun Jun 15 15:07:40 2025", 60),
        ("Sun, 15 Jun 2025 14:00:00 GMT", 0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("soon", None),
    ],
)
def test_fault_11_retry_after_in_every_form_legal_or_not(value: str, delay: float | None) -> None:
    clock = VirtualClock()
    right = RetryAfter() if delay is None else RetryAfter(delay)
    assert retry_after({"retry-after": value}, clock=clock) == right
    assert retry_after([("Retry-After", value)], clock=clock) == right


def test_fault_11_a_date_counts_from_that_of_the_answer_and_the_longest_of_several_counts() -> None:
    clock = VirtualClock()
    clock.step_wall(3600)
    headers = {"Date": NOW, "Retry-After": "Sun, 15 Jun 2025 15:07:40 GMT"}
    assert retry_after(headers, clock=clock) == RetryAfter(60)
    assert retry_after([("Retry-After", "5"), ("Retry-After", "9")], clock=clock) == RetryAfter(9)
    assert retry_after({}) == RetryAfter()


# --- exceptions ------------------------------------------------------------------------------------------------


async def test_what_is_named_is_retried_and_nothing_else(clock: VirtualClock) -> None:
    probe = Probe(clock, ConnectionResetError(), TimeoutError(), True)
    named = (ConnectionError, TimeoutError)
    assert await poll_until(probe, timeout="1m", retry_on=named, clock=clock) is True
    with pytest.raises(ValueError, match="no"):
        await poll_until(Probe(clock, ValueError("no")), timeout="1m", retry_on=named, clock=clock)
    with pytest.raises(ConnectionError):
        await poll_until(Probe(clock, ConnectionError()), timeout="1m", retry_on=(), clock=clock)


@pytest.mark.parametrize(
    "mistake",
    [
        *(TypeError, AttributeError, NameError, UnboundLocalError, AssertionError),
        *(NotImplementedError, ImportError, ModuleNotFoundError, SyntaxError, RecursionError),
    ],
)
async def test_programming_errors_are_not_retried_unless_named(
    clock: VirtualClock, mistake: type[Exception]
) -> None:
    for wide in (Exception, (Exception, OSError), RuntimeError, lambda error: True):
        probe = Probe(clock, mistake(), True)
        with pytest.raises(mistake):
            await poll_until(probe, timeout="1m", retry_on=wide, clock=clock)
        assert len(probe.times) == 1
    probe = Probe(clock, mistake(), True)
    assert await poll_until(probe, timeout="1m", retry_on=mistake, clock=clock) is True


async def test_an_exception_of_two_kinds_is_retried_where_its_other_kind_is_named(
    clock: VirtualClock,
) -> None:
    class Lost(ConnectionError, AssertionError):
        pass

    probe = Probe(clock, Lost(), True)
    assert await poll_until(probe, timeout="1m", retry_on=ConnectionError, clock=clock) is True
    with pytest.raises(Lost):
        await poll_until(Probe(clock, Lost()), timeout="1m", retry_on=Exception, clock=clock)


async def test_a_function_may_say_what_is_retried(clock: VirtualClock) -> None:
    asked: list[Exception] = []

    def transient(error: Exception) -> bool:
        asked.append(error)
        return "try again" in str(error)

    probe = Probe(clock, OSError("try again"), OSError("no"))
    with pytest.raises(OSError, match="no"):
        await poll_until(probe, timeout="1m", retry_on=transient, clock=clock)
    assert len(asked) == 2


@pytest.mark.parametrize(
    "wrong",
    [None, 7, "ConnectionError", (ConnectionError, 7), KeyboardInterrupt, asyncio.CancelledError, int],
)
def test_retry_on_refuses_what_cannot_be_retried(wrong: Any) -> None:
    async def probe() -> bool:
        return True

    with pytest.raises(SettingError, match=r"^retry_on: "):
        MAKE(probe, timeout="1m", retry_on=wrong)


# --- settings ----------------------------------------------------------------------------------------------------


def test_timeout_and_retry_on_have_no_default() -> None:
    async def probe() -> bool:
        return True

    with pytest.raises(TypeError, match="timeout"):
        MAKE(probe, retry_on=())
    with pytest.raises(TypeError, match="retry_on"):
        MAKE(probe, timeout=1)


NONSENSE = [math.nan, math.inf, -math.inf, -1, 1e-12, 1e18, True, "soon", [], b"5s"]


@pytest.mark.parametrize("setting", ["timeout", "attempt_timeout", "stable_for", "hint_clamp"])
@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_fault_05_nonsense_is_refused_by_name_where_it_enters(setting: str, value: Any) -> None:
    async def probe() -> bool:
        return True

    options: dict[str, Any] = {"timeout": 1, "retry_on": ()} | {setting: value}
    with pytest.raises(SettingError, match=rf"^{setting}: "):
        MAKE(probe, **options)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("attempt_timeout", 0), ("times_in_row", 0), ("times_in_row", 1.5), ("times_in_row", True)),
        *(("strategy", "adaptive"), ("strategy", None)),
    ],
)
def test_other_settings_are_refused_too(setting: str, value: Any) -> None:
    async def probe() -> bool:
        return True

    options: dict[str, Any] = {"timeout": 1, "retry_on": ()} | {setting: value}
    with pytest.raises(SettingError, match=rf"^{setting}: "):
        MAKE(probe, **options)


async def test_fault_04_many_attempts_overflow_nothing(clock: VirtualClock) -> None:
    probe = Probe(clock, *[OSError()] * 5000, True)
    strategy = ADAPTIVE("1ms", "30s", 1e300)
    await poll_until(probe, timeout=None, retry_on=OSError, strategy=strategy, clock=clock)
    gaps = [after - before for before, after in zip(probe.times, probe.times[1:], strict=False)]
    assert all(0 < gap <= 30 for gap in gaps)


# --- probes of every kind ----------------------------------------------------------------------------------------


class PlainObject:
    def __call__(self) -> str:
        return threading.current_thread().name


async def test_a_plain_probe_runs_on_a_thread_with_the_context_of_its_caller() -> None:
    word: ContextVar[str] = ContextVar("word")
    word.set("seen")

    def probe() -> tuple[str, bool]:
        return word.get(), threading.current_thread() is threading.main_thread()

    assert await poll_until(probe, timeout="1m", retry_on=()) == ("seen", False)
    assert (await poll_until(PlainObject(), timeout="1m", retry_on=())).startswith("bide-")


async def test_a_function_that_answers_something_to_await_is_called_in_the_loop_from_then_on() -> None:
    threads: list[bool] = []
    answers = iter([0, 0, 1])

    async def ask() -> int:
        return next(answers)

    def probe() -> Awaitable[int]:
        threads.append(threading.current_thread() is threading.main_thread())
        return ask()

    assert await poll_until(probe, strategy=FIXED("1ms"), timeout="1m", retry_on=()) == 1
    assert threads == [False, True, True]


async def test_async_probes_of_every_make(clock: VirtualClock) -> None:
    async def ask(value: int) -> int:
        return value

    class Asker:
        async def __call__(self) -> int:
            return 2

        async def method(self) -> int:
            return 3

    loop = asyncio.get_running_loop()

    def future() -> asyncio.Future[int]:
        answer: asyncio.Future[int] = loop.create_future()
        answer.set_result(4)
        return answer

    probes: list[Callable[[], Any]] = [functools.partial(ask, 1), Asker(), Asker().method, future]
    values = [await poll_until(probe, timeout="1m", retry_on=()) for probe in probes]
    assert values == [1, 2, 3, 4]


def test_what_is_no_probe_is_refused() -> None:
    async def generates() -> AsyncIterator[int]:
        yield 1

    def generates_too() -> Iterator[int]:
        yield 1

    for wrong in (generates, generates_too):
        with pytest.raises(TypeError, match=r"generates.* is a generator"):
            MAKE(wrong, timeout=1, retry_on=())
    with pytest.raises(TypeError, match="a probe is a function"):
        MAKE(7, timeout=1, retry_on=())


async def test_a_probe_may_use_timeouts_groups_and_context_variables_of_its_own() -> None:
    word: ContextVar[str] = ContextVar("word")

    async def probe() -> str:
        word.set("set in the caller's own context")
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            inner = group.create_task(asyncio.sleep(0, "grouped"))
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(60)
        return inner.result()

    assert await poll_until(probe, timeout="1m", attempt_timeout="30s", retry_on=()) == "grouped"
    assert word.get() == "set in the caller's own context"


async def test_a_timeout_of_the_probes_own_is_an_exception_like_others(clock: VirtualClock) -> None:
    async def probe() -> None:
        async with asyncio.timeout(0):
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError) as caught:
        await poll_until(probe, timeout="1m", retry_on=(), clock=clock)
    assert not isinstance(caught.value, WaitTimeout)


# --- cancellation ------------------------------------------------------------------------------------------------


async def test_cancelling_the_waiter_cancels_the_probe_and_leaves_nothing(clock: VirtualClock) -> None:
    probe = Probe(clock, takes=10_000)
    clock.autojump = False
    waiting = asyncio.ensure_future(times_out(probe, clock, timeout="1d", attempt_timeout="5h"))
    await clock.advance(100)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert probe.cancelled == 1
    assert await nothing_is_left(clock)


@pytest.mark.parametrize("ticks", range(60))
async def test_fault_38_a_cancellation_at_any_moment_is_not_lost(ticks: int) -> None:
    clock = VirtualClock(autojump=True)
    probe = Probe(clock, takes=1)
    waiting = asyncio.ensure_future(times_out(probe, clock, timeout="100d", strategy=FIXED("1s")))
    for _ in range(ticks):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await nothing_is_left(clock)


async def test_a_cancellation_in_the_instant_of_the_deadline_is_a_cancellation() -> None:
    clock = VirtualClock()
    probe = Probe(clock, takes=10_000)
    waiting = asyncio.ensure_future(times_out(probe, clock, timeout="5s"))
    clock_timer = clock.call_later(5, waiting.cancel)
    await clock.advance(5)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    clock_timer.cancel()


async def test_an_outer_timeout_is_not_taken_for_the_own_one(clock: VirtualClock) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(0.01):
            await poll_until(never, timeout="1h", attempt_timeout="1h", retry_on=TimeoutError)
    assert not isinstance(caught.value, WaitTimeout)


async def test_nothing_holds_on_to_a_wait_that_ended() -> None:
    class Answer:
        pass

    kept: list[weakref.ref[Answer]] = []

    async def probe() -> Answer:
        answer = Answer()
        kept.append(weakref.ref(answer))
        await asyncio.sleep(0)
        if len(kept) < 3:
            raise OSError
        return answer

    gc.disable()
    try:
        for _ in range(2):
            await poll_until(probe, timeout="1m", retry_on=OSError, strategy=FIXED("1ms"))
            kept.append(kept[-1])
        assert [each() for each in kept] == [None] * len(kept)
    finally:
        gc.enable()


async def test_a_wait_that_sleeps_has_one_timer_at_most_and_no_task_of_its_own() -> None:
    clock = VirtualClock()
    probe = Probe(clock, takes=0.5)
    waiting = asyncio.ensure_future(
        times_out(
            probe, clock, timeout="1h", attempt_timeout="10s", strategy=FIXED("1s"), retry_on=TimeoutError
        )
    )
    for _ in range(30):
        await clock.advance(0.4)
        assert clock.sleeping <= 2  # its sleep or the probe's, and the timer of its limit
        assert asyncio.all_tasks() == {waiting, asyncio.current_task()}
    waiting.cancel()
    await asyncio.wait({waiting})


# --- what it tells ---------------------------------------------------------------------------------------------


async def test_the_timeout_explains_itself(clock: VirtualClock) -> None:
    probe = Probe(clock, {"state": "running"}, ConnectionError("refused"), takes=1)
    error = await times_out(
        probe, clock, strategy=FIXED("9s"), timeout="30s", attempt_timeout="5s", retry_on=ConnectionError
    )
    assert (error.last, error.attempts) == ({"state": "running"}, 4)
    assert (error.calling, error.waiting) == (timedelta(seconds=4), timedelta(seconds=22))
    assert isinstance(error.error, ConnectionError)
    assert error.__cause__ is error.error
    assert isinstance(error, TimeoutError)
    assert str(error) == (
        "Probe did not hold within 30s; 4 attempts in 26s (4s calling, 22s waiting); "
        "the last attempt raised ConnectionError: refused; the last value was {'state': 'running'}"
    )


async def test_the_text_of_a_timeout_is_never_long_and_never_fails(clock: VirtualClock) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no repr")

    assert len(str(await times_out(Probe(clock, "x" * 10**6), clock, timeout=1))) < 500
    assert "a Odd whose repr raises ValueError" in str(await times_out(Probe(clock, Odd()), clock, timeout=1))
    assert "nothing was answered" in str(await times_out(Probe(clock), clock, timeout=1))


async def test_the_result_has_attempts_and_times(clock: VirtualClock) -> None:
    probe = Probe(clock, 0, 0, 7, takes=0.25)
    result = await poll_result(probe, timeout="1m", retry_on=(), strategy=FIXED("2s"), clock=clock)
    assert (result.value, result.attempts) == (7, 3)
    assert result.calling == timedelta(seconds=0.75)
    assert result.waiting == timedelta(seconds=4)
    assert result.elapsed == timedelta(seconds=4.75)


async def test_time_counts_from_the_await(clock: VirtualClock) -> None:
    waiting = poll_result(Probe(clock, 1), timeout="1m", retry_on=(), clock=clock)
    await clock.sleep(3600)
    assert (await waiting).elapsed == timedelta()


async def test_hooks_hear_of_each_attempt_as_it_ends(clock: VirtualClock) -> None:
    heard: list[AttemptEnded] = []
    everywhere: list[AttemptEnded] = []
    forget = on_every_attempt(everywhere.append)
    boom = OSError("boom")
    probe = Probe(clock, 1, boom, RetryAfter("3s"), 2, takes=0.5)
    await poll_until(
        probe,
        lambda value: value == 2,
        timeout="1m",
        retry_on=OSError,
        strategy=FIXED("1s"),
        on_attempt=heard.append,
        clock=clock,
    )
    forget()
    half, second = timedelta(seconds=0.5), timedelta(seconds=1)
    assert heard == [
        AttemptEnded("Probe", 1, "not_yet", half, 1, None, second),
        AttemptEnded("Probe", 2, "raised", half, None, boom, second),
        AttemptEnded("Probe", 3, "not_yet", half, None, None, 3 * second),
        AttemptEnded("Probe", 4, "held", half, 2, None, None),
    ]
    assert everywhere == heard
    await poll_until(Probe(clock, 1), timeout="1m", retry_on=(), clock=clock)
    assert len(everywhere) == 4


async def test_a_hook_that_raises_harms_nobody(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    def broken(ended: AttemptEnded) -> None:
        raise ValueError("a broken hook")

    assert await poll_until(Probe(clock, 1), timeout=1, retry_on=(), on_attempt=broken, clock=clock) == 1
    assert "a hook failed on an attempt of Probe" in caplog.text


def test_importing_it_loads_no_client_and_no_driver() -> None:
    code = "import sys\nfrom bide import poll_until, attempts, Poller, sync\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    unwanted = {"pyreqwest", "aiohttp", "httpx", "apsw", "asyncpg", "psycopg", "sqlalchemy", "sqlite3"}
    assert not loaded & (unwanted | {"pydantic", "jmespath", "typer", "rich", "cronsim", "pytest"})


@pytest.mark.parametrize("setting", ["condition", "failed", "on_attempt"])
@pytest.mark.parametrize("given", ["state == 'done'", True, 3], ids=repr)
def test_what_is_no_function_is_refused_at_the_call(setting: str, given: object) -> None:
    settings: dict[str, Any] = {setting: given}
    with pytest.raises(SettingError, match=f"{setting}: .* is no function"):
        _ = poll_until(lambda: 1, timeout=1, retry_on=(), **settings)
