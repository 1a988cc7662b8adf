"""Loops that run together: how they stop, and what becomes of an error."""

from __future__ import annotations

import asyncio

import pytest

from bide.engine.loops import run_together, until
from bide.telemetry import EngineState, Record, Telemetry
from bide.testing import VirtualClock


async def test_all_stop_when_they_are_asked_to() -> None:
    telemetry, told, ended = Telemetry(), list[Record](), list[str]()
    telemetry.listen(told.append)
    clock, stopping = VirtualClock(), asyncio.Event()

    async def slow(stop: asyncio.Event) -> None:
        await stop.wait()
        await clock.sleep(5)
        ended.append("slow")

    async def quick(stop: asyncio.Event) -> None:
        await stop.wait()
        ended.append("quick")

    running = asyncio.ensure_future(run_together(stopping, telemetry, slow, quick))
    await clock.advance(1)
    assert ended == []
    stopping.set()
    await clock.advance(1)
    assert ended == ["quick"]
    await clock.advance(5)
    await running
    assert ended == ["quick", "slow"]
    assert told == [EngineState("running"), EngineState("stopping"), EngineState("stopped")]


async def test_one_that_fails_ends_all_gracefully_and_its_error_is_raised() -> None:
    ended: list[str] = []

    async def fails(stop: asyncio.Event) -> None:
        raise RuntimeError("refused for good")

    async def other(stop: asyncio.Event) -> None:
        await stop.wait()
        ended.append("other")

    with pytest.raises(RuntimeError, match="refused for good"):
        await run_together(asyncio.Event(), Telemetry(), other, fails)
    assert ended == ["other"]


async def test_one_that_is_cancelled_from_within_ends_all_with_an_error() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def other(stop: asyncio.Event) -> None:
        await stop.wait()

    with pytest.raises(RuntimeError, match="cancelled by something that it had called"):
        await run_together(asyncio.Event(), Telemetry(), other, lambda stop: until(stop, cancelled()))


async def test_a_cancelled_run_leaves_nothing_running() -> None:
    clock, ended = VirtualClock(), list[str]()

    async def loop(stop: asyncio.Event) -> None:
        try:
            await clock.sleep(60)
        finally:
            ended.append("loop")

    running = asyncio.ensure_future(run_together(asyncio.Event(), Telemetry(), loop))
    await clock.advance(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == ["loop"]


async def test_work_without_an_end_is_cancelled_at_a_stop_and_its_error_is_raised() -> None:
    clock, stop, ended = VirtualClock(), asyncio.Event(), list[str]()

    async def endless() -> None:
        try:
            await clock.sleep(3600)
        finally:
            ended.append("endless")

    async def fails() -> None:
        raise RuntimeError("broken")

    running = asyncio.ensure_future(until(stop, endless()))
    await clock.advance(1)
    stop.set()
    await running
    assert ended == ["endless"]
    with pytest.raises(RuntimeError, match="broken"):
        await until(asyncio.Event(), fails())
