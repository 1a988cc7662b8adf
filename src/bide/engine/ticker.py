"""The ticker: which polls to look at, when, and how many calls at a time.

``pass_once`` is ``bide tick``: it looks for due polls once. ``run`` looks at each due instant that it knows of,
and at all of them at least once a tick, for what others moved. The store decides who calls (the claim); what
is kept here is only a belief about when a look is worth it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import timedelta

from bide.clock import Clock
from bide.core.claim import claimable_at, is_claimable
from bide.core.durations import to_ms
from bide.core.pacing import FETCH_BACKOFF, StartPace
from bide.core.schedule import Agenda, DueQueue, Lane
from bide.engine.asking import HeardPoll
from bide.engine.calling import PollCalls
from bide.engine.health import ProviderHealth
from bide.errors import ProviderError
from bide.provider import Claim, PollRow, Polls
from bide.telemetry import PollAnswered, PollFailed, Telemetry

ZERO = timedelta()

CLAIM_GAP_S = 0.05
"""Seconds between two claims while calls have room: polls that are due close together share one statement."""

LOOK_AGAIN_S = 1.0
"""Seconds after which a poll is looked at again that seemed due and was not to be had."""

Told = PollAnswered | PollFailed


class Ticker:
    """Calls the polls that somebody hears. ``max_calls``: calls at a time in this process."""

    def __init__(
        self,
        provider: Polls,
        polls: Mapping[str, HeardPoll],
        *,
        tick: timedelta,
        max_calls: int,
        clock: Clock,
        telemetry: Telemetry,
        grace: timedelta = timedelta(seconds=30),
    ) -> None:
        self._provider = provider
        self._polls = dict(polls)
        self._tick = tick
        self._max_calls = max_calls
        self._clock = clock
        self._grace = grace
        self._calls = PollCalls(provider, clock=clock, telemetry=telemetry)
        self._tick_calls = PollCalls(provider, clock=clock, telemetry=telemetry, slack=tick / 2)
        self._health = ProviderHealth("polls", clock, telemetry)
        self._agenda = Agenda()
        self._due = DueQueue(_lanes(self._polls.values(), max_calls))
        self._running: dict[str, asyncio.Task[Told]] = {}
        self._in_flight: Counter[str] = Counter()
        self._woken = asyncio.Event()
        self._hurry = asyncio.Event()
        self._refresh_at = self._wakes_at = clock.monotonic()

    # --- one pass ------------------------------------------------------------------------------------------

    async def pass_once(self) -> list[Told]:
        """Look for due polls once, call them, and tell what came of each, by name.

        A poll that will be due within half a tick counts as due. Raises ``ProviderError``.
        """
        slack = self._tick / 2
        now, rows = await self._rows(self._polls)
        for name, heard in self._polls.items():
            every_ms = to_ms(heard.poll.every)
            if is_claimable(rows.get(name), now=now, every_ms=every_ms, slack_ms=to_ms(slack)):
                self._due.add(name, heard.poll.connection, heard.poll.every)
        made: dict[str, asyncio.Task[Told]] = {}
        try:
            while self._due:
                names = self._due.pick(self._free, in_flight=self._in_flight, now=None)
                if names:
                    for claim in await self._claim(names, slack):
                        made[claim.name] = self._start(claim, self._tick_calls)
                elif self._running:
                    await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
            if self._running:
                await asyncio.wait(self._running.values())
        finally:
            for call in self._running.values():
                call.cancel()
        return [made[name].result() for name in sorted(made)]

    # --- running -------------------------------------------------------------------------------------------

    async def run(self, stopping: asyncio.Event) -> None:
        """Call polls as they come due until ``stopping`` is set; calls under way may end within the grace."""
        ticking = asyncio.ensure_future(self._keep_ticking())
        waiting = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait({ticking, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            ticking.cancel()
            await asyncio.wait({ticking})
            await self._finish()
        if not ticking.cancelled():
            ticking.result()

    def stop_now(self) -> None:
        """Cut the grace period short."""
        self._hurry.set()

    def hear(self, polls: Mapping[str, HeardPoll]) -> None:
        """From now on call exactly ``polls`` (those that somebody hears)."""
        if polls.keys() == self._polls.keys():
            return
        self._polls = dict(polls)
        self._due = DueQueue(_lanes(self._polls.values(), self._max_calls))
        self._agenda.keep_only(self._polls)
        self._refresh_at = self._clock.monotonic()
        self._woken.set()

    async def _keep_ticking(self) -> None:
        backoff = None
        while True:
            self._woken.clear()
            try:
                if (now := self._clock.monotonic()) >= self._refresh_at:
                    self._refresh_at = now + self._tick.total_seconds()
                    await self._learn([name for name in self._polls if name not in self._running])
                await self._start_due()
            except ProviderError as error:
                if not error.retryable:
                    raise
                self._health.failed(error)
                backoff = FETCH_BACKOFF.next(backoff)
                await self._clock.sleep(backoff.total_seconds() * (0.9 + 0.2 * self._clock.draw()))
                self._refresh_at = self._clock.monotonic()
                continue
            self._health.answered()
            backoff = None
            await self._wait()

    async def _start_due(self) -> None:
        """Claim and start what is due, as far as places, caps and the pace of starts allow."""
        now = self._clock.monotonic()
        for name in self._agenda.take_due(now):
            if name in self._polls and name not in self._running:
                poll = self._polls[name].poll
                self._due.add(name, poll.connection, poll.every)
        names = self._due.pick(self._free, in_flight=self._in_flight, now=now)
        if not names:
            return
        claims = await self._claim(names, ZERO)
        for claim in claims:
            self._start(claim, self._calls)
        claimed = {claim.name for claim in claims}
        await self._learn([name for name in names if name not in claimed])

    async def _claim(self, names: Collection[str], slack: timedelta) -> list[Claim]:
        schedules = [self._polls[name].schedule for name in names]
        return await self._provider.claim_polls(schedules, len(schedules), slack=slack)

    async def _learn(self, names: Collection[str]) -> None:
        """Look up when ``names`` will be due."""
        if not names:
            return
        now_ms, rows = await self._rows(names)
        now = self._clock.monotonic()
        for name in names:
            row = rows.get(name)
            at = claimable_at(row, now=now_ms, every_ms=to_ms(self._polls[name].poll.every))
            if at is None:  # paused: the next look of all will see it resumed
                self._agenda.remove(name)
            else:
                self._agenda.put(name, now + (at - now_ms) / 1000)

    async def _rows(self, names: Collection[str]) -> tuple[int, dict[str, PollRow]]:
        rows = await self._provider.poll_rows(names)
        return await self._provider.now(), {row.name: row for row in rows}

    async def _wait(self) -> None:
        """Until there may be something to start: a due instant, the pace, a freed place, the next refresh."""
        now = self._clock.monotonic()
        instants = [self._refresh_at]
        if (at := self._agenda.next_at()) is not None:
            instants.append(at)
        if self._free > 0 and (at := self._due.next_at(self._in_flight)) is not None:
            instants.append(at)
        self._wakes_at = max(min(instants), now + CLAIM_GAP_S)
        sleeping = asyncio.ensure_future(self._clock.sleep(self._wakes_at - now))
        waking = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({sleeping, waking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            waking.cancel()

    # --- calls ---------------------------------------------------------------------------------------------

    @property
    def _free(self) -> int:
        return self._max_calls - len(self._running)

    def _start(self, claim: Claim, calls: PollCalls) -> asyncio.Task[Told]:
        heard = self._polls[claim.name]
        connection = heard.poll.connection
        began = self._clock.monotonic()
        call = asyncio.ensure_future(calls.make(heard, claim))
        self._running[claim.name] = call
        self._in_flight[connection] += 1

        def ended(call: asyncio.Task[Told]) -> None:
            del self._running[claim.name]
            self._in_flight[connection] -= 1
            if not call.cancelled() and call.exception() is None:
                self._look_again(claim, call.result(), began)
            at = self._agenda.next_at()
            if self._due or (at is not None and at < self._wakes_at):
                self._woken.set()

        call.add_done_callback(ended)
        return call

    def _look_again(self, claim: Claim, told: Told, began: float) -> None:
        """When to look at the poll next, as far as this call tells."""
        if claim.name not in self._polls:
            return
        if isinstance(told, PollFailed):
            self._agenda.put(claim.name, self._clock.monotonic() + told.retry_in_ms / 1000)
        else:
            self._agenda.put(claim.name, began + (claim.next_due_at - claim.claimed_at) / 1000)

    async def _finish(self) -> None:
        """Let calls under way end within the grace period; a claim that is cut off comes round by itself."""
        if not self._running:
            return
        calls = asyncio.ensure_future(asyncio.wait(list(self._running.values())))
        grace = asyncio.ensure_future(self._clock.sleep(self._grace.total_seconds()))
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait({calls, grace, hurry}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (*self._running.values(), calls, grace, hurry):
                each.cancel()


def _lanes(polls: Collection[HeardPoll], max_calls: int) -> dict[str, Lane]:
    """For each connection its cap, and the pace of its starts: twice the even rate of its polls."""
    heard_by: dict[str, list[HeardPoll]] = {}
    for heard in polls:
        heard_by.setdefault(heard.poll.connection, []).append(heard)
    return {
        name: Lane(
            heards[0].connection.max_concurrent or max(1, max_calls * 3 // 4),
            StartPace(2 * sum(1 / heard.poll.every.total_seconds() for heard in heards)),
        )
        for name, heards in heard_by.items()
    }
