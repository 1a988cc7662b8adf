"""What the tests of the dispatcher share: one over the rig's provider, with renewals in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

from bide.clock import Clock
from bide.core.pacing import PollingStrategy
from bide.engine.dispatcher import Dispatcher, DispatcherSettings
from bide.engine.locks import HeldLocks, keep_renewing
from bide.engine.outcome import Outcome, Succeeded
from bide.errors import ProviderError
from bide.provider import Empty, Fetched, Limit, NewItem, Settled, Settlement, Work, WorkItem
from bide.providers.memory import MemoryProvider
from bide.testing import VirtualClock
from tests.engine.rig import Rig

QUEUE = "mail"
SECOND = timedelta(seconds=1)
Handler = Callable[[WorkItem], Coroutine[Any, Any, Outcome]]


class RenewalOnLoop:
    """Renews on the test's own loop, where the virtual clock is; the thread has tests of its own."""

    def __init__(self, provider: Work, held: HeldLocks, clock: Clock, look: Callable[[], object]) -> None:
        self._arguments = (provider, held, clock, look)

    def __enter__(self) -> None:
        self._renewing = asyncio.ensure_future(keep_renewing(*self._arguments))

    def __exit__(self, *_: object) -> None:
        self._renewing.cancel()


class Store(MemoryProvider):
    """The reference provider, with a record of what it was asked and faults on demand."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self.clock = clock
        self.fetches: list[tuple[float, dict[str, Any]]] = []
        self.renewals: list[tuple[float, list[str], timedelta]] = []
        self.batches: list[list[Settlement]] = []
        self.released: list[str] = []
        self.waits = True
        """Whether fetches block; else they answer at once."""
        self.faults: dict[str, list[BaseException]] = {}
        """What the next calls of a method raise, in order; the last is raised until it is taken away."""
        self.settling_s = 0.0

    @property
    def fetched_at(self) -> list[float]:
        return [at for at, _ in self.fetches]

    def fail(self, method: str, error: Exception | None = None) -> None:
        self.faults[method] = [error or ProviderError("connection lost", retryable=True)]

    def mend(self) -> None:
        self.faults.clear()

    def _raise(self, method: str) -> None:
        if faults := self.faults.get(method):
            raise faults[0] if len(faults) == 1 else faults.pop(0)

    async def fetch_work_items(self, queues: Any, names: Any, **how: Any) -> Fetched:
        self.fetches.append((self.clock.monotonic(), {"queues": queues, "names": names, **how}))
        self._raise("fetch")
        if not self.waits:
            how["poll_timeout"] = timedelta()
        fetched = await super().fetch_work_items(queues, names, **how)
        self._raise("fetch_answer")
        return Empty(fetched.next_eligible_in) if isinstance(fetched, Empty) and not self.waits else fetched

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        self.renewals.append((self.clock.monotonic(), list(tokens), lock_timeout))
        self._raise("renew")
        return await super().renew(tokens, lock_timeout)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self.batches.append(list(settlements))
        if self.settling_s:
            await self.clock.sleep(self.settling_s)
        self._raise("settle")
        return await super().settle(settlements)

    async def release(self, fetch_token: str) -> int:
        self._raise("release")
        self.released.append(fetch_token)
        return await super().release(fetch_token)


def make_rig() -> tuple[Rig, Store]:
    """A rig over a :class:`Store`."""
    rig = Rig.make()
    store = Store(rig.clock)
    return Rig(rig.clock, store, rig.telemetry, rig.told, rig.api), store


class Running:
    """A dispatcher at work over the rig's provider, and a record of what it told."""

    def __init__(
        self,
        rig: Rig,
        handler: Handler,
        *,
        queues: Sequence[str] = (QUEUE,),
        places: Mapping[str, int] | None = None,
        settings: DispatcherSettings | None = None,
        strategy: PollingStrategy | None = None,
        lock_timeouts: Mapping[str, timedelta] | None = None,
        limits: Mapping[str, Limit] | None = None,
    ) -> None:
        self.rig = rig
        self.told: list[tuple[str, Outcome, bool]] = []
        self.dispatcher = Dispatcher(
            rig.provider,
            handler,
            queues=queues,
            places=places or {"mail": 100},
            clock=rig.clock,
            telemetry=rig.telemetry,
            told=lambda item, outcome, lost, elapsed: self.told.append((item.id, outcome, lost)),
            settings=settings,
            strategy=strategy,
            lock_timeouts=lock_timeouts,
            limits=limits,
        )
        self.stopping = asyncio.Event()

    def start(self) -> asyncio.Task[None]:
        self.task = asyncio.ensure_future(self.dispatcher.run(self.stopping))
        return self.task

    async def __aenter__(self) -> Running:
        self.start()
        await self.rig.clock.advance(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopping.set()
        self.dispatcher.stop_now()
        await self.rig.clock.advance(30)
        assert self.task.done(), "a stop has an end"
        self.task.result()


async def succeed(item: WorkItem) -> Outcome:
    return Succeeded()


async def enqueue(
    rig: Rig, *ids: str, name: str = "mail", queue: str = QUEUE, max_attempts: int | None = None
) -> None:
    """Items that stay when they are done, so that a test sees what became of them."""
    day = timedelta(days=1)
    await rig.provider.enqueue(
        [NewItem(each, queue, name, "{}", max_attempts=max_attempts, keep_result=day) for each in ids]
    )


async def states(rig: Rig, queue: str = QUEUE) -> dict[str, str]:
    return {item.id: item.state for item in await rig.provider.items(queue, limit=1000)}
