"""Fetches that wait: until they are rung, until something that is known of becomes eligible, or until time is up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from bide.core.pacing import Backoff
from bide.provider import Contended, Empty, Items
from bide.providers.longpoll import Sleeper
from bide.providers.postgres.database import Database

CONTENDED = Backoff(timedelta(milliseconds=5), timedelta(seconds=1))
"""How soon a waiting fetch looks again after others had what there was: they mostly need a moment to commit."""

Take = Callable[[], Awaitable[Items | Empty | Contended]]
Peek = Callable[[], Awaitable[timedelta | None]]


async def long_poll(
    take: Take, peek: Peek, *, database: Database, poll_timeout: timedelta
) -> Items | Empty | Contended:
    """What ``take`` finds, waiting up to ``poll_timeout`` for it.

    ``peek`` says cheaply when something will be eligible (zero: now); it is asked as often as the database says,
    since a hint may be lost. Time that is up on a fetch that nobody rang is not worth another look.
    """
    if poll_timeout <= timedelta():
        return await take()
    clock = database.clock
    deadline = clock.monotonic() + poll_timeout.total_seconds()
    waited = False
    pause: timedelta | None = None
    with database.bell.sleeper() as sleeper:
        while True:
            sleeper.rung = False
            found = await take()
            if isinstance(found, Items):
                return Items(found.items, blocked=waited)
            left = deadline - clock.monotonic()
            if isinstance(found, Contended):
                if sleeper.ended or left <= 0:
                    return found
                waited = True
                pause = CONTENDED.next(pause)
                await sleeper.wait(clock, min(left, pause.total_seconds() * (0.5 + clock.draw())))
                continue
            if sleeper.ended or left <= 0:
                return Empty(found.next_eligible_in, blocked=True)
            waited, pause = True, None
            if not await _wait(sleeper, peek, found.next_eligible_in, deadline, database):
                return Empty(blocked=True)


async def _wait(
    sleeper: Sleeper, peek: Peek, next_in: timedelta | None, deadline: float, database: Database
) -> bool:
    """Until it is worth looking again; False where it is not, since the time is up and nothing is to be had."""
    clock = database.clock
    while not sleeper.rung and (left := deadline - clock.monotonic()) > 0:
        heard = database.hears
        soon = database.look_again_s()
        if next_in is not None:
            soon = min(soon, next_in.total_seconds())
        rung = await sleeper.wait(clock, min(left, soon))
        if rung:
            return True
        if clock.monotonic() >= deadline:
            return next_in is not None or not (heard and database.hears)
        next_in = await peek()
        if next_in is not None and next_in <= timedelta():
            return True
    return True
