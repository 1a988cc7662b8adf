"""The machine's clocks, as far as they can be tested without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from bide.clock import Clock, SystemClock, make_id


def test_the_wall_clock_is_utc_in_milliseconds() -> None:
    before = datetime.now(UTC).timestamp() * 1000
    now = SystemClock().utc_ms()
    after = datetime.now(UTC).timestamp() * 1000
    assert int(before) <= now <= after


def test_the_monotonic_clock_does_not_go_back() -> None:
    clock: Clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)


def test_draws_are_in_range() -> None:
    clock = SystemClock()
    draws = [clock.draw() for _ in range(1000)]
    assert all(0 <= draw < 1 for draw in draws)
    assert len(set(draws)) > 900


async def test_sleeping_for_nothing_or_less_yields() -> None:
    for seconds in (0.0, -5.0):
        order: list[str] = []
        asyncio.get_running_loop().call_soon(order.append, "other")
        await SystemClock().sleep(seconds)
        assert order == ["other"]


async def test_long_sleeps_go_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = 1000.0, list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    monkeypatch.setattr("bide.clock.asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr("bide.clock.time", SimpleNamespace(monotonic=lambda: now))
    await SystemClock().sleep(3 * 3600 + 60.0)
    assert sum(slept) == pytest.approx(3 * 3600 + 60)
    assert max(slept) <= 3600


async def test_long_timers_go_in_slices_and_can_be_cancelled_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    now, came = 1000.0, list[str]()
    due: list[tuple[float, Callable[[], object], list[bool]]] = []

    def call_later(seconds: float, callback: Callable[[], object]) -> SimpleNamespace:
        cancelled: list[bool] = []
        due.append((seconds, callback, cancelled))
        return SimpleNamespace(cancel=lambda: cancelled.append(True))

    loop = SimpleNamespace(call_later=call_later)
    monkeypatch.setattr("bide.clock.asyncio", SimpleNamespace(get_running_loop=lambda: loop))
    monkeypatch.setattr("bide.clock.time", SimpleNamespace(monotonic=lambda: now))

    def go_on() -> None:
        nonlocal now
        seconds, callback, cancelled = due.pop()
        now += seconds
        if not cancelled:
            callback()

    SystemClock().call_later(2 * 3600 + 60.0, lambda: came.append("long"))
    while due:
        assert due[-1][0] <= 3600
        assert not came
        go_on()
    assert (came, now) == (["long"], 1000 + 2 * 3600 + 60)
    timer = SystemClock().call_later(2 * 3600.0, lambda: came.append("cancelled"))
    go_on()
    timer.cancel()
    go_on()
    SystemClock().call_later(-1.0, lambda: came.append("late"))
    assert due[-1][0] == 0
    go_on()
    assert came == ["long", "late"]


def test_identifiers_have_the_layout_of_uuid_version_7() -> None:
    identifier = SystemClock().new_id()
    assert len(identifier) == 32
    assert identifier == identifier.lower()
    assert identifier[12] == "7"
    assert identifier[16] in "89ab"
    assert make_id(0x0123456789AB, 0) == "0123456789ab70008000000000000000"
    assert make_id(0, (1 << 74) - 1) == "0000000000007fffbfffffffffffffff"


@pytest.mark.parametrize("later", [lambda now: now + 1, lambda now: now + 10**9])
def test_identifiers_sort_by_time(later: Callable[[int], int]) -> None:
    now = 1_750_000_000_000
    assert make_id(now, (1 << 74) - 1) < make_id(later(now), 0)
    assert make_id(now, 1) < make_id(now, 2) < make_id(now, 1 << 62) < make_id(now, 1 << 73)


def test_identifiers_are_unique() -> None:
    clock = SystemClock()
    assert len({clock.new_id() for _ in range(10_000)}) == 10_000
