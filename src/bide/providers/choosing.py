"""Which of the eligible items a fetch takes: the one rule of every provider that decides in Python.

Urgent and old ones first (by rank, then in the order they came), queues in turn, names within their limits,
and an item that killed workers alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bide.providers.reasons import DEATHS_BEFORE_ALONE

PRIORITY_MS = 60_000
"""A priority of one is worth as much as a minute of waiting."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An eligible item, as far as choosing needs to know it."""

    seq: int
    queue: str
    name: str
    rank: int
    deaths: int

    @property
    def place(self) -> tuple[int, int]:
        """What items are ordered by."""
        return self.rank, self.seq


def rank_of(visible_at: int, priority: int) -> int:
    """What items are ordered by: the least first. Nothing starves, since every instant passes."""
    return visible_at - priority * PRIORITY_MS


def choose(
    candidates: Iterable[Candidate], queues: Sequence[str], *, limit: int, limits: Mapping[str, int]
) -> list[Candidate]:
    """Up to ``limit`` of ``candidates`` in order of rank, taken from ``queues`` one after the other in turn.

    Where the first one has died often, it is taken alone; otherwise such ones are left for another fetch.
    ``limits`` bounds how many of one name are taken.
    """
    lines: dict[str, list[Candidate]] = {queue: [] for queue in queues}
    for candidate in sorted(candidates, key=lambda candidate: candidate.place, reverse=True):
        lines[candidate.queue].append(candidate)
    waiting = [line for line in lines.values() if line]
    if not waiting:
        return []
    if waiting[0][-1].deaths >= DEATHS_BEFORE_ALONE:
        return [waiting[0][-1]]
    taken: list[Candidate] = []
    left = dict(limits)
    while waiting and len(taken) < limit:
        for line in waiting:
            if len(taken) == limit:
                break
            following = _next_of(line, left)
            if following is not None:
                taken.append(following)
        waiting = [line for line in waiting if line]
    return sorted(taken, key=lambda candidate: candidate.place)


def in_turn(queues: Iterable[str], turn: int) -> tuple[str, ...]:
    """``queues`` in the order of this turn: each is first once before any is first again."""
    ordered = sorted(set(queues))
    first = turn % len(ordered) if ordered else 0
    return (*ordered[first:], *ordered[:first])


def _next_of(line: list[Candidate], left: dict[str, int]) -> Candidate | None:
    """Take the first of ``line`` that may be taken, dropping what may not."""
    while line:
        candidate = line.pop()
        if candidate.deaths >= DEATHS_BEFORE_ALONE or left.get(candidate.name) == 0:
            continue
        if candidate.name in left:
            left[candidate.name] -= 1
        return candidate
    return None
