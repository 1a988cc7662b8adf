"""Parts of the contract that a kind of store cannot keep: nothing is there to be read, and writing is refused.

A provider inherits from these in place of what it lacks, so that the engine and the commands need not ask what it
can: lists are empty, and what would have to be kept raises :class:`~bide.errors.Unsupported`, naming what can
keep it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import ClassVar, NoReturn

from bide.core.abilities import Ability, StoreKind, unsupported
from bide.provider import (
    ZERO,
    Answered,
    Claim,
    Enqueued,
    EventRow,
    NewItem,
    NotModified,
    PollRow,
    Recorded,
    Schedule,
    Subscription,
    SubscriptionRow,
    Transaction,
)


class Lacking:
    """A provider of a ``kind`` that lacks something."""

    kind: ClassVar[StoreKind]

    def _refuse(self, ability: Ability) -> NoReturn:
        raise unsupported(self.kind, ability)


class NoJoining(Lacking):
    """No transactions of the caller."""

    async def enqueue_within(self, transaction: object, items: Sequence[NewItem]) -> list[Enqueued]:
        self._refuse("transactions")

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        self._refuse("transactions")


class NoOccurrences(Lacking):
    """No instants that happen once over the fleet."""

    async def occurred(self, schedules: Mapping[str, tuple[str, int]]) -> dict[str, int]:
        return self._refuse("periodic") if schedules else {}

    async def occur(self, name: str, at: int, item: NewItem) -> bool:
        self._refuse("periodic")


class NoPolls(Lacking):
    """No polls."""

    async def claim_polls(
        self, schedules: Sequence[Schedule], limit: int, *, slack: timedelta = ZERO
    ) -> list[Claim]:
        return self._refuse("polls") if schedules else []

    async def record_answer(self, claim: Claim, answer: Answered | NotModified) -> Recorded:
        self._refuse("polls")

    async def record_answers(self, answers: Sequence[tuple[Claim, Answered | NotModified]]) -> list[Recorded]:
        return self._refuse("polls") if answers else []

    async def record_failure(self, claim: Claim, error: str, hold: timedelta) -> bool:
        self._refuse("polls")

    async def poll_rows(self, names: Collection[str] | None = None) -> list[PollRow]:
        return []

    async def pause_polls(self, names: Collection[str], paused: bool) -> list[str]:
        return self._refuse("polls") if names else []

    async def poll_now(self, names: Collection[str]) -> list[str]:
        return []

    async def forget_polls(self, names: Collection[str]) -> list[str]:
        return []


class NoEvents(Lacking):
    """No subscriptions and no events."""

    async def register_subscriptions(self, subscriptions: Sequence[Subscription]) -> list[str]:
        return self._refuse("events") if subscriptions else []

    async def subscriptions(self) -> list[SubscriptionRow]:
        return []

    async def end_subscriptions(self, names: Collection[str], reason: str) -> list[str]:
        return []

    async def resume_subscriptions(self, names: Collection[str]) -> list[str]:
        return []

    async def events(
        self, *, after: int = 0, names: Collection[str] | None = None, limit: int = 100, newest: bool = False
    ) -> list[EventRow]:
        return []

    async def replay(self, subscriber: str, since: int) -> int:
        return 0
