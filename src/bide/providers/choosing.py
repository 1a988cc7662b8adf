"""Which of the eligible items a fetch takes: the one rule of every provider that decides in Python.

Urgent and old ones first (by rank, then in the order they came), queues in turn, names within what the fetch may
take of each, queues with a limit within that and fair between their keys, and an item that killed workers alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bide.provider import Limit
from bide.providers.reasons import DEATHS_BEFORE_ALONE

PRIORITY_MS = 60_000
"""A priority of one is worth as much as a minute of waiting."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An eligible item, as far as choosing needs to know it. ``limit_key`` counts where its queue has a limit."""

    seq: int
    queue: str
    name: str
    rank: int
    deaths: int
    limit_key: str | None = None

    @property
    def place(self) -> tuple[int, int]:
        """What items are ordered by."""
        return self.rank, self.seq


@dataclass(slots=True)
class Lane:
    """A queue with a limit: what of it is running, by limit key, and the key that was served last.

    ``running`` counts every live lock of the queue, whatever the item's name; choosing counts on in it and moves
    ``after``. Keys take turns in the order of their code points (SQL: ``COLLATE "C"``), beginning behind
    ``after``; items without a key are a group of their own, at the front of that order, bounded by ``limit.queue``
    alone.
    """

    limit: Limit
    running: Counter[str | None] = field(default_factory=Counter)
    after: str | None = None

    def has_room(self, key: str | None) -> bool:
        """Whether one more of ``key`` may run."""
        if self.limit.queue is not None and self.running.total() >= self.limit.queue:
            return False
        return key is None or self.limit.per_key is None or self.running[key] < self.limit.per_key

    def turn_of(self, key: str | None) -> tuple[int, bool, str, bool]:
        """What keys are ordered by: the one of which least is running, then the one whose turn is next."""
        text = key or ""
        return self.running[key], self.after is not None and text <= self.after, text, key is not None

    def serve(self, key: str | None) -> None:
        """One more of ``key`` is running."""
        self.running[key] += 1
        self.after = key or ""


class Turns:
    """Whose turn it is among queues, and among the limit keys of each, as one provider remembers it."""

    def __init__(self) -> None:
        self._turn = 0
        self._served: dict[str, str] = {}

    def next_of(self, queues: Iterable[str]) -> tuple[str, ...]:
        """``queues`` in the order of the next turn."""
        turn = self._turn
        self._turn += 1
        return in_turn(queues, turn)

    def served(self, queue: str) -> str | None:
        """The limit key of ``queue`` that was served last; empty for items without one, None for nothing yet."""
        return self._served.get(queue)

    def keep(self, lanes: Mapping[str, Lane]) -> None:
        """Remember the keys that these served last."""
        self._served.update((queue, lane.after) for queue, lane in lanes.items() if lane.after is not None)


def rank_of(visible_at: int, priority: int) -> int:
    """What items are ordered by: the least first. Nothing starves, since every instant passes."""
    return visible_at - priority * PRIORITY_MS


def in_force(limits: Mapping[str, Limit] | None, queues: Collection[str]) -> dict[str, Limit]:
    """Those of ``limits`` that bound anything of ``queues``."""
    return {
        queue: limit
        for queue, limit in (limits or {}).items()
        if queue in queues and (limit.queue is not None or limit.per_key is not None)
    }


def choose(
    candidates: Iterable[Candidate],
    queues: Sequence[str],
    *,
    limit: int,
    most: Mapping[str, int],
    lanes: Mapping[str, Lane] | None = None,
) -> list[Candidate]:
    """Up to ``limit`` of ``candidates`` in order of rank, taken from ``queues`` one after the other in turn.

    Where the first one has died often, it is taken alone; otherwise such ones are left for another fetch.
    ``most`` bounds how many of one name are taken, ``lanes`` what may run of the queues that have a limit.
    """
    lines = {queue: _Line((lanes or {}).get(queue)) for queue in queues}
    for candidate in sorted(candidates, key=lambda candidate: candidate.place, reverse=True):
        lines[candidate.queue].add(candidate)
    waiting = [line for line in lines.values() if line.first is not None]
    if not waiting:
        return []
    first = waiting[0].first
    if first is not None and first.deaths >= DEATHS_BEFORE_ALONE:
        waiting[0].take(first)
        return [first]
    taken: list[Candidate] = []
    left = dict(most)
    while waiting and len(taken) < limit:
        for line in waiting:
            if len(taken) == limit:
                break
            following = _next_of(line, left)
            if following is not None:
                taken.append(following)
        waiting = [line for line in waiting if line.first is not None]
    return sorted(taken, key=lambda candidate: candidate.place)


def in_turn(queues: Iterable[str], turn: int) -> tuple[str, ...]:
    """``queues`` in the order of this turn: each is first once before any is first again."""
    ordered = sorted(set(queues))
    first = turn % len(ordered) if ordered else 0
    return (*ordered[first:], *ordered[:first])


class _Line:
    """Candidates of one queue, in groups that take turns where it has a limit. The next of a group is its last."""

    def __init__(self, lane: Lane | None) -> None:
        self._lane = lane
        self._groups: dict[str | None, list[Candidate]] = {}

    @property
    def first(self) -> Candidate | None:
        """The next that may run; None where there is none."""
        lane = self._lane
        keys = [key for key, group in self._groups.items() if group and (lane is None or lane.has_room(key))]
        if not keys:
            return None
        key = keys[0] if lane is None else min(keys, key=lane.turn_of)
        return self._groups[key][-1]

    def add(self, candidate: Candidate) -> None:
        """Put it before all that were added."""
        self._groups.setdefault(self._group_of(candidate), []).append(candidate)

    def drop(self, candidate: Candidate) -> None:
        """Pass over the first of its group."""
        self._groups[self._group_of(candidate)].pop()

    def take(self, candidate: Candidate) -> None:
        """It is going to run."""
        self.drop(candidate)
        if self._lane is not None:
            self._lane.serve(candidate.limit_key)

    def _group_of(self, candidate: Candidate) -> str | None:
        return None if self._lane is None else candidate.limit_key


def _next_of(line: _Line, left: dict[str, int]) -> Candidate | None:
    """Take the first of ``line`` that may be taken, dropping what may not."""
    while (candidate := line.first) is not None:
        if candidate.deaths >= DEATHS_BEFORE_ALONE or left.get(candidate.name) == 0:
            line.drop(candidate)
            continue
        line.take(candidate)
        if candidate.name in left:
            left[candidate.name] -= 1
        return candidate
    return None
