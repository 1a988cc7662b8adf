"""A work item as a provider that decides in Python keeps it, and how it comes to its ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bide.core.durations import to_ms
from bide.errors import ProviderError
from bide.provider import (
    DELIVERIES,
    KEY_KEPT,
    Abandon,
    ItemRow,
    ItemState,
    NewItem,
    SubscriptionRow,
    WorkItem,
)
from bide.providers import reasons
from bide.providers.choosing import rank_of

KEY_KEPT_MS = to_ms(KEY_KEPT)

Key = tuple[str, str, str]
"""Queue, name and key: what is unique."""


@dataclass(slots=True)
class Item:
    """A work item as it is kept.

    ``hold_ms`` is the delay that ``visible_at`` was made from, None where that is an instant of the user's.
    ``keep_ms`` is how long its result is kept, None where it has none.
    """

    seq: int
    id: str
    queue: str
    name: str
    payload: str
    priority: int
    visible_at: int
    hold_ms: int | None
    max_attempts: int | None
    within_ms: int | None
    expires_at: int | None
    order_key: str | None
    key: str | None
    limit_key: str | None
    keep_ms: int | None
    enqueued_at: int
    state: ItemState = "ready"
    attempts: int = 0
    deaths: int = 0
    given_back: int = 0
    token: str = ""
    fetch_token: str = ""
    locked_until: int = 0
    lock_ms: int = 0
    ended_at: int | None = None
    error: str | None = None
    result: str | None = None
    unreadable: str | None = None

    @property
    def rank(self) -> int:
        return rank_of(self.visible_at, self.priority)

    @property
    def line(self) -> tuple[str, str] | None:
        """Items of one line are fetched one after the other; None where it is in none."""
        return None if self.order_key is None else (self.queue, self.order_key)

    @property
    def is_for_retention(self) -> bool:
        """Whether it stays for the retention once it has ended, rather than for a time of its own."""
        return self.state == "dead" or self.queue == DELIVERIES

    @property
    def leaves_nothing(self) -> bool:
        """Whether it is gone once it is done."""
        return self.queue != DELIVERIES and self.key is None and self.keep_ms is None

    def is_visible(self, now: int) -> bool:
        """Whether its delay is over; one that ends twice its own length away is of a clock set back since."""
        set_back = self.hold_ms is not None and self.visible_at - 2 * self.hold_ms > now
        return self.visible_at <= now or set_back

    def is_locked_by(self, token: str, now: int) -> bool:
        """Whether ``token`` is its live lock."""
        return self.state == "running" and self.token == token and self.locked_until > now

    def is_lapsed(self, now: int) -> bool:
        """Whether its lock expired, and no fetch has given it back yet."""
        return self.state == "running" and self.locked_until <= now

    def shown_state(self, now: int) -> ItemState:
        """Its state as people see it: an expired lock holds nothing."""
        return "ready" if self.is_lapsed(now) else self.state

    def holds(self, key: Key, now: int) -> bool:
        """Whether ``key`` is its own and not free again."""
        if (self.queue, self.name, self.key) != key:
            return False
        return self.ended_at is None or now < self.ended_at + KEY_KEPT_MS

    def kept_ms(self, retention_ms: int) -> int:
        """For how long it stays after its end."""
        kept = retention_ms if self.is_for_retention else self.keep_ms or 0
        return kept if self.key is None else max(kept, KEY_KEPT_MS)

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

    def begin_anew(self, now: int) -> None:
        """As if it had just been enqueued."""
        self.state = "ready"
        self.attempts = self.deaths = self.given_back = self.hold_ms = 0
        self.error = self.result = self.ended_at = None
        self.visible_at = self.enqueued_at = now
        self.expires_at = None if self.within_ms is None else now + self.within_ms


def count_death(item: Item, now: int) -> None:
    """Its lock expired: it is ready again, or dead where it has no attempt or no worker's life left."""
    item.deaths += 1
    if item.deaths >= reasons.DEATHS_BEFORE_BURIAL:
        item.end("dead", now, reasons.killed_workers(item.deaths))
    elif item.max_attempts is not None and item.attempts >= item.max_attempts:
        item.end("dead", now, reasons.gave_up(item.attempts, reasons.LOCK_EXPIRED))
    else:
        item.error = reasons.LOCK_EXPIRED
        item.give_back()


def abandon(item: Item, settlement: Abandon, now: int, ended: SubscriptionRow | None) -> None:
    """Back in its queue; or dead at once where no attempt is left, or nobody wants the delivery any more.

    ``ended`` is its subscription, where it is a delivery whose subscription has ended.
    """
    if settlement.error is not None:
        item.error = reasons.storable(settlement.error)
    if not settlement.count_attempt:
        item.attempts -= 1
        item.given_back += 1
    if settlement.count_attempt and item.max_attempts is not None and item.attempts >= item.max_attempts:
        item.end("dead", now, reasons.gave_up(item.attempts, item.error))
    elif ended is not None:
        item.end("dead", now, reasons.subscription_ended(ended.ended_reason))
    else:
        item.hold_ms = to_ms(settlement.delay)
        item.visible_at = now + item.hold_ms
        item.give_back()


def key_of(item: NewItem) -> Key | None:
    """The key of a new item, where it has one."""
    return None if item.key is None else (item.queue, item.name, item.key)


def made(item: NewItem, seq: int, now: int) -> Item:
    """What is kept of a new item."""
    delay_ms = to_ms(item.delay)
    within_ms = None if item.within is None else to_ms(item.within)
    is_at = item.at is not None and item.at > now + delay_ms
    return Item(
        seq=seq,
        id=item.id,
        queue=item.queue,
        name=item.name,
        payload=item.payload,
        priority=item.priority,
        visible_at=max(now + delay_ms, item.at or 0),
        hold_ms=None if is_at else delay_ms,
        max_attempts=item.max_attempts,
        within_ms=within_ms,
        expires_at=None if within_ms is None else now + within_ms,
        order_key=item.order_key,
        key=item.key,
        limit_key=item.limit_key,
        keep_ms=None if item.keep_result is None else to_ms(item.keep_result),
        enqueued_at=now,
    )


def refuse_surrogates(items: Iterable[NewItem]) -> None:
    """Raise ``ProviderError`` for what no store could keep as text."""
    for item in items:
        refuse_unstorable(
            f"{item.id}{item.queue}{item.name}{item.payload}{item.order_key}{item.key}{item.limit_key}"
        )


def refuse_unstorable(text: str) -> None:
    """Raise ``ProviderError`` where ``text`` cannot be kept."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ProviderError(f"text with a lone surrogate cannot be stored ({error})") from error


def as_fetched(item: Item) -> WorkItem:
    """A locked item as its worker gets it."""
    return WorkItem(
        id=item.id,
        queue=item.queue,
        name=item.name,
        payload="" if item.unreadable else item.payload,
        token=item.token,
        attempt=item.attempts,
        deaths=item.deaths,
        enqueued_at=item.enqueued_at,
        expires_at=item.expires_at,
        max_attempts=item.max_attempts,
        unreadable=item.unreadable,
        given_back=item.given_back,
        keeps_result=item.keep_ms is not None,
    )


def as_row(item: Item, now: int) -> ItemRow:
    """An item as people see it."""
    return ItemRow(
        id=item.id,
        queue=item.queue,
        name=item.name,
        state=item.shown_state(now),
        payload=item.payload,
        attempts=item.attempts,
        deaths=item.deaths,
        enqueued_at=item.enqueued_at,
        visible_at=item.visible_at,
        expires_at=item.expires_at,
        ended_at=item.ended_at,
        error=item.error,
        max_attempts=item.max_attempts,
        priority=item.priority,
        key=item.key,
        limit_key=item.limit_key,
        given_back=item.given_back,
        result=item.result,
    )
