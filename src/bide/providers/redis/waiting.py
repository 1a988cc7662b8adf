"""Fetches that wait: until they are rung, until something that is known of becomes eligible, or until time is up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from bide.provider import Empty, Items
from bide.providers.redis.store import Store


async def long_poll(
    take: Callable[[], Awaitable[Items | Empty]], *, store: Store, poll_timeout: timedelta
) -> Items | Empty:
    """What ``take`` finds, waiting up to ``poll_timeout`` for it.

    It is asked as often as the store says, since a hint may be lost. Time that is up on a fetch that nobody rang is
    not worth another look. It is up when it was waited for: timers of event loops end a little early.
    """
    if poll_timeout <= timedelta():
        return await take()
    clock = store.clock
    deadline = clock.monotonic() + poll_timeout.total_seconds()
    waited = is_over = False
    with store.bell.sleeper() as sleeper:
        while True:
            sleeper.rung = False
            heard = store.hears
            found = await take()
            if isinstance(found, Items):
                return Items(found.items, blocked=waited)
            left = deadline - clock.monotonic()
            if sleeper.ended or is_over or left <= 0:
                return Empty(found.next_eligible_in, blocked=True)
            waited = True
            soon, next_in = store.look_again_s(), found.next_eligible_in
            if next_in is not None:
                soon = min(soon, next_in.total_seconds())
            if sleeper.rung or await sleeper.wait(clock, min(left, soon)):
                continue
            is_over = left <= soon
            if is_over and next_in is None and heard and store.hears:
                return Empty(blocked=True)
