"""What is kept, and how items come into it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from bide.clock import Clock
from bide.errors import KeyConflict
from bide.provider import Enqueued, EventRow, NewItem, PollRow, SubscriptionRow
from bide.providers.items import Item, Key, key_of, made, refuse_surrogates
from bide.providers.longpoll import Bell


@dataclass(slots=True)
class Store:
    """Everything kept, and the clock that it is kept by."""

    clock: Clock
    bell: Bell = field(default_factory=Bell)
    items: dict[str, Item] = field(default_factory=dict)
    polls: dict[str, PollRow] = field(default_factory=dict)
    events: list[EventRow] = field(default_factory=list)
    """In order of ``seq``."""
    subscriptions: dict[str, SubscriptionRow] = field(default_factory=dict)
    schedules: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Rule and last instant by name."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    last_item: int = 0
    last_event: int = 0

    def now(self) -> int:
        return self.clock.utc_ms()

    def judge(self, items: Sequence[NewItem], now: int) -> list[Enqueued]:
        """What would become of ``items``; changes nothing. Raises ``KeyConflict`` and ``ProviderError``."""
        refuse_surrogates(items)
        ids: set[str] = set()
        keys: dict[Key, tuple[str, str]] = {}
        judged = []
        for item in items:
            key = key_of(item)
            if item.id in self.items or item.id in ids:
                judged.append(Enqueued(item.id, new=False))
                continue
            holder = None if key is None else keys.get(key) or self._holder(key, now)
            if holder is not None and holder[1] != item.payload:
                raise KeyConflict(item.queue, item.name, item.key or "", holder[0])
            if holder is not None:
                judged.append(Enqueued(holder[0], new=False))
                continue
            ids.add(item.id)
            if key is not None:
                keys[key] = (item.id, item.payload)
            judged.append(Enqueued(item.id, new=True))
        return judged

    def add(self, items: Iterable[NewItem], now: int) -> list[Enqueued]:
        """Put in those of ``items`` that are new, all or none. Raises ``KeyConflict`` and ``ProviderError``."""
        given = list(items)
        judged = self.judge(given, now)
        for item, enqueued in zip(given, judged, strict=True):
            if enqueued.new:
                self._take_over(key_of(item))
                self.last_item += 1
                self.items[item.id] = made(item, self.last_item, now)
        self.wake()
        return judged

    def unfetched(self) -> list[Item]:
        """Items that wait for an instant, a worker or their turn, in the order they came."""
        return sorted((item for item in self.items.values() if item.state == "ready"), key=_seq)

    def running(self) -> list[Item]:
        return [item for item in self.items.values() if item.state == "running"]

    def event(self, id: str | None) -> EventRow | None:
        """The event of that id, where it is still kept."""
        return next((event for event in reversed(self.events) if event.id == id), None)

    def wake(self) -> None:
        """Something may have become eligible."""
        self.bell.ring_everywhere()

    def _holder(self, key: Key, now: int) -> tuple[str, str] | None:
        """Id and payload of the item that has ``key``, unless it is free."""
        return next(((item.id, item.payload) for item in self.items.values() if item.holds(key, now)), None)

    def _take_over(self, key: Key | None) -> None:
        """Whoever had ``key``, and ended long ago, has it no more."""
        for item in self.items.values():
            if key is not None and (item.queue, item.name, item.key) == key:
                item.key = None


class _Keeper(Protocol):
    _store: Store


_Self = TypeVar("_Self", bound=_Keeper)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def atomic(
    method: Callable[Concatenate[_Self, _P], _R],
) -> Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _R]]:
    """``method`` as the contract has it: others get their turn before it, and nobody gets one during it."""

    async def call(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        await asyncio.sleep(0)
        with self._store.lock:
            return method(self, *args, **kwargs)

    update_wrapper(call, method)
    return call


def _seq(item: Item) -> int:
    return item.seq
