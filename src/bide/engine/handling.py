"""Items in hand: from the fetch to the settlement.

What was fetched is held under a lock that is kept alive until the provider answered its settlement; a place is free
as soon as the handler ended. A handler whose lock is lost is cancelled and its result discarded. At a stop what was
not begun is given back at once; handlers get a grace period, then are cancelled and their items given back, all of
it uncounted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from bide.clock import Clock
from bide.engine.blocking import LoopWatch
from bide.engine.crew import Crew, HandleItem
from bide.engine.health import ProviderHealth
from bide.engine.locks import PART, HeldLocks, RenewalThread
from bide.engine.outcome import GivenBack, Outcome
from bide.engine.settling import Handled, Settler
from bide.engine.stopping import HURRIED_S, Haste
from bide.engine.waiting import CANCEL_LIMIT_S
from bide.provider import Settled, Work, WorkItem

Told = Callable[[WorkItem, Outcome, bool, float], None]
"""Told of each item that was handled: its outcome, whether its lock had been lost, and the seconds it took."""

SETTLE_LIMIT_S = 5.0
"""Seconds that settling may take at a stop once the handlers have ended."""

GATHER_S = 0.005
"""Seconds for which places that become free wait for more of them before the next fetch."""

MOST_UNSETTLED = 2
"""So many times the concurrency may be handled and not settled before nothing more is fetched."""

LOST = GivenBack("its lock was lost before it was begun", timedelta())
GOES_ON = "its handler did not end when it was stopped"


class Hands:
    """Up to ``concurrency`` items in hand, and of each name no more than its ``places``.

    ``lock_timeouts`` says for each name how long its locks are. ``freed`` is called when a name that had no free
    place has one.
    """

    def __init__(
        self,
        provider: Work,
        handle: HandleItem,
        *,
        concurrency: int,
        places: Mapping[str, int],
        lock_timeouts: Mapping[str, timedelta],
        clock: Clock,
        health: ProviderHealth,
        haste: Haste,
        told: Told,
        freed: Callable[[], None],
    ) -> None:
        self._provider = provider
        self._concurrency = concurrency
        self._places = dict(places)
        self._lock_timeouts = lock_timeouts
        self._one_timeout = len(set(lock_timeouts.values())) <= 1
        self._clock = clock
        self._haste = haste
        self._told = told
        self._freed = freed
        self._settler = Settler(provider, clock, health, self._settled)
        self._crew = Crew(handle, clock, concurrency, self._ended)
        shortest = min(lock_timeouts.values(), default=timedelta(seconds=30))
        self._held = HeldLocks(self._lock_lost, shortest)
        self._blocked_s = shortest.total_seconds() / PART
        self._in_hand = 0
        self._by_name = dict.fromkeys(places, 0)
        self._lost: set[str] = set()
        """Tokens whose handlers were called off since their locks are lost."""
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broken: BaseException | None = None

    @property
    def in_hand(self) -> int:
        """How many items were taken in hand and are not handled yet."""
        return self._in_hand

    # --- places --------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether anything is in hand or not settled yet."""
        return bool(self._in_hand or len(self._settler))

    def free(self) -> tuple[dict[str, int], int]:
        """Names that have free places, with how many, and how many items may be taken in all."""
        left = self._concurrency - self._in_hand
        names = {name: places - self._by_name[name] for name, places in self._places.items()}
        names = {name: min(free, left) for name, free in names.items() if free > 0}
        return names, min(left, sum(names.values()))

    async def wait_for_room(self) -> None:
        """Wait until something may be fetched.

        That is a free place of some name, and not too much that is still to be settled. While places become free
        turn by turn it waits a moment for more of them, up to half: one larger fetch costs less than several small
        ones.
        """
        while self._full():
            await self._wait_for_change()
        seen, enough, until = -1, self._concurrency // 2, self._clock.monotonic() + GATHER_S
        while seen < (free := self._concurrency - self._in_hand) < enough and self._clock.monotonic() < until:
            seen = free
            await asyncio.sleep(0)

    async def wait_for_one(self) -> None:
        """Wait until one handler has ended; where none is at work, until everything is settled."""
        before = self._in_hand
        while self._in_hand >= before and (before or len(self._settler)) and self._broken is None:
            await self._wait_for_change()

    def _full(self) -> bool:
        if self._broken is not None:
            raise self._broken
        if self._in_hand >= self._concurrency or len(self._settler) >= MOST_UNSETTLED * self._concurrency:
            return True
        return all(self._by_name[name] >= places for name, places in self._places.items())

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # --- items ---------------------------------------------------------------------------------------------

    def take(self, items: Collection[WorkItem], lock_timeout: timedelta) -> None:
        """Take in hand what was fetched under locks of ``lock_timeout``, and let handlers begin."""
        self._hold(items, lock_timeout)
        self._in_hand += len(items)
        for item in items:
            self._by_name[item.name] += 1
        self._crew.give(items)

    def give_back(self, items: Collection[WorkItem]) -> None:
        """Give back items that were not taken in hand: uncounted, due at once, their last error as it was."""
        for item in items:
            self._settler.add(item, None, 0.0)

    def _hold(self, items: Collection[WorkItem], lock_timeout: timedelta) -> None:
        now = self._clock.monotonic()
        if self._one_timeout:
            self._held.add([item.token for item in items], now, lock_timeout, lock_timeout)
            return
        tokens: dict[timedelta, list[str]] = {}
        for item in items:
            tokens.setdefault(self._lock_timeouts[item.name], []).append(item.token)
        for wanted, those in tokens.items():
            self._held.add(those, now, lock_timeout, wanted)

    def _ended(self, item: WorkItem, outcome: Outcome, elapsed_s: float) -> None:
        self._let_go(item)
        if self._lost and item.token in self._lost:
            self._lost.discard(item.token)
            self._told(item, outcome, True, elapsed_s)
        else:
            self._settler.add(item, outcome, elapsed_s)

    def _let_go(self, item: WorkItem) -> None:
        """Its place is free."""
        self._in_hand -= 1
        taken = self._by_name[item.name]
        self._by_name[item.name] = taken - 1
        self._changed.set()
        if taken >= self._places[item.name]:
            self._freed()

    def _settled(self, batch: Sequence[Handled], answers: Sequence[Settled | None]) -> None:
        self._held.remove([item.token for item, _, _ in batch])
        self._changed.set()
        for (item, outcome, elapsed_s), answer in zip(batch, answers, strict=True):
            if outcome is not None:
                self._told(item, outcome, answer != "settled", elapsed_s)

    def _lock_lost(self, token: str) -> None:
        """Called on the renewal's thread."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is in hand any more
            self._loop.call_soon_threadsafe(self._call_off_lost, token)

    def _call_off_lost(self, token: str) -> None:
        if self._crew.call_off(token):
            self._lost.add(token)
        elif (item := self._crew.withdraw(token)) is not None:
            self._let_go(item)
            self._told(item, LOST, True, 0.0)

    # --- beginning and stopping ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """HandleItem, settle and keep locks alive during the block, at whose end :meth:`finish` is to be called."""
        self._loop = asyncio.get_running_loop()
        self._broken = None
        self._crew.broken = self._break
        watch = LoopWatch(self._blocked_s, self._clock, self._shown)
        with RenewalThread(self._provider, self._held, self._clock, watch.look):
            settling = self._loop.create_task(self._settler.run())
            settling.add_done_callback(self._stopped_settling)
            try:
                yield
            finally:
                for item in self._crew.dismiss():  # some are left where the stop itself was cancelled
                    self._let_go(item)
                self._lost.clear()
                await self._haste.end(settling, HURRIED_S)
                self._held.remove(self._held.tokens())  # what was not settled is left to expire
        if self._broken is not None:
            raise self._broken

    async def finish(self, grace: timedelta) -> None:
        """Let handlers end, as the module says, and settle what came of it."""
        unbegun = self._crew.withdraw_all()
        for item in unbegun:
            self._let_go(item)
        self.give_back(unbegun)
        await self._wait_until(self._idle, grace.total_seconds(), hurried_s=0.0)
        self._crew.call_off()
        await self._wait_until(self._idle, CANCEL_LIMIT_S, hurried_s=CANCEL_LIMIT_S)
        for item in self._crew.dismiss():
            # It may go on for a while yet, so nobody else gets it sooner than if its lock had expired.
            self._let_go(item)
            self._settler.add(item, GivenBack(GOES_ON, self._lock_timeouts[item.name]), 0.0)
        await self._wait_until(lambda: not len(self._settler), SETTLE_LIMIT_S, hurried_s=HURRIED_S)

    def _idle(self) -> bool:
        return not self._in_hand

    async def _wait_until(self, condition: Callable[[], bool], seconds: float, *, hurried_s: float) -> None:
        """Until ``condition`` holds, something broke or the time is up."""

        async def wait() -> None:
            while not condition() and self._broken is None:
                await self._wait_for_change()

        waiting = asyncio.ensure_future(wait())
        try:
            await self._haste.ends_within(seconds, waiting, hurried_s=hurried_s)
        finally:
            waiting.cancel()

    def _shown(self, task: asyncio.Task[Any] | None) -> str | None:
        item = self._crew.at_work(task)
        return None if item is None else f"{item.name} (item {item.id} of queue {item.queue})"

    def _stopped_settling(self, settling: asyncio.Task[None]) -> None:
        if not settling.cancelled():
            self._break(settling.exception())

    def _break(self, error: BaseException | None) -> None:
        """Something of ours failed that never should: what waits is told, so that the loop ends with it."""
        self._broken = self._broken or error
        self._changed.set()
        self._freed()
