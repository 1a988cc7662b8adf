"""Queues of work items in SQS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta

from bide.core.abilities import SQS, unsupported
from bide.core.durations import format_duration, to_ms
from bide.errors import ProviderError
from bide.provider import Empty, Enqueued, Fetched, Items, Limit, NewItem, Settled, Settlement
from bide.providers.choosing import Turns, in_force
from bide.providers.sqs.catching import Wanted
from bide.providers.sqs.enqueueing import enqueue, queue_name
from bide.providers.sqs.fetching import Fetch
from bide.providers.sqs.holding import LONGEST_LOCK_S, Holdings
from bide.providers.sqs.moving import give_back_all
from bide.providers.sqs.receiving import Standings
from bide.providers.sqs.session import Session
from bide.providers.sqs.sessions import Sessions, begun, finished
from bide.providers.sqs.settling import release, renew, settle

_LOG = logging.getLogger("bide.sqs")


class SqsWork:
    """The work part of :class:`bide.provider.Provider`."""

    _sessions: Sessions
    _holdings: Holdings
    _turns: Turns
    _standings: dict[Session, Standings]
    _fetches: dict[Fetch, Session]
    _known: set[str]
    _told: set[tuple[str, str]]

    async def enqueue(self, items: Sequence[NewItem]) -> list[Enqueued]:
        return await self._sessions.run(lambda session: enqueue(session, items))

    async def fetch_work_items(
        self,
        queues: Collection[str],
        names: Collection[str],
        *,
        limit: int,
        lock_timeout: timedelta,
        poll_timeout: timedelta,
        fetch_token: str,
        most: Mapping[str, int] | None = None,
        limits: Mapping[str, Limit] | None = None,
    ) -> Fetched:
        if limit < 1:
            raise ValueError(f"a fetch takes at least one item, not {limit}")
        if in_force(limits, queues):
            raise unsupported(SQS, "limits")
        most = most or {}
        self._known.update(names)
        address = self._sessions.address
        wanted = Wanted(
            queues={queue: queue_name(address, queue) for queue in self._turns.next_of(queues)},
            names=frozenset(name for name in names if most.get(name, 1) > 0),
            known=self._known,
            limit=limit,
            most=most,
            lock_s=_lock_s(lock_timeout),
            wait_s=min(poll_timeout.total_seconds(), address.wait_s),
            fetch_token=fetch_token,
        )
        session = await self._sessions.session()
        if not wanted.names or not wanted.queues:
            return Empty()
        return await self._fetch(session, wanted)

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        lock_s = _lock_s(lock_timeout)
        return await self._sessions.run(lambda session: renew(session, self._holdings, tokens, lock_s))

    async def release(self, fetch_token: str) -> int:
        return await self._sessions.run(lambda session: release(session, self._holdings, fetch_token))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await self._sessions.run(lambda session: settle(session, self._holdings, settlements))

    async def wake(self) -> None:
        for fetch, session in list(self._fetches.items()):
            _call_on(session, fetch.end)

    async def _fetch(self, session: Session, wanted: Wanted) -> Items | Empty:
        """A fetch runs to its end on its session's event loop; whoever is cancelled leaves it to give back."""
        standings = self._standings_of(session)
        fetch = Fetch(session, standings, self._holdings, wanted, self._tell_unwanted)
        self._fetches[fetch] = session

        async def run() -> Items | Empty:
            try:
                return await fetch.run()
            finally:
                fetch.over.set()
                del self._fetches[fetch]

        async def undo() -> None:
            await fetch.over.wait()
            with contextlib.suppress(ProviderError):  # then it comes back by itself when its lock ends
                await release(session, self._holdings, wanted.fetch_token)

        def give_up() -> None:
            fetch.give_up()
            standings.track(session.start(undo()))

        running = await begun(session, run)
        try:
            return await finished(running)
        except asyncio.CancelledError:
            _call_on(session, give_up)
            raise

    def _standings_of(self, session: Session) -> Standings:
        if session not in self._standings:
            self._standings[session] = Standings(session, lambda messages: give_back_all(session, messages))
        return self._standings[session]

    def _tell_unwanted(self, queue: str, name: str) -> None:
        """Say once that a queue holds what nobody here handles."""
        if (queue, name) in self._told:
            return
        self._told.add((queue, name))
        _LOG.warning(
            "the queue %s holds items named %s, which this worker does not handle: SQS cannot leave them out, so "
            "each costs a receive, a send and a delete; give them a queue of their own",
            queue,
            name,
        )


def _lock_s(lock_timeout: timedelta) -> int:
    """Whole seconds, at least one."""
    seconds = max(-(-to_ms(lock_timeout) // 1000), 1)
    if seconds > LONGEST_LOCK_S:
        raise ProviderError(
            f"a lock_timeout of {format_duration(lock_timeout)} is more than SQS holds a message for; "
            "12h are the most, and locks are renewed while a handler runs: make it shorter"
        )
    return seconds


def _call_on(session: Session, call: Callable[[], None]) -> None:
    if session.loop is asyncio.get_running_loop():
        call()
        return
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody fetches there any more
        session.loop.call_soon_threadsafe(call)
