"""What is kept, and how items come to their ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from bide.clock import Clock
from bide.core.durations import to_ms
from bide.errors import ProviderError
from bide.provider import EventRow, ItemState, NewItem, PollRow, SubscriptionRow
from bide.providers.choosing import rank_of
from bide.providers.longpoll import Bell


@dataclass(slots=True)
class Item:
    """A work item as it is kept. ``hold_ms`` is the delay that ``visible_at`` was made from."""

    seq: int
    id: str
    queue: str
    name: str
    payload: str
    priority: int
    visible_at: int
    hold_ms: int
    max_attempts: int | None
    within_ms: int | None
    expires_at: int | None
    order_key: str | None
    enqueued_at: int
    state: ItemState = "ready"
    attempts: int = 0
    deaths: int = 0
    token: str = ""
    fetch_token: str = ""
    locked_until: int = 0
    lock_ms: int = 0
    ended_at: int | None = None
    error: str | None = None
    unreadable: str | None = None

    @property
    def rank(self) -> int:
        return rank_of(self.visible_at, self.priority)

    @property
    def line(self) -> tuple[str, str] | None:
        """Items of one line are fetched one after the other; None where it is in none."""
        return None if self.order_key is None else (self.queue, self.order_key)

    def is_visible(self, now: int) -> bool:
        """Whether its delay is over; one that ends twice its own length away is of a clock set back since."""
        return self.visible_at <= now or self.visible_at - 2 * self.hold_ms > now

    def is_locked_by(self, token: str, now: int) -> bool:
        """Whether ``token`` is its live lock."""
        return self.state == "running" and self.token == token and self.locked_until > now

    def give_back(self) -> None:
        """Ready again, as far as its instants allow."""
        self.state = "ready"
        self.token = self.fetch_token = ""

    def end(self, state: Literal["done", "dead"], now: int, error: str | None) -> None:
        """It is at an end."""
        self.state = state
        self.ended_at = now
        self.error = error
        self.token = self.fetch_token = ""


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
    lock: threading.RLock = field(default_factory=threading.RLock)
    last_item: int = 0
    last_event: int = 0

    def now(self) -> int:
        return self.clock.utc_ms()

    def add(self, items: Iterable[NewItem], now: int) -> None:
        """Put in those of ``items`` whose id is new, all or none."""
        given = list(items)
        refuse_surrogates(given)
        for item in given:
            if item.id not in self.items:
                self.last_item += 1
                self.items[item.id] = _made(item, self.last_item, now)
        self.wake()

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


def _made(item: NewItem, seq: int, now: int) -> Item:
    delay_ms = to_ms(item.delay)
    within_ms = None if item.within is None else to_ms(item.within)
    return Item(
        seq=seq,
        id=item.id,
        queue=item.queue,
        name=item.name,
        payload=item.payload,
        priority=item.priority,
        visible_at=now + delay_ms,
        hold_ms=delay_ms,
        max_attempts=item.max_attempts,
        within_ms=within_ms,
        expires_at=None if within_ms is None else now + within_ms,
        order_key=item.order_key,
        enqueued_at=now,
    )


def refuse_surrogates(items: Iterable[NewItem]) -> None:
    """Raise ``ProviderError`` for what no store could keep as text."""
    for item in items:
        try:
            f"{item.id}{item.queue}{item.name}{item.payload}{item.order_key}".encode()
        except UnicodeEncodeError as error:
            raise ProviderError(f"text with a lone surrogate cannot be stored ({error})") from error
