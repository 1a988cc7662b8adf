"""Keeping locks alive, and telling those that are lost."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest

from bide.clock import SystemClock
from bide.engine.locks import HeldLocks, RenewalThread, keep_renewing, renew_once
from bide.errors import ProviderError
from bide.providers.memory import MemoryProvider
from bide.testing import VirtualClock

LOCK = timedelta(seconds=30)


class Renewing(MemoryProvider):
    """Answers renewals as told, and remembers them."""

    def __init__(self, clock: VirtualClock | SystemClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.renewals: list[tuple[float, list[str]]] = []
        self.dead: set[str] = set()
        self.away = False

    async def renew(self, tokens: object, lock_timeout: timedelta) -> list[bool]:
        assert isinstance(tokens, list)
        self.renewals.append((self.clock.monotonic(), tokens))
        if self.away:
            raise ProviderError("connection lost", retryable=True)
        return [token not in self.dead for token in tokens]


def rig() -> tuple[VirtualClock, Renewing, HeldLocks, list[str]]:
    clock = VirtualClock()
    lost: list[str] = []
    return clock, Renewing(clock), HeldLocks(lost.append), lost


async def test_locks_are_renewed_in_one_batch_at_a_third_of_their_time() -> None:
    clock, provider, held, lost = rig()
    held.add("a", 30.0)
    held.add("b", 30.0)
    renewing = asyncio.ensure_future(keep_renewing(provider, held, clock, LOCK))
    await clock.advance(35)
    renewing.cancel()
    assert provider.renewals == [(10.0, ["a", "b"]), (20.0, ["a", "b"]), (30.0, ["a", "b"])]
    assert lost == []


async def test_nothing_is_asked_where_nothing_is_held() -> None:
    clock, provider, held, _ = rig()
    held.add("a", 30.0)
    held.remove("a")
    await renew_once(provider, held, clock, LOCK)
    assert provider.renewals == []


async def test_a_dead_token_is_lost_and_told_once() -> None:
    clock, provider, held, lost = rig()
    held.add("a", 30.0)
    held.add("b", 30.0)
    provider.dead = {"a"}
    await renew_once(provider, held, clock, LOCK)
    await renew_once(provider, held, clock, LOCK)
    held.lose("a")
    assert lost == ["a"]
    assert held.tokens() == ["b"]


async def test_a_renewal_that_fails_is_no_lost_lock_until_its_time_is_over() -> None:
    clock, provider, held, lost = rig()
    held.add("a", 30.0)
    provider.away = True
    renewing = asyncio.ensure_future(keep_renewing(provider, held, clock, LOCK))
    await clock.advance(25)
    assert lost == []
    provider.away = False
    await clock.advance(10)
    assert lost == [], "the provider came back in time: the lock now ends at 60"
    provider.away = True
    await clock.advance(20)
    assert lost == []
    await clock.advance(10)
    assert lost == ["a"]
    renewing.cancel()


async def test_a_token_let_go_of_while_it_is_renewed_is_not_held_again() -> None:
    _, _, held, lost = rig()
    held.add("a", 30.0)
    held.remove("a")
    held.renewed("a", 60.0)
    assert held.tokens() == []
    assert lost == []


@pytest.mark.parametrize("blocked", [True])
async def test_the_thread_renews_while_the_loop_is_blocked(blocked: bool) -> None:
    clock = SystemClock()
    provider = Renewing(clock)
    held = HeldLocks(lambda token: None)
    held.add("a", clock.monotonic() + 1)
    threads = threading.active_count()
    with RenewalThread(provider, held, clock, timedelta(milliseconds=60)):
        time.sleep(0.3)  # noqa: ASYNC251 - the loop is blocked on purpose
    assert len(provider.renewals) >= 3
    assert threading.active_count() == threads
