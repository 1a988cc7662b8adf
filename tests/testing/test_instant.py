"""Instant waits: no time passes, limits still come, attempts are counted, and waits do not disturb each other."""

# ruff: noqa: PT012 - loops are what is tested

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest

from bide import (
    Poller,
    PollingStrategy,
    QuitPolling,
    RetryAfter,
    WaitTimeout,
    attempts,
    poll_result,
    poll_until,
    sync,
)
from bide.clock import SystemClock, present_clock
from bide.core.polling import PollingDecision
from bide.testing import VirtualClock, instant
from bide.testing.pytest import instant_polling

__all__ = ["instant_polling"]

FIXED = PollingStrategy.fixed


async def test_pauses_take_no_time_and_attempts_are_counted() -> None:
    async def probe() -> bool:
        return next(answers)

    answers = iter([False, False, True])
    began = time.monotonic()
    with instant() as polling:
        result = await poll_result(probe, timeout="1d", retry_on=(), strategy=FIXED("1h"))
    assert time.monotonic() - began < 60
    assert polling.attempts == 3
    assert polling.delays == [timedelta(hours=1)] * 2
    assert result.elapsed == timedelta(hours=2)
    polling.clear()
    assert polling.attempts == 0


async def test_limits_come_by_the_pauses_alone() -> None:
    async def never() -> None:
        await asyncio.sleep(0)

    with instant(), pytest.raises(WaitTimeout) as caught:
        await poll_until(never, timeout="5h", retry_on=(), strategy=FIXED("2h"))
    assert caught.value.attempts == 4


async def test_a_probe_that_hangs_is_ended_at_its_limit_really() -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    with instant(), pytest.raises(WaitTimeout) as caught:
        await poll_until(hangs, timeout="1h", attempt_timeout="10ms", retry_on=(), strategy=FIXED("2h"))
    assert caught.value.limit == "attempt_timeout"


async def test_many_waits_at_once_do_not_use_up_each_others_time() -> None:
    async def one(number: int) -> int:
        asked = 0

        async def probe() -> bool:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0)
            return asked > number

        await poll_until(probe, timeout="1h", retry_on=(), strategy=FIXED("1m"))
        return asked

    with instant() as polling:
        assert await asyncio.gather(*(one(number) for number in range(50))) == list(range(1, 51))
    assert polling.attempts == sum(range(1, 51))


async def test_loops_and_pollers_are_instant_too(instant_polling: object) -> None:
    async for attempt in attempts(timeout="1d", retry_on=(), strategy=FIXED("1h")):
        with attempt:
            if attempt.number == 5:
                break
    decisions: list[PollingDecision] = [RetryAfter(), RetryAfter(), QuitPolling()]
    outcomes = iter(decisions)

    async def request() -> int:
        return 1

    async with Poller(request, lambda outcome: next(outcomes)) as messages:
        assert [message async for message in messages] == [1, 1, 1]


def test_synchronous_waits_are_instant_too() -> None:
    answers = iter([False, False, True])
    with instant() as polling:
        assert sync.poll_until(lambda: next(answers), timeout="1d", retry_on=(), strategy=FIXED("1h"))
        for attempt in sync.attempts(timeout="1d", retry_on=(), strategy=FIXED("1h")):
            with attempt:
                if attempt.number == 2:
                    break
    assert polling.attempts == 5


def test_a_synchronous_probe_that_blocks_is_left_at_its_limit_really() -> None:
    unblock = threading.Event()
    with instant(), pytest.raises(WaitTimeout) as caught:
        sync.poll_until(lambda: unblock.wait(60), timeout="20ms", retry_on=())
    unblock.set()
    assert caught.value.still_running
    assert caught.value.elapsed == timedelta(seconds=0.02)


async def test_a_wait_that_never_ends_is_told_so() -> None:
    async def never() -> bool:
        return False

    with instant(), pytest.raises(RuntimeError, match="never comes"):
        await poll_until(never, timeout=None, retry_on=(), strategy=FIXED("1ms"))


async def test_a_poller_that_never_ends_is_told_so() -> None:
    async def request() -> int:
        return 1

    with instant(), pytest.raises(RuntimeError, match="never comes"):
        async with Poller(request, lambda outcome: RetryAfter()) as messages:
            async for _ in messages:
                pass


async def test_a_clock_that_was_given_is_left_alone_and_all_is_as_before_afterwards() -> None:
    clock = VirtualClock(autojump=True)
    answers = iter([False, True])

    async def probe() -> bool:
        return next(answers)

    with instant():
        await poll_until(probe, timeout="1m", retry_on=(), strategy=FIXED("7s"), clock=clock)
    assert clock.monotonic() == 7
    assert type(present_clock()) is SystemClock
