"""The crew: coroutines that live long and take one item after the other from a line.

A handler that never waits is followed by the next one at once, without a turn of the event loop; the first that
waits lets as many other members begin as there are items in line. So there are as many members as handlers were ever
waiting at a time, and neither a task nor a future is made for an item.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from bide.clock import Clock
from bide.core.pacing import DELIVERY_BACKOFF
from bide.engine.contexts import in_own_context
from bide.engine.functions import told_of
from bide.engine.outcome import CALLED_OFF, GivenBack, Outcome, Retried
from bide.provider import WorkItem

HandleItem = Callable[[WorkItem], Coroutine[Any, Any, Outcome]]
"""Handles one item and tells what came of it; an exception is a failed attempt."""

Ended = Callable[[WorkItem, Outcome, float], None]
"""Told of each item whose handler ended: its outcome, and the seconds it took."""

TURN_S = 0.001
"""Seconds for which handlers that never wait may follow each other before the event loop gets its turn."""


class Crew:
    """The line, and up to ``most`` members."""

    def __init__(self, handle: HandleItem, clock: Clock, most: int, ended: Ended) -> None:
        self.handle = handle
        self.clock = clock
        self.ended = ended
        self.line: deque[WorkItem] = deque()
        self.resting: list[Member] = []
        self.woken = 0
        """Members that were woken and have not come to the line yet."""
        self._most = most
        self._members: list[Member] = []
        self.broken: Callable[[BaseException], None] = lambda error: None
        """Told of a member that ended by an error, which none should."""

    def give(self, items: Collection[WorkItem]) -> None:
        """Put ``items`` in line; one that is in line begins soon."""
        self.line.extend(items)
        if self.line and not self.woken:
            self._wake(1)

    def wake_others(self) -> None:
        """A handler waits: let others take what is in line."""
        if self.line:
            self._wake(len(self.line) - self.woken)

    def _wake(self, count: int) -> None:
        for _ in range(count):
            if self.resting:
                self.resting.pop().wake()
            elif len(self._members) < self._most:
                self._members.append(Member(self))
            else:
                return
            self.woken += 1

    def withdraw(self, token: str) -> WorkItem | None:
        """Take the item of ``token`` out of the line; None where it is not there (any more)."""
        for item in self.line:
            if item.token == token:
                self.line.remove(item)
                return item
        return None

    def withdraw_all(self) -> list[WorkItem]:
        """Take everything out of the line."""
        items = list(self.line)
        self.line.clear()
        return items

    def call_off(self, token: str | None = None) -> bool:
        """Cancel the handler of ``token`` (None: every handler); whether there is one."""
        called = [member for member in self._members if member.item and token in (None, member.item.token)]
        for member in called:
            member.call_off()
        return bool(called)

    def at_work(self, task: asyncio.Task[Any] | None) -> WorkItem | None:
        """What the member that is ``task`` handles. From any thread."""
        return next((member.item for member in self._members if member.task is task), None)

    def dismiss(self) -> list[WorkItem]:
        """End every member; answers the items whose handlers go on in spite of it. What they say is not heard."""
        members, self._members = self._members, []
        self.resting.clear()
        self.woken = 0
        going_on = [member.item for member in members if member.item is not None]
        for member in members:
            member.dismiss()
        return going_on


class Member:
    """One of a crew, which handles one item at a time."""

    __slots__ = ("_called_off", "_crew", "_dismissed", "_waited", "_woken", "item", "task")

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self.item: WorkItem | None = None
        self._called_off = False
        self._dismissed = False
        self._waited = False
        self._woken = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._work())
        self.task.add_done_callback(self._done)

    def wake(self) -> None:
        """End its rest."""
        self._woken.set()

    def call_off(self) -> None:
        """Cancel the handler of its item."""
        self._called_off = True
        self.task.cancel()

    def dismiss(self) -> None:
        """End it, now or as soon as its handler ends."""
        self._dismissed = True
        self.item = None
        self.task.cancel()

    async def _work(self) -> None:
        crew, now = self._crew, self._crew.clock.monotonic
        line = crew.line
        await asyncio.sleep(0)  # a loop whose tasks begin eagerly comes here before the task is known
        crew.woken -= 1
        while True:
            if not line:
                await self._take_a_rest()
                continue
            turn = began = now()
            while line:
                self.item = item = line.popleft()
                self._called_off = False
                outcome = await self._outcome(item)
                if self.item is not item:
                    return  # dismissed meanwhile
                self.item = None
                ended = now()
                crew.ended(item, outcome, ended - began)
                if self.task.cancelling():
                    await self._let_others_run()
                elif not self._waited and ended - turn < TURN_S:
                    began = ended
                    continue
                elif not self._waited:
                    await self._let_others_run()
                self._waited = False
                turn = began = now()

    async def _outcome(self, item: WorkItem) -> Outcome:
        try:
            outcome = await in_own_context(self._crew.handle(item), self._wait)
        except asyncio.CancelledError as cancelled:
            if self._called_off or self._dismissed:
                return CALLED_OFF
            error: BaseException = cancelled
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as failure:
            error = failure
        else:
            if self._called_off and isinstance(outcome, Retried):  # what being cancelled made of it
                return GivenBack(f"{CALLED_OFF.reason}: {outcome.error}", CALLED_OFF.delay)
            return outcome
        delay = DELIVERY_BACKOFF.delay(item.attempt, self._crew.clock.draw())
        return Retried(told_of(error), delay)

    def _wait(self) -> None:
        self._waited = True
        self._crew.wake_others()

    async def _take_a_rest(self) -> None:
        self._woken.clear()
        self._crew.resting.append(self)
        while not self._woken.is_set():
            try:
                await self._woken.wait()
            except asyncio.CancelledError:
                self._shake_off()
        self._crew.woken -= 1

    async def _let_others_run(self) -> None:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._shake_off()
        else:
            if self.task.cancelling():
                self._shake_off()

    def _shake_off(self) -> None:
        """Forget a cancellation that was meant for an item whose handler has ended, whether it arrived there or
        not, and whoever asked for it: code of a handler may still know this task."""
        if self._dismissed:
            raise asyncio.CancelledError
        while self.task.cancelling():
            self.task.uncancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        if not self._dismissed and not task.cancelled() and (error := task.exception()) is not None:
            self._crew.broken(error)
