"""One fetch: what is received, what of it is handed out, and what becomes of the rest.

A fetch that may wait makes one receive for each queue, which waits at SQS, and ends with the first that is answered.
Further receives that do not wait follow while full ones come. Nothing that was received is kept back: what cannot be
handed out is sent anew for others, with its counts, or buried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence

from bide.errors import ProviderError
from bide.provider import Empty, Items, WorkItem
from bide.providers.sqs.batches import Handle, done_or_raise, hide_all
from bide.providers.sqs.catching import Catch, Caught, Wanted
from bide.providers.sqs.holding import Held, Holdings, Token
from bide.providers.sqs.messages import Message, as_work_item, foreign_item
from bide.providers.sqs.receiving import MOST_MESSAGES, Standing, Standings, receive
from bide.providers.sqs.session import Session

ON_ITS_WAY_S = 0.25
"""Real seconds for the answer of a receive to come that had taken a message before another receive found none."""

ANSWERED_S = 0.5
"""Seconds beyond its wait for a receive to be answered; then the fetch goes, and the receive stays."""

WAITED_S = 0.2
"""Seconds after which a fetch counts as one that waited."""

MOST_ROUNDS = 32
"""Receives of a queue, one after the other, in one fetch."""

SIDE_BY_SIDE = 4
"""Receives of a queue at a time, once a full one has come."""


class Fetch:
    """One fetch on the event loop of ``session``; it is run to its end, and only told to hurry."""

    def __init__(
        self,
        session: Session,
        standings: Standings,
        holdings: Holdings,
        wanted: Wanted,
        tell_unwanted: Callable[[str, str], None],
    ) -> None:
        self._session = session
        self._standings = standings
        self._holdings = holdings
        self._wanted = wanted
        self.over = asyncio.Event()
        """Set by whoever runs it, at its end."""
        self._ended = asyncio.Event()
        self._given_up = False
        self._catch = Catch(session, wanted, tell_unwanted)
        self._error: ProviderError | None = None
        self._began_s = session.clock.monotonic()

    def end(self) -> None:
        """Wait no longer. To be called on the session's event loop."""
        self._ended.set()

    def give_up(self) -> None:
        """Wait no longer, and give back what was taken. To be called on the session's event loop."""
        self._given_up = True
        self._ended.set()

    async def run(self) -> Items | Empty:
        """What was found. Raises ``ProviderError``."""
        if self._given_up:
            return Empty()
        before = self._standings.returning()
        if self._wanted.wait_s < 1:
            await self._look_now(before)
        else:
            await _all_done(before)
            left_s = self._wanted.wait_s
            while left_s >= 1 and await self._wait(int(left_s)) and not self._catch.chosen():
                await self._catch.tidy()
                left_s = self._wanted.wait_s - (self._session.clock.monotonic() - self._began_s)
        return await self._answer()

    # --- receiving -----------------------------------------------------------------------------------------

    async def _wait(self, wait_s: int) -> bool:
        """Until a receive that waits is answered; whether it is worth waiting on where nothing fits."""
        wanted = self._wanted
        most = max(wanted.limit // len(wanted.queues), 1)
        joined = {
            queue: self._standings.join(queue, name, most=most, lock_s=wanted.lock_s, wait_s=wait_s)
            for queue, name in wanted.queues.items()
        }
        ending = asyncio.ensure_future(self._ended.wait())
        timer = asyncio.ensure_future(self._session.clock.sleep(wait_s + ANSWERED_S))
        receivings = {standing.receiving for standing in joined.values()}
        try:
            await asyncio.wait({ending, timer, *receivings}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            timer.cancel()
        came = any(receiving.done() for receiving in receivings)
        full = []
        for queue, standing in joined.items():
            brought = self._brought(standing)
            self._standings.leave(standing)
            if brought == []:
                came = False
            await self._catch.sort(brought or ())
            if brought and len(brought) >= standing.most:
                full.append(queue)
        if full and not self._ended.is_set():
            await self._look(full)
        return came and not self._ended.is_set()

    async def _look(self, queues: Sequence[str]) -> None:
        """Receive without waiting, while full receives come and there is room."""
        live, rounds, parallel, fruitless = list(queues), 0, 1, False
        while live and rounds < MOST_ROUNDS and (room := self._catch.room()) > 0:
            asks = (
                [(queue, MOST_MESSAGES) for queue in live] if fruitless else list(allot(room, live, parallel))
            )
            before = self._catch.fitting
            answers = await asyncio.gather(*(self._receive(queue, most) for queue, most in asks))
            for (queue, most), messages in zip(asks, answers, strict=True):
                await self._catch.sort(messages)
                if len(messages) < most and queue in live:
                    live.remove(queue)
            asked = {queue for queue, _ in asks}
            live = [queue for queue in live if queue not in asked] + [
                queue for queue in live if queue in asked
            ]
            fruitless = self._catch.fitting == before
            rounds, parallel = rounds + 1, SIDE_BY_SIDE

    async def _receive(self, queue: str, most: int) -> list[Message]:
        """Messages of one queue; an error is kept for the end, so that what others brought is not lost."""
        name = self._wanted.queues[queue]
        try:
            return await receive(self._session, queue, name, most=most, lock_s=self._wanted.lock_s)
        except ProviderError as error:
            self._error = error
            return []

    async def _look_now(self, before: Collection[asyncio.Task[None]]) -> None:
        """Receive without waiting.

        A receive that an earlier fetch left may have taken what this one looks for; then its answer is near.
        """
        left = [
            self._standings.join(queue, name, most=1, lock_s=self._wanted.lock_s, wait_s=1)
            for queue, name in self._wanted.queues.items()
            if self._standings.under_way(name) is not None
        ]
        await _all_done(before)
        await self._look(tuple(self._wanted.queues))
        if left and not self._catch.chosen():
            await asyncio.wait({standing.receiving for standing in left}, timeout=ON_ITS_WAY_S)
        for standing in left:
            await self._catch.sort(self._brought(standing) or ())
            self._standings.leave(standing)

    def _brought(self, standing: Standing) -> list[Message] | None:
        """What a receive that waited has brought; None where it is not over, or another fetch has that."""
        if not standing.is_over:
            return None
        try:
            return standing.take()
        except ProviderError as error:
            self._error = error
            return []

    # --- handing out ---------------------------------------------------------------------------------------

    async def _answer(self) -> Items | Empty:
        waits = self._wanted.wait_s >= 1
        chosen = [] if self._given_up else self._catch.chosen()
        await self._catch.let_go(chosen)
        locked = await self._locked(chosen)
        if locked:
            waited_s = self._session.clock.monotonic() - self._began_s
            return Items(tuple(locked), blocked=waits and waited_s >= WAITED_S)
        if self._error is not None and not self._given_up:
            raise self._error
        return Empty(blocked=waits)

    async def _locked(self, chosen: Sequence[Caught]) -> list[WorkItem]:
        """The items, under locks that are this fetch's."""
        wanted, session = self._wanted, self._session
        now_s, now_ms = session.clock.monotonic(), await session.now_ms() if chosen else 0
        others = [one for one in chosen if one.message.lock_s != wanted.lock_s]
        handles = [Handle(one.message.name, one.message.receipt) for one in others]
        renewed = done_or_raise(await hide_all(session, handles, [wanted.lock_s] * len(handles)))
        lost = {one.message.receipt for one, done in zip(others, renewed, strict=True) if not done}
        until = {one.message.receipt: now_s + wanted.lock_s for one in others}
        held, items = [], []
        for one in chosen:
            message = one.message
            if message.receipt in lost:
                continue
            until_s = until.get(message.receipt, message.until_s)
            until_ms = now_ms + round((until_s - now_s) * 1000)
            token = Token(message.queue, until_ms, self._holdings.mark, message.receipt).text()
            handle = Handle(message.name, message.receipt)
            held.append(Held(token, handle, message, one.item, wanted.fetch_token, now_s, until_s))
            items.append(
                foreign_item(message, min(wanted.names), token, one.unknown)
                if one.item is None
                else as_work_item(one.item, message.queue, token)
            )
        self._holdings.keep(held, now_s)
        return items


async def _all_done(tasks: Collection[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)


def allot(room: int, queues: Sequence[str], parallel: int) -> Iterator[tuple[str, int]]:
    """Receives that together bring no more than ``room`` messages: shares for ``queues``, the first ones larger."""
    least, larger = divmod(room, len(queues))
    for place, queue in enumerate(queues):
        share = least + (place < larger)
        for _ in range(parallel):
            most = min(share, MOST_MESSAGES)
            if most:
                yield queue, most
            share -= most
