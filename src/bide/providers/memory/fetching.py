"""Taking work from memory: put in order what is there, choose, and lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

from bide.core.durations import to_ms
from bide.provider import Empty, Items, Limit
from bide.providers import reasons
from bide.providers.choosing import Candidate, Lane, Turns, choose
from bide.providers.items import Item, as_fetched, count_death
from bide.providers.memory.store import Store


@dataclass(frozen=True, slots=True)
class Fetch:
    """What is asked for. ``queues`` are in this turn's order; ``limits`` are those that bound anything."""

    queues: tuple[str, ...]
    names: frozenset[str]
    limit: int
    most: Mapping[str, int]
    limits: Mapping[str, Limit]
    lock_timeout: timedelta
    fetch_token: str

    def wants(self, item: Item) -> bool:
        """Whether it is of the queues and names asked for."""
        return item.queue in self.queues and item.name in self.names


def take(store: Store, fetch: Fetch, turns: Turns) -> Items | Empty:
    """Lock what is eligible, or say when something will be."""
    _sweep(store, store.now())
    lanes = _lanes(store, fetch, turns)
    chosen = choose(_candidates(store, fetch), fetch.queues, limit=fetch.limit, most=fetch.most, lanes=lanes)
    if not chosen:
        return Empty(next_eligible_in(store, fetch))
    turns.keep(lanes)
    return _lock(store, {candidate.seq for candidate in chosen}, fetch)


def next_eligible_in(store: Store, fetch: Fetch) -> timedelta | None:
    """How long until something will be eligible as things stand; zero: it is. None: nothing is known of.

    Of a queue with a limit every lock counts, whatever the item's name: the place that it frees is wanted.
    """
    now = store.now()
    lanes = _lanes(store, fetch, Turns())
    if choose(_candidates(store, fetch), fetch.queues, limit=1, most={}, lanes=lanes):
        return timedelta()
    running = [item for item in store.running() if fetch.wants(item) or item.queue in fetch.limits]
    waiting = [item for item in store.unfetched() if fetch.wants(item) and not item.is_visible(now)]
    instants = [item.locked_until for item in running]
    instants += [item.visible_at for item in waiting if _is_front(store, item)]
    return timedelta(milliseconds=max(min(instants) - now, 0)) if instants else None


def _sweep(store: Store, now: int) -> None:
    """Give back what its worker lost, and bury what is out of lives, attempts or time."""
    for item in store.running():
        if item.locked_until > now + 2 * item.lock_ms:
            item.locked_until = (
                now + item.lock_ms
            )  # the clock was set back: one more length, to be renewed in
        elif item.locked_until <= now:
            count_death(item, now)
    past = [item for item in store.unfetched() if item.expires_at is not None and item.expires_at <= now]
    for item in past:
        item.end("dead", now, reasons.expired(item.queue, item.within_ms or 0, item.error))


def _lanes(store: Store, fetch: Fetch, turns: Turns) -> dict[str, Lane]:
    """The queues with a limit, and what is running of them."""
    lanes = {queue: Lane(limit, Counter(), turns.served(queue)) for queue, limit in fetch.limits.items()}
    for item in store.running():
        if item.queue in lanes:
            lanes[item.queue].running[item.limit_key] += 1
    return lanes


def _candidates(store: Store, fetch: Fetch) -> list[Candidate]:
    """The first eligible ones of each queue, name and limit key: more of one than may be taken need no look."""
    counted: Counter[tuple[str, str, str | None]] = Counter()
    candidates = []
    for item in _eligible(store, fetch, store.now()):
        alike = item.queue, item.name, item.limit_key if item.queue in fetch.limits else None
        counted[alike] += 1
        if counted[alike] <= min(fetch.limit, fetch.most.get(item.name, fetch.limit)):
            candidates.append(
                Candidate(item.seq, item.queue, item.name, item.rank, item.deaths, item.limit_key)
            )
    return candidates


def _eligible(store: Store, fetch: Fetch, now: int) -> list[Item]:
    """Items that may be taken as far as no limit holds them back, the most urgent first."""
    taken_lines = {item.line for item in store.running()} - {None}
    eligible = []
    for item in store.unfetched():
        if item.line is not None:
            if item.line in taken_lines:
                continue
            taken_lines.add(item.line)
        if item.is_visible(now) and fetch.wants(item):
            eligible.append(item)
    return sorted(eligible, key=_place)


def _is_front(store: Store, item: Item) -> bool:
    """Whether no other item of its line is before it."""
    if item.line is None:
        return True
    others = [other for other in store.items.values() if other.line == item.line and other is not item]
    return not any(
        other.state == "running" or (other.state == "ready" and other.seq < item.seq) for other in others
    )


def _lock(store: Store, seqs: Collection[int], fetch: Fetch) -> Items:
    """Lock the items of these ``seqs``, in order of rank."""
    now, lock_ms, nonce = store.now(), to_ms(fetch.lock_timeout), store.clock.new_id()
    locked = sorted((item for item in store.unfetched() if item.seq in seqs), key=_place)
    for item in locked:
        item.state = "running"
        item.attempts += 1
        item.token, item.fetch_token = f"{item.seq}:{nonce}", fetch.fetch_token
        item.locked_until, item.lock_ms = now + lock_ms, lock_ms
    return Items(tuple(as_fetched(item) for item in locked))


def _place(item: Item) -> tuple[int, int]:
    return item.rank, item.seq
