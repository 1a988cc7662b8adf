"""Waiting without an event loop: by the same rules, in virtual time, and stopped from outside."""

# ruff: noqa: PT012 - loops are what is tested

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from bide import PollingStrategy, RetryAfter, SettingError, WaitFailed, WaitStopped, WaitTimeout, sync
from bide.clock import SystemClock
from bide.testing import VirtualClock

FIXED = PollingStrategy.fixed


class Probe:
    """Answers in turn what it is given (the last for ever), raising exceptions, and notes when it was asked."""

    def __init__(self, clock: VirtualClock, *answers: Any) -> None:
        self.clock = clock
        self.answers = answers or (None,)
        self.times: list[float] = []

    def __call__(self) -> Any:
        self.times.append(self.clock.monotonic())
        answer = self.answers[min(len(self.times), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def test_it_asks_and_waits_by_the_same_rules(clock: VirtualClock) -> None:
    probe = Probe(clock, 0, ConnectionError(), RetryAfter("30s"), 7)
    result = sync.poll_result(
        probe,
        timeout="1m",
        retry_on=ConnectionError,
        strategy=FIXED("2s"),
        same_thread=True,
        clock=clock,
    )
    assert probe.times == [0, 2, 4, 34]
    assert (result.value, result.attempts, result.waiting) == (7, 4, timedelta(seconds=34))


def test_it_never_overshoots_and_explains_itself(clock: VirtualClock) -> None:
    probe = Probe(clock, "running")
    with pytest.raises(WaitTimeout) as caught:
        sync.poll_until(
            probe,
            lambda value: False,
            timeout=5,
            retry_on=(),
            strategy=PollingStrategy.adaptive("500ms", "4s"),
            same_thread=True,
            clock=clock,
        )
    assert probe.times == [0, 1, 3, 4.95]
    assert clock.monotonic() == 4.95
    assert str(caught.value) == (
        "Probe did not hold within 5s; 4 attempts in 4.95s (0s calling, 4.95s waiting); "
        "the last value was 'running'"
    )


def test_failures_and_mistakes_end_it_at_once(clock: VirtualClock) -> None:
    make: Any = sync.poll_until  # as a program calls it that no type checker reads
    options: dict[str, Any] = {"timeout": "1m", "same_thread": True, "clock": clock}
    with pytest.raises(WaitFailed):
        sync.poll_until(Probe(clock, "dead"), failed=lambda value: value == "dead", retry_on=(), **options)
    with pytest.raises(TypeError):
        sync.poll_until(Probe(clock, TypeError()), retry_on=Exception, **options)
    with pytest.raises(SettingError, match=r"^timeout: "):
        sync.poll_until(Probe(clock), retry_on=(), timeout=True)
    with pytest.raises(TypeError, match="a probe is a function"):
        make(7, timeout=1, retry_on=())
    with pytest.raises(TypeError, match="retry_on"):
        make(Probe(clock), timeout=1)
    assert clock.monotonic() == 0


def test_fault_02_a_probe_that_blocks_is_left_behind_and_never_called_beside_itself(
    clock: VirtualClock,
) -> None:
    calls, entered, unblock = 0, threading.Event(), threading.Event()
    clock.busy_while(lambda: not entered.is_set())

    def blocks() -> None:
        nonlocal calls
        calls += 1
        entered.set()
        unblock.wait(60)

    try:
        with pytest.raises(WaitTimeout) as caught:
            sync.poll_until(
                blocks,
                timeout="10s",
                attempt_timeout="2s",
                retry_on=TimeoutError,
                strategy=FIXED("2s"),
                clock=clock,
            )
    finally:
        unblock.set()
    assert (calls, caught.value.attempts, caught.value.still_running) == (1, 3, True)
    assert clock.monotonic() == 10
    assert "blocks (test_sync.py:" in str(caught.value)


def test_probes_run_on_one_thread_with_the_context_of_their_caller() -> None:
    word: ContextVar[str] = ContextVar("word")
    word.set("seen")
    threads = set[threading.Thread]()
    turns = iter([False, False, True])

    def probe() -> str | None:
        threads.add(threading.current_thread())
        return word.get() if next(turns) else None

    assert sync.poll_until(probe, timeout="1m", retry_on=(), strategy=FIXED("1ms")) == "seen"
    assert len(threads) == 1
    (thread,) = threads
    assert thread is not threading.current_thread()
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_what_belongs_to_the_callers_thread_can_stay_there() -> None:
    database = sqlite3.connect(":memory:")

    def probe() -> Any:
        return database.execute("SELECT 7").fetchone()[0]

    with pytest.raises(sqlite3.ProgrammingError):
        sync.poll_until(probe, timeout="1m", retry_on=())
    assert sync.poll_until(probe, timeout="1m", retry_on=(), same_thread=True) == 7
    assert (
        sync.poll_until(probe, timeout=None, retry_on=()) == 7
    )  # without a limit nothing has to be left behind
    database.close()


def test_async_probes_work_too() -> None:
    answers = iter([0, 1, 2, 3])

    async def probe() -> int:
        await asyncio.sleep(0)
        return next(answers)

    options: dict[str, Any] = {"timeout": "1m", "retry_on": (), "strategy": FIXED("1ms")}
    assert sync.poll_until(probe, lambda value: value == 1, **options) == 1
    awaited: Any = lambda: probe()  # noqa: E731 - a plain function that answers something to await
    assert sync.poll_until(awaited, lambda value: value == 3, **options) == 3


def test_an_async_probe_is_cancelled_at_its_limit() -> None:
    cancelled = 0

    async def probe() -> None:
        nonlocal cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise

    with pytest.raises(WaitTimeout) as caught:
        sync.poll_until(probe, timeout="1m", attempt_timeout="5ms", retry_on=())
    assert (cancelled, caught.value.limit) == (1, "attempt_timeout")


async def test_an_async_probe_inside_of_an_event_loop_is_refused() -> None:
    async def probe() -> bool:
        return True

    with pytest.raises(RuntimeError, match=r"await bide\.poll_until"):
        sync.poll_until(probe, timeout="1m", retry_on=())


def test_another_thread_can_stop_it() -> None:
    stopping, asked = threading.Event(), threading.Event()

    def probe() -> bool:
        asked.set()
        return False

    def stop() -> None:
        asked.wait(60)
        stopping.set()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(WaitStopped, match=r"probe .* was stopped after 1 attempt$") as caught:
        sync.poll_until(probe, timeout="1h", retry_on=(), strategy=FIXED("1h"), stopping=stopping)
    stopper.join()
    assert caught.value.attempts == 1
    with pytest.raises(WaitStopped) as caught:  # it was set before
        sync.poll_until(probe, timeout="1h", retry_on=(), stopping=stopping)
    assert caught.value.attempts == 0


def test_attempts_are_a_plain_loop(clock: VirtualClock) -> None:
    seen = []
    for attempt in sync.attempts(timeout="1m", retry_on=ConnectionError, strategy=FIXED("2s"), clock=clock):
        with attempt:
            seen.append((attempt.number, clock.monotonic()))
            if attempt.number == 1:
                raise ConnectionError
            if attempt.number == 2:
                attempt.not_yet("10s")
            if attempt.number == 3:
                break
    assert seen == [(1, 0), (2, 2), (3, 12)]


def test_attempts_time_out_and_stop(clock: VirtualClock) -> None:
    with pytest.raises(WaitTimeout):
        for attempt in sync.attempts(timeout="5s", retry_on=(), strategy=FIXED("2s"), clock=clock):
            with attempt:
                pass
    assert clock.monotonic() == 4.95
    stopping, numbers = threading.Event(), []
    with pytest.raises(WaitStopped):
        for attempt in sync.attempts(timeout="1h", retry_on=(), stopping=stopping):
            with attempt:
                numbers.append(attempt.number)
                stopping.set()
    assert numbers == [1]


def test_the_machines_clock_pauses_until_the_event() -> None:
    done = threading.Event()
    assert SystemClock().pause(0.001, done) is False
    threading.Timer(0.001, done.set).start()
    assert SystemClock().pause(10_000_000, done) is True
