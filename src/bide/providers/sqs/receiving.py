"""Receives: one that waits at SQS is never broken off, since what it takes would be locked for nobody.

Who waits for it may go; the receive stays, and whoever wants of that queue next waits for it in turn. What it brings
when nobody waits is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from bide.errors import ProviderError
from bide.providers.sqs.messages import Message, received
from bide.providers.sqs.session import Session

MOST_MESSAGES = 10
"""Of one receive (Amazon SQS, ReceiveMessage)."""

_ATTRIBUTES = ["SentTimestamp", "ApproximateFirstReceiveTimestamp", "ApproximateReceiveCount"]

GiveBack = Callable[[Sequence[Message]], Awaitable[None]]


async def receive(
    session: Session, queue: str, name: str, *, most: int, lock_s: int, wait_s: int = 0
) -> list[Message]:
    """Up to ``most`` messages, invisible to others for ``lock_s``. Raises ``ProviderError``."""
    found = await session.queue(name)
    sent_s = session.clock.monotonic()
    answer = await session.call(
        "receive_message",
        waits=wait_s > 0,
        QueueUrl=found.url,
        MaxNumberOfMessages=min(most, MOST_MESSAGES),
        VisibilityTimeout=lock_s,
        WaitTimeSeconds=wait_s,
        MessageSystemAttributeNames=_ATTRIBUTES,
    )
    # They were taken after the request and before the answer: of a receive that waits, just before it.
    taken_s = session.clock.monotonic() if wait_s else sent_s
    return [received(one, queue, name, lock_s, taken_s + lock_s) for one in answer.get("Messages", ())]


class Standing:
    """A receive that waits at SQS. ``waiters``: how many fetches wait for it."""

    def __init__(self, receiving: asyncio.Task[list[Message]], most: int) -> None:
        self.receiving = receiving
        self.most = most
        self.waiters = 0
        self._taken = False

    @property
    def is_over(self) -> bool:
        return self.receiving.done()

    def take(self) -> list[Message] | None:
        """What it brought; None where another fetch has taken that. Raises ``ProviderError``."""
        if self._taken:
            return None
        self._taken = True
        return self.receiving.result()


class Standings:
    """The receives that wait, one for each queue, on one event loop."""

    def __init__(self, session: Session, give_back: GiveBack) -> None:
        self._session = session
        self._give_back = give_back
        self._standing: dict[str, Standing] = {}
        self._returning: set[asyncio.Task[None]] = set()

    def join(self, queue: str, name: str, *, most: int, lock_s: int, wait_s: int) -> Standing:
        """The receive of ``queue`` that is under way; one is begun where there is none. To be left again."""
        standing = self._standing.get(name)
        if standing is None:
            receiving = self._session.start(
                receive(self._session, queue, name, most=most, lock_s=lock_s, wait_s=wait_s)
            )
            standing = self._standing[name] = Standing(receiving, min(most, MOST_MESSAGES))
            receiving.add_done_callback(lambda _: self._ended(name, standing))
        standing.waiters += 1
        return standing

    def leave(self, standing: Standing) -> None:
        """Wait for it no more."""
        standing.waiters -= 1
        if standing.is_over and not standing.waiters:
            self._return(standing)

    def under_way(self, name: str) -> Standing | None:
        """The receive of that SQS queue, where one is under way."""
        return self._standing.get(name)

    def returning(self) -> set[asyncio.Task[None]]:
        """What is being given back at this moment: who fetches next waits for it."""
        return set(self._returning)

    def track(self, returning: asyncio.Task[None]) -> None:
        """``returning`` gives something back."""
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)

    def _ended(self, name: str, standing: Standing) -> None:
        del self._standing[name]
        if not standing.waiters:
            self._return(standing)

    def _return(self, standing: Standing) -> None:
        """Give back what it brought, if nobody took that."""
        if standing.receiving.cancelled():
            return
        try:
            messages = standing.take()
        except ProviderError:
            return  # it took nothing; the next one meets the same trouble, and says so
        if messages:
            self.track(self._session.start(_quietly(self._give_back(messages))))


async def _quietly(returning: Awaitable[None]) -> None:
    """What cannot be given back comes back by itself when its lock ends."""
    try:
        await returning
    except ProviderError:
        return
