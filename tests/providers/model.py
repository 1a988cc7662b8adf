"""A provider beside the reference model: whatever is done to both, both answer and hold the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bide.core.conditional import Validators
from bide.errors import KeyConflict
from bide.provider import (
    DELIVERIES,
    ZERO,
    Abandon,
    Ack,
    Bury,
    Claim,
    Items,
    ItemState,
    Limit,
    NewItem,
    NotModified,
    Provider,
    Schedule,
    Settlement,
    Subscription,
)
from bide.providers.memory import MemoryProvider
from bide.testing import VirtualClock
from bide.testing.conformance.bench import answered

QUEUES = ("p", "q", DELIVERIES)
NAMES = ("m", "n", "a", "b")
POLLS = ("eu.price", "us.price", "eu.stock")
IDS = tuple(f"i{number}" for number in range(12))
STATES: tuple[ItemState, ...] = ("ready", "running", "done", "dead")
RULES = ("hourly", "daily")

seconds = st.sampled_from([0, 1, 10, 29, 30, 31, 60, 3600])
durations = seconds.map(lambda number: timedelta(seconds=number))
some_ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True)
some_polls = st.lists(st.sampled_from(POLLS), min_size=1, unique=True)
new_items = st.builds(
    NewItem,
    id=st.sampled_from(IDS),
    queue=st.sampled_from(QUEUES[:2]),
    name=st.sampled_from(NAMES[:2]),
    payload=st.sampled_from(["{}", "[]"]),
    delay=durations,
    priority=st.integers(-2, 2),
    max_attempts=st.one_of(st.none(), st.integers(1, 3)),
    within=st.one_of(st.none(), durations.filter(bool)),
    order_key=st.sampled_from([None, None, None, "k", "l"]),
    at=st.sampled_from([None, None, None, -5_000, 5_000, 60_000]),
    key=st.sampled_from([None, None, None, "k", "l"]),
    limit_key=st.sampled_from([None, "x", "y", "z"]),
    keep_result=st.one_of(st.none(), durations),
)
"""``at`` counts from now until it is enqueued."""

most_of_names = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2), max_size=2)
limits_of_queues = st.dictionaries(
    st.sampled_from(QUEUES),
    st.builds(
        Limit,
        queue=st.one_of(st.none(), st.integers(0, 3)),
        per_key=st.one_of(st.none(), st.integers(1, 2)),
    ),
    max_size=2,
)
subscriptions = st.builds(
    Subscription,
    name=st.sampled_from(NAMES[2:]),
    event=st.sampled_from(["shop.PriceChanged", "shop.Other"]),
    kind=st.just("webhook"),
    target=st.sampled_from(["x", "y"]),
    within=durations.filter(bool),
    ordered=st.booleans(),
    max_attempts=st.one_of(st.none(), st.just(2)),
)


class RollBack(Exception):
    """Raised in a transaction that shall leave nothing."""


class BesideMemory(RuleBasedStateMachine):
    """Subclasses make the provider, and give up what they took for it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = VirtualClock()
        self.memory = MemoryProvider(self.clock)
        self.other = self.made()
        self.held: list[tuple[str, str]] = []
        self.claims: list[Claim] = []

    def made(self) -> Provider:
        """The provider under test, open and empty."""
        raise NotImplementedError

    def teardown(self) -> None:
        self.runner.run(self.other.close())
        self.runner.close()

    def both(self, ask: Callable[[Provider], Awaitable[Any]]) -> tuple[Any, Any]:
        async def asked(provider: Provider) -> Any:
            try:
                return await ask(provider)
            except KeyConflict as conflict:
                return "conflict", conflict.queue, conflict.name, conflict.key, conflict.item

        return self.runner.run(asked(self.memory)), self.runner.run(asked(self.other))

    def same(self, ask: Callable[[Provider], Awaitable[Any]]) -> Any:
        model, found = self.both(ask)
        assert found == model
        return model

    # --- work --------------------------------------------------------------------------------------------

    def dated(self, items: list[NewItem]) -> list[NewItem]:
        """``items`` with instants of the user's that count from now."""
        now = self.clock.utc_ms()
        return [replace(item, at=None if item.at is None else now + item.at) for item in items]

    @rule(items=st.lists(new_items, min_size=1, max_size=3))
    def enqueue(self, items: list[NewItem]) -> None:
        dated = self.dated(items)
        self.same(lambda provider: provider.enqueue(dated))

    @rule(batches=st.lists(st.lists(new_items, max_size=2), max_size=3), commit=st.booleans())
    def join(self, batches: list[list[NewItem]], commit: bool) -> None:
        dated = [self.dated(items) for items in batches]

        async def joined(provider: Provider) -> list[Any]:
            answers: list[Any] = []
            with suppress(RollBack):
                async with provider.transaction() as transaction:
                    for items in dated:
                        try:
                            answers.append(await provider.enqueue_within(transaction, items))
                        except KeyConflict as conflict:
                            answers.append(str(conflict))
                    if not commit:
                        raise RollBack
            return answers

        self.same(joined)

    @rule(
        queues=st.lists(st.sampled_from(QUEUES), min_size=1, unique=True),
        names=st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
        limit=st.integers(1, 5),
        most=most_of_names,
        limits=limits_of_queues,
        by=st.sampled_from(["f", "g"]),
    )
    def fetch(
        self,
        *,
        queues: list[str],
        names: list[str],
        limit: int,
        most: dict[str, int],
        limits: dict[str, Limit],
        by: str,
    ) -> None:
        model, found = self.both(
            lambda provider: provider.fetch_work_items(
                queues,
                names,
                limit=limit,
                lock_timeout=timedelta(seconds=30),
                poll_timeout=ZERO,
                fetch_token=by,
                most=most,
                limits=limits,
            )
        )
        if not isinstance(model, Items):
            assert found == model
            return
        assert [replace(item, token="") for item in found.items] == [
            replace(item, token="") for item in model.items
        ]
        self.held += [(mine.token, other.token) for mine, other in zip(model.items, found.items, strict=True)]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), delay=durations, extra=new_items)
    def settle(self, data: st.DataObject, delay: timedelta, extra: NewItem) -> None:
        kinds = st.sampled_from(["ack", "result", "more", "abandon", "return", "bury"])
        chosen = data.draw(
            st.lists(st.tuples(st.sampled_from(self.held), kinds), min_size=1, max_size=3), label="settled"
        )
        (dated,) = self.dated([extra])

        def settlement(token: str, kind: str) -> Settlement:
            match kind:
                case "ack":
                    return Ack(token)
                case "result":
                    return Ack(token, "42")
                case "more":
                    return Ack(token, enqueue=(dated,))
                case "abandon":
                    return Abandon(token, delay, "failed")
                case "return":
                    return Abandon(token, delay, count_attempt=False)
                case _:
                    return Bury(token, "bad")

        self.same(
            lambda provider: provider.settle(
                [settlement(pair[provider is self.other], kind) for pair, kind in chosen]
            )
        )

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.held), min_size=1, max_size=3))
        self.same(
            lambda provider: provider.renew(
                [pair[provider is self.other] for pair in chosen], timedelta(seconds=20)
            )
        )

    @rule(by=st.sampled_from(["f", "g"]))
    def release(self, by: str) -> None:
        self.same(lambda provider: provider.release(by))

    @rule(ids=some_ids)
    def requeue(self, ids: list[str]) -> None:
        self.same(lambda provider: provider.requeue(ids))

    @rule(ids=some_ids)
    def discard(self, ids: list[str]) -> None:
        self.same(lambda provider: provider.discard(ids, "not wanted"))

    @rule(
        queue=st.sampled_from(QUEUES),
        states=st.lists(st.sampled_from(STATES), max_size=3, unique=True),
        limit=st.integers(1, 3),
    )
    def purge(self, queue: str, states: list[ItemState], limit: int) -> None:
        self.same(lambda provider: provider.purge(queue, states=states, limit=limit))

    @rule(id=st.sampled_from(IDS))
    def look(self, id: str) -> None:
        self.same(lambda provider: provider.item(id))

    # --- schedules ---------------------------------------------------------------------------------------

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, unique=True), rule=st.sampled_from(RULES))
    def begin(self, names: list[str], rule: str) -> None:
        now = self.clock.utc_ms()
        self.same(lambda provider: provider.occurred(dict.fromkeys(names, (rule, now))))

    @rule(name=st.sampled_from(NAMES), ago=seconds, item=new_items)
    def occur(self, name: str, ago: int, item: NewItem) -> None:
        at = self.clock.utc_ms() - ago * 1000
        (dated,) = self.dated([item])
        self.same(lambda provider: provider.occurred({name: (RULES[0], at - 1)}))
        self.same(lambda provider: provider.occur(name, at, dated))

    @rule(retention=durations)
    def prune(self, retention: timedelta) -> None:
        self.same(lambda provider: provider.prune(retention))

    # --- polls -------------------------------------------------------------------------------------------

    @rule(names=some_polls, every=st.sampled_from([10, 60, 600]), limit=st.integers(1, 3), slack=durations)
    def claim(self, names: list[str], every: int, limit: int, slack: timedelta) -> None:
        schedules = [Schedule(name, timedelta(seconds=every)) for name in names]
        self.claims += self.same(lambda provider: provider.claim_polls(schedules, limit, slack=slack))

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(),
        price=st.integers(1, 2),
        hold=st.one_of(st.none(), durations),
        declared=st.sampled_from(["d", "e"]),
    )
    def answer(self, data: st.DataObject, price: int, hold: timedelta | None, declared: str) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        given = replace(answered(price, claim), hold=hold, declaration=declared)
        fresh = f"{given.event_id}_{self.clock.new_id()}"  # a forgotten poll begins its generations again
        self.same(lambda provider: provider.record_answer(claim, replace(given, event_id=fresh)))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), hold=st.one_of(st.none(), durations))
    def not_modified(self, data: st.DataObject, hold: timedelta | None) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        self.same(lambda provider: provider.record_answer(claim, NotModified(Validators('"t"'), hold)))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), hold=durations)
    def fail(self, data: st.DataObject, hold: timedelta) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        self.same(lambda provider: provider.record_failure(claim, "refused", hold))

    @rule(names=some_polls, what=st.sampled_from(["pause", "resume", "now", "forget"]))
    def steer(self, names: list[str], what: str) -> None:
        match what:
            case "pause":
                self.same(lambda provider: provider.pause_polls(names, True))
            case "resume":
                self.same(lambda provider: provider.pause_polls(names, False))
            case "now":
                self.same(lambda provider: provider.poll_now(names))
            case _:
                self.same(lambda provider: provider.forget_polls(names))

    # --- subscriptions -----------------------------------------------------------------------------------

    @rule(given=st.lists(subscriptions, min_size=1, max_size=2, unique_by=lambda row: row.name))
    def register(self, given: list[Subscription]) -> None:
        self.same(lambda provider: provider.register_subscriptions(given))

    @rule(names=st.lists(st.sampled_from(NAMES[2:]), min_size=1), end=st.booleans())
    def end_or_resume(self, names: list[str], end: bool) -> None:
        if end:
            self.same(lambda provider: provider.end_subscriptions(names, "410"))
        else:
            self.same(lambda provider: provider.resume_subscriptions(names))

    @rule(name=st.sampled_from(NAMES[2:]), ago=seconds)
    def replay(self, name: str, ago: int) -> None:
        since = self.clock.utc_ms() - ago * 1000
        self.same(lambda provider: provider.replay(name, since))

    # --- time, and what must hold ------------------------------------------------------------------------

    @rule(by=st.one_of(seconds, st.just(86_400)))
    def advance(self, by: int) -> None:
        self.runner.run(self.clock.advance(by))

    @invariant()
    def they_hold_the_same(self) -> None:
        for queue in QUEUES:
            self.same(lambda provider, queue=queue: provider.items(queue))  # type: ignore[misc]
        self.same(lambda provider: provider.poll_rows())
        self.same(lambda provider: provider.events())
        self.same(lambda provider: provider.subscriptions())
        self.same(lambda provider: provider.counts())
