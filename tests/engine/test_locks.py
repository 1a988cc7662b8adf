"""Keeping locks alive, and telling those that are lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any

import pytest

from bide.clock import SystemClock
from bide.engine.locks import HeldLocks, RenewalThread, keep_renewing
from bide.errors import ProviderError
from bide.providers.memory import MemoryProvider
from bide.testing import VirtualClock

LOCK = timedelta(seconds=30)
LONG = timedelta(seconds=600)


class Renewing(MemoryProvider):
    """Answers renewals as told, and remembers them: when, which, and the seconds."""

    def __init__(self, clock: VirtualClock | SystemClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.renewals: list[tuple[float, list[str], float]] = []
        self.dead: set[str] = set()
        self.away = False
        self.hangs = False

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        self.renewals.append((self.clock.monotonic(), list(tokens), lock_timeout.total_seconds()))
        if self.hangs:
            await asyncio.Event().wait()
        if self.away:
            raise ProviderError("connection lost", retryable=True)
        return [token not in self.dead for token in tokens]


class Rig:
    """Renewals on the test's loop. ``lost``: the tokens, with when it was told."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.provider = Renewing(self.clock)
        self.lost: list[tuple[str, float]] = []
        self.held = HeldLocks(lambda token: self.lost.append((token, self.clock.monotonic())), LOCK)

    def add(self, *tokens: str, held: timedelta = LOCK, length: timedelta = LOCK) -> None:
        self.held.add(tokens, self.clock.monotonic(), held, length)

    async def __aenter__(self) -> Rig:
        self.renewing = asyncio.ensure_future(keep_renewing(self.provider, self.held, self.clock))
        await self.clock.advance(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.renewing.cancel()
        await asyncio.wait({self.renewing})


async def test_locks_are_renewed_in_one_batch_at_a_third_of_their_time() -> None:
    async with Rig() as rig:
        rig.add("a", "b")
        await rig.clock.advance(35)
        assert rig.provider.renewals == [(at, ["a", "b"], 30.0) for at in (10.0, 20.0, 30.0)]
        assert rig.lost == []


async def test_a_lock_taken_at_any_moment_is_renewed_a_third_of_it_later_at_the_latest() -> None:
    async with Rig() as rig:
        await rig.clock.advance(9)
        rig.add("a")
        await rig.clock.advance(10)
        assert [(at, tokens) for at, tokens, _ in rig.provider.renewals] == [(19.0, ["a"])]


async def test_locks_that_are_due_soon_are_renewed_along_so_that_they_stay_together() -> None:
    async with Rig() as rig:
        for n in range(4):
            rig.add(f"i{n}")
            await rig.clock.advance(1)
        await rig.clock.advance(30)
    batches = [tokens for _, tokens, _ in rig.provider.renewals]
    assert batches == [["i0", "i1", "i2", "i3"]] * 3


async def test_nothing_is_asked_where_nothing_is_held() -> None:
    async with Rig() as rig:
        rig.add("a")
        rig.held.remove(["a"])
        await rig.clock.advance(60)
        assert rig.provider.renewals == []


async def test_each_length_is_renewed_at_a_third_of_its_own() -> None:
    async with Rig() as rig:
        rig.add("short")
        rig.add("long", length=LONG)
        await rig.clock.advance(0)
        assert rig.provider.renewals == [(0.0, ["long"], 600.0)], "the longer one at once"
        await rig.clock.advance(205)
        long = [at for at, _, length in rig.provider.renewals if length == 600]
        assert long == [0.0, 200.0]
        assert len(rig.provider.renewals) == 20 + 2


async def test_a_longer_lock_that_is_not_granted_at_once_is_asked_for_before_the_short_one_ends() -> None:
    async with Rig() as rig:
        rig.provider.away = True
        rig.add("long", length=LONG)
        await rig.clock.advance(25)
        rig.provider.away = False
        await rig.clock.advance(5)
        assert rig.lost == []
        assert len(rig.provider.renewals) >= 3
        await rig.clock.advance(100)
        assert rig.lost == []


async def test_a_dead_token_is_lost_and_told_once() -> None:
    async with Rig() as rig:
        rig.add("a", "b")
        rig.provider.dead = {"a"}
        await rig.clock.advance(25)
        rig.held.lose("a")
        assert rig.lost == [("a", 10.0)]
        assert rig.held.tokens() == ["b"]


async def test_a_renewal_that_fails_is_no_lost_lock_until_its_time_is_over() -> None:
    async with Rig() as rig:
        rig.add("a")
        rig.provider.away = True
        await rig.clock.advance(25)
        assert rig.lost == []
        assert 3 <= len(rig.provider.renewals) <= 10, "again and again, but no storm"
        rig.provider.away = False
        await rig.clock.advance(5)
        rig.provider.away = True
        granted = rig.provider.renewals[-1][0]
        await rig.clock.advance(granted + 29.9 - rig.clock.monotonic())
        assert rig.lost == []
        await rig.clock.advance(0.2)
        assert rig.lost == [("a", granted + 30)]


async def test_a_renewal_that_is_never_answered_is_one_that_fails() -> None:
    async with Rig() as rig:
        rig.add("a")
        await rig.clock.advance(5)
        rig.add("b")
        rig.provider.hangs = True
        await rig.clock.advance(26)
        assert rig.lost == [("a", 30.0)]
        rig.provider.hangs = False
        await rig.clock.advance(30)
        assert rig.lost == [("a", 30.0)], "the other had time left"


async def test_a_renewal_that_hangs_on_a_dead_connection_is_asked_for_once_more_in_time() -> None:
    async with Rig() as rig:
        rig.add("a")
        rig.provider.hangs = True
        await rig.clock.advance(15)
        rig.provider.hangs = False
        await rig.clock.advance(30)
        assert rig.lost == []
        assert rig.held.tokens() == ["a"]


async def test_a_renewal_thread_that_cannot_begin_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(coroutine: Coroutine[Any, Any, None]) -> None:
        coroutine.close()
        raise OSError("too many open files")

    monkeypatch.setattr("asyncio.run", refused)
    monkeypatch.setattr("threading.excepthook", lambda told: None)
    thread = RenewalThread(Renewing(SystemClock()), HeldLocks(lambda token: None, LOCK), SystemClock())
    with pytest.raises(RuntimeError, match="could not begin"), thread:
        raise AssertionError("never entered")


async def test_a_token_let_go_of_while_it_is_renewed_is_not_held_again() -> None:
    async with Rig() as rig:
        rig.add("a")
        renew = rig.provider.renew

        async def slow(tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
            await rig.clock.sleep(1)
            return await renew(tokens, lock_timeout)

        rig.provider.renew = slow  # type: ignore[method-assign]
        await rig.clock.advance(10.5)
        rig.held.remove(["a"])
        await rig.clock.advance(1)
        assert rig.held.tokens() == []
        assert rig.lost == []


async def test_the_thread_renews_while_the_loop_is_blocked_also_what_is_due_at_once() -> None:
    clock = SystemClock()
    provider = Renewing(clock)
    held = HeldLocks(lambda token: None, timedelta(milliseconds=60))
    threads = threading.active_count()
    with RenewalThread(provider, held, clock):
        held.add(["a"], clock.monotonic(), timedelta(milliseconds=60), timedelta(milliseconds=60))
        held.add(["long"], clock.monotonic(), timedelta(milliseconds=60), LONG)
        time.sleep(0.3)  # noqa: ASYNC251 - the loop is blocked on purpose
    assert sum(tokens == ["a"] for _, tokens, _ in provider.renewals) >= 3
    assert [tokens for _, tokens, length in provider.renewals if length == 600] == [["long"]]
    assert threading.active_count() == threads
