"""The loop-first form, in virtual time."""

# ruff: noqa: PT012 - loops are what is tested

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bide import AttemptEnded, PollingStrategy, SettingError, WaitTimeout, attempts
from bide.testing import VirtualClock

FIXED = PollingStrategy.fixed
SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(autojump=True)


async def test_it_goes_on_until_it_is_left(clock: VirtualClock) -> None:
    seen = []
    async for attempt in attempts(timeout="1m", retry_on=(), strategy=FIXED("2s"), clock=clock):
        with attempt:
            seen.append((attempt.number, clock.monotonic()))
            if attempt.number == 3:
                break
    assert seen == [(1, 0), (2, 2), (3, 4)]


async def test_it_may_be_returned_from(clock: VirtualClock) -> None:
    async def first() -> int:
        async for attempt in attempts(timeout="1m", retry_on=(), clock=clock):
            with attempt:
                return attempt.number
        raise AssertionError("the loop ends by itself only by raising")

    assert await first() == 1


async def test_exceptions_are_retried_as_named_and_mistakes_never(clock: VirtualClock) -> None:
    errors: list[Exception] = [ConnectionError("first"), TypeError("a mistake")]
    with pytest.raises(TypeError, match="a mistake"):
        async for attempt in attempts(timeout="1m", retry_on=Exception, clock=clock):
            with attempt:
                raise errors[attempt.number - 1]


async def test_it_times_out_and_explains_itself(clock: VirtualClock) -> None:
    times = []
    with pytest.raises(WaitTimeout) as caught:
        async for attempt in attempts(
            timeout="10s", retry_on=OSError, strategy=FIXED("4s"), name="the job", clock=clock
        ):
            with attempt:
                times.append(clock.monotonic())
                attempt.not_yet(last="queued")
                if attempt.number == 3:
                    raise OSError("refused")
    assert times == [0, 4, 8, 9.95]
    assert (caught.value.attempts, caught.value.last) == (4, "queued")
    assert str(caught.value) == (
        "the job did not hold within 10s; 4 attempts in 9.95s (0s calling, 9.95s waiting); "
        "the last value was 'queued'"
    )


async def test_a_block_is_cancelled_at_the_deadline_and_at_its_own_limit(clock: VirtualClock) -> None:
    cancelled = 0
    with pytest.raises(WaitTimeout) as caught:
        async for attempt in attempts(
            timeout="12s", attempt_timeout="2s", retry_on=TimeoutError, strategy=FIXED("3s"), clock=clock
        ):
            with attempt:
                try:
                    await clock.sleep(10_000)
                except asyncio.CancelledError:
                    cancelled += 1
                    raise
    assert (cancelled, caught.value.attempts, clock.monotonic()) == (3, 3, 12)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert clock.sleeping == 0


@pytest.mark.parametrize("limits", [{}, {"attempt_timeout": "6s"}])
async def test_a_later_block_is_cancelled_too_after_quick_ones(clock: VirtualClock, limits: Any) -> None:
    with pytest.raises(WaitTimeout) as caught:
        async for attempt in attempts(
            timeout="10s", retry_on=(), strategy=FIXED("1s"), clock=clock, **limits
        ):
            with attempt:
                if attempt.number == 4:
                    await clock.sleep(10_000)
    assert clock.monotonic() == (9 if limits else 10)
    assert caught.value.attempts == 4


async def test_a_limit_of_one_block_that_is_not_retried_ends_the_loop(clock: VirtualClock) -> None:
    with pytest.raises(WaitTimeout) as caught:
        async for attempt in attempts(timeout="1m", attempt_timeout="2s", retry_on=(), clock=clock):
            with attempt:
                await clock.sleep(60)
    assert (caught.value.limit, clock.monotonic()) == ("attempt_timeout", 2)


async def test_cancelling_it_is_a_cancellation_and_leaves_nothing() -> None:
    clock = VirtualClock()

    async def loop() -> None:
        async for attempt in attempts(timeout="1h", retry_on=Exception, clock=clock):
            with attempt:
                await clock.sleep(60)

    running = asyncio.ensure_future(loop())
    await clock.advance(30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert clock.sleeping == 0


async def test_hints_are_floors(clock: VirtualClock) -> None:
    times = []
    async for attempt in attempts(timeout="1h", retry_on=(), strategy=FIXED("1s"), clock=clock):
        with attempt:
            times.append(clock.monotonic())
            if attempt.number == 3:
                break
            attempt.not_yet("30s" if attempt.number == 1 else None)
    assert times == [0, 30, 31]


async def test_a_hint_that_is_nonsense_is_refused(clock: VirtualClock) -> None:
    with pytest.raises(SettingError, match=r"^after: "):
        async for attempt in attempts(timeout="1h", retry_on=(), clock=clock):
            with attempt:
                attempt.not_yet(-1)


async def test_without_the_block_it_still_waits_and_times_out(clock: VirtualClock) -> None:
    times: list[float] = []
    with pytest.raises(WaitTimeout):
        async for _ in attempts(timeout="5s", retry_on=(), strategy=FIXED("2s"), clock=clock):
            times += [clock.monotonic()]
    assert times == [0, 2, 4, 4.95]


async def test_hooks_hear_of_blocks(clock: VirtualClock) -> None:
    heard: list[AttemptEnded] = []
    async for attempt in attempts(
        timeout="1m", retry_on=OSError, strategy=FIXED("1s"), on_attempt=heard.append, name="job", clock=clock
    ):
        with attempt:
            await clock.sleep(1)
            if attempt.number == 2:
                raise OSError
            if attempt.number == 3:
                break
    outcomes: list[Any] = [(each.number, each.outcome, each.took, each.next_in) for each in heard]
    assert outcomes == [
        (1, "ended", SECOND, SECOND),
        (2, "raised", SECOND, SECOND),
        (3, "ended", SECOND, SECOND),
    ]
    assert {each.probe for each in heard} == {"job"}
