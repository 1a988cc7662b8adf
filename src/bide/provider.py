"""The provider contract: where work items, polls, events and subscriptions live.

A provider implements the small protocols below that it can; the engine needs only these and names no store.
Rules that hold throughout:

- **Durations cross, instants do not.** A provider makes and compares instants by its own clock; callers pass
  ``timedelta``. Instants that it answers are whole milliseconds since the Unix epoch, in fields named ``…_at``.
- **Batches throughout**: one round trip for many. **Every write that matters is one transaction.**
- What a loop expects is a value (``Empty``, ``Stale``, ``Unchanged``); errors are
  :class:`bide.errors.ProviderError`, classified ``retryable`` or not by the provider.
- A lock token is dead once its lock has expired, even where nobody else took the item.

The suite in :mod:`bide.testing.conformance` is the specification of each method, test by test.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Literal, Protocol, overload

from bide.core.conditional import Validators

ZERO = timedelta()

# --- work items ------------------------------------------------------------------------------------------

ItemState = Literal["ready", "running", "done", "dead"]
"""``ready``: waits for its instant or a worker; ``running``: locked; ``done`` and ``dead`` are ends.

An item whose lock has expired is ``ready`` to whoever looks, also before a fetch has given it back.
"""


@dataclass(frozen=True, slots=True)
class NewItem:
    """A work item to enqueue. ``id`` is the caller's and unique; enqueueing a known id again changes nothing.

    ``at`` is an instant that the user gave (milliseconds since the Unix epoch), before which it is not visible;
    ``delay`` counts from now by the store's clock. ``within`` bounds its whole life, waits included; then it is
    dead with that reason. ``max_attempts`` None: as many as ``within`` allows.

    Items of one ``order_key`` of a queue are fetched one after the other in the order they were enqueued. Those of
    one ``limit_key`` of a queue share the places that a fetch's :class:`Limit` gives each key.

    A ``key`` makes enqueueing idempotent among items of one queue and name: while an item has it, and for
    :data:`KEY_KEPT` after that item ended, the same key and payload is the same item, and another payload an error.

    ``keep_result`` is how long a done item stays, with its result. None: it leaves nothing behind once it is done
    (but its key, for as long as that is kept).
    """

    id: str
    queue: str
    name: str
    payload: str
    delay: timedelta = ZERO
    priority: int = 0
    max_attempts: int | None = None
    within: timedelta | None = None
    order_key: str | None = None
    at: int | None = None
    key: str | None = None
    limit_key: str | None = None
    keep_result: timedelta | None = None


class Alike(Sequence[NewItem]):
    """New items that differ in id and payload alone, as the calls of one batch do.

    A sequence like any other. A store that writes columns may read the rest once, of ``pattern``, whose own id and
    payload mean nothing.
    """

    __slots__ = ("ids", "pattern", "payloads")

    def __init__(self, pattern: NewItem, ids: Sequence[str], payloads: Sequence[str]) -> None:
        self.pattern = pattern
        self.ids = ids
        self.payloads = payloads

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> NewItem: ...
    @overload
    def __getitem__(self, place: slice) -> Alike: ...
    def __getitem__(self, place: int | slice) -> NewItem | Alike:
        if isinstance(place, slice):
            return Alike(self.pattern, self.ids[place], self.payloads[place])
        return replace(self.pattern, id=self.ids[place], payload=self.payloads[place])

    def __iter__(self) -> Iterator[NewItem]:
        rest = {name: getattr(self.pattern, name) for name in _REST}
        for id, payload in zip(self.ids, self.payloads, strict=True):
            yield NewItem(id=id, payload=payload, **rest)


_REST = tuple(field.name for field in fields(NewItem) if field.name not in {"id", "payload"})

KEY_KEPT = timedelta(hours=24)
"""For how long after its item ended a key is not free yet."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of a new item. ``new`` False: there was one already (of that id, or of that key and payload),
    whose id this is."""

    id: str
    new: bool


@dataclass(frozen=True, slots=True)
class Limit:
    """How many items of a queue may be running at a time over the whole fleet (None: any number).

    ``queue`` bounds all of them together, ``per_key`` those of each ``limit_key``; items without one are bounded
    by ``queue`` alone.
    """

    queue: int | None = None
    per_key: int | None = None


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A fetched item under lock. ``attempt`` counts this one, from 1; ``deaths``: attempts whose lock expired.

    ``given_back`` counts how often it was abandoned without counting the attempt. ``keeps_result``: what an ack says
    of its result is kept.

    ``unreadable`` says why the payload cannot be read where it cannot; it is empty then, and the item is to be
    buried or abandoned as any other.
    """

    id: str
    queue: str
    name: str
    payload: str
    token: str
    attempt: int
    deaths: int
    enqueued_at: int
    expires_at: int | None
    max_attempts: int | None
    unreadable: str | None = None
    given_back: int = 0
    keeps_result: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """What a fetch took, in order. ``blocked``: the fetch waited for it, as long polling does."""

    items: tuple[WorkItem, ...]
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing was eligible. ``next_eligible_in``: when something will be, as far as the store knows.

    ``blocked``: the fetch used up its poll_timeout waiting; where False it answered at once.
    """

    next_eligible_in: timedelta | None = None
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class Contended:
    """Something was eligible and others took it first."""


Fetched = Items | Empty | Contended


@dataclass(frozen=True, slots=True)
class Ack:
    """The item is done. ``enqueue`` happens together with it or not at all.

    ``result`` is text that is kept with the item for its ``keep_result``; it is dropped where it has none.
    """

    token: str
    result: str | None = None
    enqueue: tuple[NewItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Abandon:
    """Visible again after ``delay``. ``count_attempt=False`` gives the attempt back, and counts as a giving back.

    Where the counted attempt was the last of ``max_attempts``, or the item is a delivery whose subscription has
    ended meanwhile, it is dead at once instead.
    """

    token: str
    delay: timedelta
    error: str | None = None
    count_attempt: bool = True


@dataclass(frozen=True, slots=True)
class Bury:
    """The item is dead, kept for a person with its reason."""

    token: str
    error: str


Settlement = Ack | Abandon | Bury
Settled = Literal["settled", "stale"]
"""``stale``: the token was dead; nothing was changed."""


class Work(Protocol):
    """Queues of work items."""

    async def enqueue(self, items: Sequence[NewItem]) -> list[Enqueued]:
        """Store ``items``, all or none, and say what became of each. Wakes fetches that wait.

        Raises :class:`bide.errors.KeyConflict` where a key is another payload's (also of two in ``items``).
        """
        ...

    async def fetch_work_items(
        self,
        queues: Collection[str],
        names: Collection[str],
        *,
        limit: int,
        lock_timeout: timedelta,
        poll_timeout: timedelta,
        fetch_token: str,
        most: Mapping[str, int] | None = None,
        limits: Mapping[str, Limit] | None = None,
    ) -> Fetched:
        """Take up to ``limit`` eligible items of ``queues`` and ``names`` under a lock of ``lock_timeout``.

        The lock starts when items are taken. ``most`` bounds how many of a name this fetch may take (0: none);
        ``limits`` how many items of a queue may be running over the whole fleet, counting every live lock and
        holding over concurrent fetches. What a limit holds back is not eligible; keys take fair turns.
        Order is by ``visible_at - priority x 60 s``, and queues take turns.
        Blocks for up to ``poll_timeout`` where the provider can wait (0 never blocks) and returns as soon as
        something is eligible. Counts the attempt; moves items that are out of attempts or past ``within`` to dead.
        Cancelling is safe: what was taken is given back, or can be with ``release(fetch_token)``.
        An attempt that ends because its lock expired is a death: with two an item is fetched alone, with three it
        is dead. Raises ``ValueError`` for a ``limit`` below 1.
        """
        ...

    async def renew(self, tokens: Sequence[str], lock_timeout: timedelta) -> list[bool]:
        """Prolong locks to ``lock_timeout`` from now; False for each token that is dead."""
        ...

    async def release(self, fetch_token: str) -> int:
        """Give back, attempt uncounted, whatever the fetch of that token took and still holds; says how many."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle items in one transaction, each by its token."""
        ...

    async def wake(self) -> None:
        """End the wait of every fetch blocked in this process; it looks once more and returns."""
        ...


# --- transactions of the caller, and instants that happen once --------------------------------------------


class Joining(Protocol):
    """Enqueueing within a transaction of the caller's: the items are there if, and only if, it commits."""

    async def enqueue_within(self, transaction: object, items: Sequence[NewItem]) -> list[Enqueued]:
        """As :meth:`Work.enqueue`, as a part of ``transaction``.

        Raises ``TypeError`` for a transaction that the provider does not know, naming those that it does.
        """
        ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction of the store's own: committed at the end of the block, rolled back by an exception."""
        ...


class Transaction(Protocol):
    """A transaction that the provider issued, for statements of the caller beside what is enqueued in it."""

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one SQL statement and answer its rows. Raises ``ProviderError``; a store without SQL always does."""
        ...


class Occurrences(Protocol):
    """Instants of periodic schedules, each of which happens once over the whole fleet."""

    async def occurred(self, schedules: Mapping[str, tuple[str, int]]) -> dict[str, int]:
        """The last instant (ms) that happened of each schedule.

        ``schedules`` gives, by name, the text of the rule and the instant to begin after: it is kept, and answered,
        where the schedule is new or was kept with another rule.
        """
        ...

    async def occur(self, name: str, at: int, item: NewItem) -> bool:
        """Enqueue ``item`` and keep ``at`` as the last instant, in one transaction; False, and nothing is done,
        where ``at`` or a later instant of ``name`` has happened already."""
        ...


# --- polls -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schedule:
    """A poll that may be claimed: its interval, and the deadline of its call.

    A claim that is never recorded is due again ``failure_retry`` after the call's ``deadline``.
    """

    name: str
    every: timedelta
    deadline: timedelta = timedelta(seconds=30)
    failure_retry: timedelta = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to call a poll once. ``lag_ms``: how long it had been due. ``next_due_at``: its new instant.

    ``validators`` belong to an answer read under ``declaration``; ``validated_ago`` is the age of the last
    answer that came whole, so not of a 304 (None: never). ``failures`` counts those in a row so far.
    """

    name: str
    generation: int
    claimed_at: int
    next_due_at: int
    lag_ms: int
    failures: int
    validators: Validators
    declaration: str | None
    validated_ago: timedelta | None
    digest: str | None


@dataclass(frozen=True, slots=True)
class NotModified:
    """The API said that nothing changed. ``validators`` replace those kept; ``hold`` is a hint to respect."""

    validators: Validators
    hold: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer was read. ``payload`` is the event's canonical JSON and ``digest`` its digest.

    ``event_id`` names the event if one comes of it; ``event`` is its full type name; ``declaration`` is the
    hash under which the validators are good; ``conditional`` says whether the request had sent any.
    """

    event_id: str
    event: str
    payload: str
    digest: str
    validators: Validators
    declaration: str
    occurred_at: int | None = None
    conditional: bool = False
    hold: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """An event was kept, with so many deliveries."""

    event_id: str
    seq: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The same as before: nothing but validators was kept.

    ``quiet_for`` is how long ago the last change was, where there was one.
    """

    quiet_for: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Stale:
    """The claim was overtaken by a newer one (or the poll forgotten): nothing was kept."""


Recorded = Changed | Unchanged | Stale


@dataclass(frozen=True, slots=True)
class PollRow:
    """What is kept of one poll, as tables and commands show it."""

    name: str
    due_at: int
    not_before_at: int | None
    hold_ms: int
    outstanding: bool
    every_ms: int | None
    generation: int
    digest: str | None
    changed_at: int | None
    called_at: int | None
    answered_at: int | None
    failures: int
    failing_since: int | None
    last_error: str | None
    paused: bool
    event_id: str | None
    validators: Validators = field(default_factory=Validators)
    declaration: str | None = None
    validated_at: int | None = None


class Polls(Protocol):
    """Which polls are due, and what came of the calls."""

    async def claim_polls(
        self, schedules: Sequence[Schedule], limit: int, *, slack: timedelta = ZERO
    ) -> list[Claim]:
        """Take up to ``limit`` of the due polls, longest due first, in one statement (:mod:`bide.core.claim`)."""
        ...

    async def record_answer(self, claim: Claim, answer: Answered | NotModified) -> Recorded:
        """Digest, validators, event and every delivery together or not at all; clears failures.

        Checks generation and digest again inside the transaction, and fans out to the subscription rows there.
        """
        ...

    async def record_answers(self, answers: Sequence[tuple[Claim, Answered | NotModified]]) -> list[Recorded]:
        """As :meth:`record_answer` for many at once, each of them together or not at all; says what came of each.

        Where it raises, some may have been recorded; giving those again answers ``Stale``.
        """
        ...

    async def record_failure(self, claim: Claim, error: str, hold: timedelta) -> bool:
        """Keep nothing of the answer; due again after ``hold``. False where the claim was stale."""
        ...

    async def now(self) -> int:
        """The store's clock: milliseconds since the Unix epoch. For turning instants of rows into waits."""
        ...

    async def poll_rows(self, names: Collection[str] | None = None) -> list[PollRow]:
        """Rows of ``names`` (None: all) by name."""
        ...

    async def pause_polls(self, names: Collection[str], paused: bool) -> list[str]:
        """Pause or resume polls (a row is made where there is none); answers the names that were changed."""
        ...

    async def poll_now(self, names: Collection[str]) -> list[str]:
        """Make polls due at once: no hint, failure or claim that is out holds them; answers the names with a row.

        A call that is out still records its answer, unless another claim overtakes it. Failures stay counted.
        """
        ...

    async def forget_polls(self, names: Collection[str]) -> list[str]:
        """Remove what is kept of polls (their events stay); answers the names that had a row."""
        ...


# --- subscriptions and events --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscriber as a row: an event fans out to it whether or not this version of the program declares it.

    ``kind`` is ``"function"``, ``"webhook"`` or ``"command"``; ``target`` is shown to people and tells a new
    target from the same one (it holds no secret).
    """

    name: str
    event: str
    kind: str
    target: str
    within: timedelta
    ordered: bool = False
    max_attempts: int | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A subscription as it is kept. ``ended_at`` None: it lives."""

    subscription: Subscription
    created_at: int
    declared_at: int
    ended_at: int | None
    ended_reason: str | None


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event as it is kept: immutable. ``payload`` is canonical JSON."""

    seq: int
    id: str
    name: str
    poll: str
    payload: str
    digest: str
    created_at: int
    occurred_at: int | None
    previous_id: str | None


DELIVERIES = "deliveries"
"""The queue that deliveries are work items of; an item's name is its subscriber's."""


class Events(Protocol):
    """Subscriptions, events, and sending again."""

    async def register_subscriptions(self, subscriptions: Sequence[Subscription]) -> list[str]:
        """Upsert the declared ones and say that they are declared now; answers the names that live.

        An ended subscription stays ended unless its target or event is another one now.
        """
        ...

    async def subscriptions(self) -> list[SubscriptionRow]:
        """All rows by name."""
        ...

    async def end_subscriptions(self, names: Collection[str], reason: str) -> list[str]:
        """End them, and their waiting deliveries with that reason; answers the names that lived."""
        ...

    async def resume_subscriptions(self, names: Collection[str]) -> list[str]:
        """Let ended ones live again, for events to come; answers the names that had ended."""
        ...

    async def events(
        self, *, after: int = 0, names: Collection[str] | None = None, limit: int = 100, newest: bool = False
    ) -> list[EventRow]:
        """Events with ``seq`` > ``after`` in order; ``newest`` answers the last ``limit`` of them, still in order."""
        ...

    async def replay(self, subscriber: str, since: int) -> int:
        """Deliver again to one subscriber every event it hears created at or after ``since`` (ms); says how many.

        A delivery keeps its id, so that the receiver can tell what it already has. One that is under way stays
        and is not counted. A subscriber that is not known, or whose subscription has ended, gets nothing.
        """
        ...


# --- inspection ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ItemRow:
    """A work item as commands show it."""

    id: str
    queue: str
    name: str
    state: ItemState
    payload: str
    attempts: int
    deaths: int
    enqueued_at: int
    visible_at: int
    expires_at: int | None
    ended_at: int | None
    error: str | None
    max_attempts: int | None = None
    priority: int = 0
    key: str | None = None
    limit_key: str | None = None
    given_back: int = 0
    result: str | None = None


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many items of a queue are in each state; ``oldest_ms``: for how long the oldest could be had.

    One whose lock has expired counts there as it does in ``ready``, from when it could first be had.
    """

    queue: str
    ready: int = 0
    running: int = 0
    done: int = 0
    dead: int = 0
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one small step of retention did."""

    events: int = 0
    items: int = 0
    expired: int = 0

    @property
    def any(self) -> bool:
        return bool(self.events or self.items or self.expired)


class Inspection(Protocol):
    """Looking, and mending by hand."""

    async def counts(self) -> list[QueueCounts]:
        """One entry for each queue."""
        ...

    async def items(
        self,
        queue: str,
        *,
        states: Collection[ItemState] | None = None,
        name: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[ItemRow]:
        """Items of a queue, newest first; ``after`` is the id that the last page ended with."""
        ...

    async def item(self, id: str) -> ItemRow | None:
        """One item; None where there is none (any more)."""
        ...

    async def requeue(self, ids: Collection[str]) -> list[str]:
        """Make ended items ready again, attempts and life begun anew; answers the ids that were.

        An item of an order key takes its old place: before what was enqueued later and is not running.
        """
        ...

    async def discard(self, ids: Collection[str], reason: str) -> list[str]:
        """Move ready items, also those whose lock has expired, to dead with a reason; answers the ids that were."""
        ...

    async def purge(self, queue: str, *, states: Collection[ItemState], limit: int = 1000) -> int:
        """Remove up to ``limit`` items of a queue in ``states`` for good; says how many. Running ones never are."""
        ...

    async def prune(self, retention: timedelta, *, limit: int = 500) -> Pruned:
        """One small step: bury what is past its life, remove what ended longer than ``retention`` ago.

        The last event of each poll is kept: it is what the next change is compared with.
        """
        ...


class Provider(Work, Joining, Occurrences, Polls, Events, Inspection, Protocol):
    """A store that keeps everything. Opened with ``open()``, which also migrates; closed with ``close()``."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def requests(self) -> Mapping[str, int]:
        """Requests that this object has made of its store so far, by the class that stores are billed by.

        They only grow, also over ``close()`` and ``open()``. Cheap, and from any thread. Classes are words of a
        fixed set for each kind of store (``"GET"``, ``"statement"``); a store that nothing is asked of has none.
        """
        ...
