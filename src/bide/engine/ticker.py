"""The ticker: which polls to look at, when, and how many calls at a time.

``pass_once`` is ``bide tick``: it looks for due polls once. ``run`` looks at each due instant that it knows of,
and at all of them at least once a tick, for what others moved. The store decides who calls (the claim); what
is kept here is only a belief about when a look is worth it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta

from bide.clock import Clock
from bide.core.claim import claimable_at
from bide.core.durations import to_ms
from bide.core.pacing import FETCH_BACKOFF, StartPace, about
from bide.core.schedule import Agenda, DueQueue
from bide.engine.asking import HeardPoll
from bide.engine.calling import PollCall, PollCalls, Told
from bide.engine.health import ProviderHealth
from bide.engine.places import Places
from bide.engine.waiting import CANCEL_LIMIT_S, ends_within
from bide.errors import ProviderError
from bide.provider import Claim, PollRow, Polls
from bide.telemetry import PollFailed, Telemetry

ZERO = timedelta()

CLAIM_GAP_S = 0.05
"""Seconds between two claims while calls have room: polls that are due close together share one statement."""

LOOK_AGAIN_S = 1.0
"""Seconds after which a poll is looked at again that seemed due and was not to be had."""

CATCH_UP = 1.8
"""Calls of a connection start at up to so many times the even rate of its polls. Together with the few that may start
at once this keeps many polls, at a start or after an outage, within twice the even rate in every second."""


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
        hide: Callable[[str], str] = str,
        grace: timedelta = timedelta(seconds=30),
    ) -> None:
        self._provider = provider
        self._polls = dict(polls)
        self._tick = tick
        self._clock = clock
        self._grace = grace
        self._health = ProviderHealth("polls", clock, telemetry)
        self._agenda = Agenda()
        self._due = DueQueue(_paces(self._polls.values()))
        caps = {
            heard.poll.connection: heard.connection.max_concurrent or max(1, max_calls * 3 // 4)
            for heard in self._polls.values()
        }
        self._calls = PollCalls(provider, clock=clock, telemetry=telemetry, hide=hide)
        self._places: Places[PollCall] = Places(
            max_calls, caps, make=self._calls.make, dropped=lambda call: call.ended(call, None), clock=clock
        )
        self._woken = asyncio.Event()
        self._refresh_at = self._wakes_at = clock.monotonic()

    # --- one pass ------------------------------------------------------------------------------------------

    async def pass_once(self) -> list[Told]:
        """Look for due polls once, call them, and tell what came of each, by name.

        A poll that will be due within half a tick counts as due. Raises ``ProviderError``.
        """
        slack = self._tick / 2
        made: list[Told] = []

        def ended(call: PollCall, told: Told | None) -> None:
            self._places.over(call)
            if told is not None:
                made.append(told)

        async def claim_some() -> bool:
            names = self._due.pick(self._places.room, room_of=self._places.room_of, now=None)
            if names:
                await self._claim_and_start(names, slack, ended)
            return bool(names)

        for name, heard in self._polls.items():  # which of them are due, the claim finds out
            self._due.add(name, heard.poll.connection, heard.poll.every)
        try:
            while self._due:
                if not await claim_some():
                    await self._places.wait_for_one()
            await self._places.wait_for_all()
        except ProviderError:
            await self._places.wait_for_all()  # what was called is recorded, as far as it can be
            raise
        finally:
            await self._cancel_calls()
        return sorted(made, key=lambda told: told.poll)

    # --- running -------------------------------------------------------------------------------------------

    async def run(self, stopping: asyncio.Event) -> None:
        """Call polls as they come due until ``stopping`` is set; calls under way may end within the grace."""
        ticking = asyncio.ensure_future(self._keep_ticking())
        waiting = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait({ticking, waiting}, return_when=asyncio.FIRST_COMPLETED)
            cancelled = ticking.cancelled()  # by something that it had called
        finally:
            waiting.cancel()
            ticking.cancel()
            await asyncio.wait({ticking})
            await self._places.finish(self._grace)
            await self._cancel_calls()
        if cancelled or not ticking.cancelled():
            ticking.result()

    def stop_now(self) -> None:
        """Cut the grace period short."""
        self._places.stop_now()

    def hear(self, polls: Mapping[str, HeardPoll]) -> None:
        """From now on call exactly ``polls`` (those that somebody hears)."""
        if polls.keys() == self._polls.keys():
            return
        self._polls = dict(polls)
        self._due = DueQueue(_paces(self._polls.values()))
        self._agenda.keep_only(self._polls)
        self._refresh_at = self._clock.monotonic()
        self._woken.set()

    async def _keep_ticking(self) -> None:
        backoff = None
        while True:
            self._woken.clear()
            self._places.freed.clear()
            doing = "looking"
            try:
                if (now := self._clock.monotonic()) >= self._refresh_at:
                    self._refresh_at = now + self._tick.total_seconds()
                    await self._learn([name for name in self._polls if name not in self._places])
                    self._health.answered(doing)
                doing = "claiming"
                if await self._start_due():
                    self._health.answered(doing)
            except ProviderError as error:
                if not error.retryable:
                    raise
                self._health.failed(error, doing)
                backoff = FETCH_BACKOFF.next(backoff)
                await self._clock.sleep(about(backoff, self._clock.draw()).total_seconds())
                self._refresh_at = self._clock.monotonic()
                continue
            if not self._health.down:
                backoff = None
            await self._wait()

    async def _start_due(self) -> bool:
        """Claim and start what is due, as far as places, caps and the pace of starts allow; whether anything was."""
        now = self._clock.monotonic()
        for name in self._agenda.take_due(now):
            if name in self._polls and name not in self._places:
                poll = self._polls[name].poll
                self._due.add(name, poll.connection, poll.every)
        names = self._due.pick(self._places.room, room_of=self._places.room_of, now=now)
        if not names:
            return False
        claimed = await self._claim_and_start(names, ZERO, self._look_again)
        await self._learn([name for name in names if name not in claimed])
        return True

    async def _claim_and_start(
        self, names: Collection[str], slack: timedelta, ended: Callable[[PollCall, Told | None], None]
    ) -> set[str]:
        """Claim ``names`` and start the calls of those that were to be had, whose names are answered."""
        heards = {name: self._polls[name] for name in names}
        schedules = [heard.schedule for heard in heards.values()]
        claiming = asyncio.ensure_future(self._provider.claim_polls(schedules, len(schedules), slack=slack))
        try:
            claims = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await ends_within(self._clock, CANCEL_LIMIT_S, claiming)
            # What was taken at the moment of a stop is called all the same.
            self._places.start(self._calls_of(_taken(claiming), heards, slack, ended))
            raise
        self._places.start(self._calls_of(claims, heards, slack, ended))
        return {claim.name for claim in claims}

    async def _learn(self, names: Collection[str]) -> None:
        """Look up when ``names`` will be due."""
        if not names:
            return
        now_ms, rows = await self._rows(names)
        now = self._clock.monotonic()
        for name in names:
            if name not in self._polls:  # nobody hears it any more since it was asked for
                continue
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
        if self._places.room > 0 and (at := self._due.next_at(self._places.room_of)) is not None:
            instants.append(at)
        self._wakes_at = max(min(instants), now + CLAIM_GAP_S)
        waits = [
            asyncio.ensure_future(self._clock.sleep(self._wakes_at - now)),
            asyncio.ensure_future(self._woken.wait()),
        ]
        if self._due:
            waits.append(asyncio.ensure_future(self._places.freed.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _calls_of(
        self,
        claims: Iterable[Claim],
        heards: Mapping[str, HeardPoll],
        slack: timedelta,
        ended: Callable[[PollCall, Told | None], None],
    ) -> list[PollCall]:
        now = self._clock.monotonic()
        return [PollCall(heards[claim.name], claim, slack, now, ended) for claim in claims]

    async def _cancel_calls(self) -> None:
        await self._places.cancel()
        self._calls.cancel()

    def _look_again(self, call: PollCall, outcome: Told | None) -> None:
        """When to look at the poll next, as far as this call tells."""
        self._places.over(call)
        claim, heard, began = call.claim, call.heard, call.claimed_at
        if claim.name not in self._polls:
            return
        if outcome is None:  # not recorded: the claim holds the poll for a while
            at = began + (heard.schedule.deadline + heard.schedule.failure_retry).total_seconds()
        elif isinstance(outcome, PollFailed):
            at = self._clock.monotonic() + outcome.retry_in_ms / 1000
        else:
            at = began + (claim.next_due_at - claim.claimed_at) / 1000
        self._agenda.put(claim.name, at)
        if at < self._wakes_at:
            self._woken.set()


def _taken(claiming: asyncio.Future[list[Claim]]) -> list[Claim]:
    """What a claim took that nobody waits for any more; whether it failed or never ends makes no difference."""
    if claiming.cancel() or claiming.cancelled() or claiming.exception() is not None:
        return []
    return claiming.result()


def _paces(polls: Collection[HeardPoll]) -> dict[str, StartPace]:
    """For each connection the pace of its starts, by the even rate of its polls.

    At once may start what comes of the pace between two claims, so that the pace can be kept, and 10 in any case.
    """
    rates: dict[str, float] = {}
    for heard in polls:
        name = heard.poll.connection
        rates[name] = rates.get(name, 0.0) + 1 / heard.poll.every.total_seconds()
    paces = {name: CATCH_UP * rate for name, rate in rates.items()}
    return {name: StartPace(pace, burst=max(10, int(pace * CLAIM_GAP_S))) for name, pace in paces.items()}
