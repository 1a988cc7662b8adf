"""When a process looks at which poll, and how many it may ask for.

A process keeps for each of its polls the instant at which it believes the poll to be due. The store decides
(:mod:`bide.core.claim`); a wrong belief costs one look. Starts of one connection are spread by a
:class:`~bide.core.pacing.StartPace`, so that ten thousand polls that are due together, at the first start or
after an outage, do not reach one host in one second.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from bide.core.pacing import StartPace


class Agenda:
    """Names by the instant (seconds, monotonic) at which to look at them. Moving a name replaces its instant."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._at)

    def put(self, name: str, at: float) -> None:
        """Look at ``name`` at ``at``, and no more at the instant it stood at before."""
        if self._at.get(name) == at:
            return
        self._at[name] = at
        heapq.heappush(self._heap, (at, name))

    def remove(self, name: str) -> None:
        """Do not look at ``name`` any more."""
        self._at.pop(name, None)

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget every name that is not in ``names``."""
        kept = set(names)
        self._at = {name: at for name, at in self._at.items() if name in kept}

    def next_at(self) -> float | None:
        """The earliest instant, or None where there is nothing to look at."""
        while self._heap:
            at, name = self._heap[0]
            if self._at.get(name) == at:
                return at
            heapq.heappop(self._heap)  # it was moved or removed
        return None

    def take_due(self, now: float) -> list[str]:
        """Remove and answer the names whose instant has come, earliest first."""
        due: list[str] = []
        while (at := self.next_at()) is not None and at <= now:
            _, name = heapq.heappop(self._heap)
            del self._at[name]
            due.append(name)
        return due


class DueQueue:
    """Polls that are believed due and wait to be asked for, by connection.

    ``pick`` goes round the connections, so that one with many due polls does not hold up the others. Within a
    connection the polls of the shortest interval come first, so that a frequent one does not stand in line
    behind a thousand rare ones; those of the same interval are first come, first served.
    """

    def __init__(self, paces: Mapping[str, StartPace]) -> None:
        self._paces = dict(paces)
        self._waiting: dict[str, list[tuple[timedelta, int, str]]] = {}
        self._names: set[str] = set()
        self._added = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._names)

    def add(self, name: str, connection: str, every: timedelta) -> None:
        """``name`` waits, unless it does already."""
        if name not in self._names:
            self._names.add(name)
            self._added += 1
            heapq.heappush(self._waiting.setdefault(connection, []), (every, self._added, name))

    def pick(self, limit: int, *, room_of: Callable[[str], int], now: float | None) -> list[str]:
        """Take up to ``limit`` names, of each connection no more than ``room_of`` it.

        They start no faster than the pace of their connection allows; ``now`` None: however fast they start.
        """
        granted = {connection: self._granted(connection, room_of, now) for connection in self._waiting}
        picked: list[str] = []
        turn = deque(connection for connection, free in granted.items() if free > 0)
        while turn and len(picked) < limit:
            connection = turn.popleft()
            waiting = self._waiting[connection]
            picked.append(heapq.heappop(waiting)[-1])
            granted[connection] -= 1
            if not waiting:
                del self._waiting[connection]
            elif granted[connection] > 0:
                turn.append(connection)
        if now is not None:
            for connection, unused in granted.items():
                self._paces[connection].give_back(unused)
        self._names.difference_update(picked)
        self._rotate()
        return picked

    def _granted(self, connection: str, room_of: Callable[[str], int], now: float | None) -> int:
        room = max(0, min(room_of(connection), len(self._waiting[connection])))
        return room if now is None or room == 0 else self._paces[connection].take(now, room)

    def _rotate(self) -> None:
        """Begin with another connection the next time."""
        if len(self._waiting) > 1:
            first = next(iter(self._waiting))
            self._waiting[first] = self._waiting.pop(first)

    def next_at(self, room_of: Callable[[str], int]) -> float | None:
        """When a waiting poll may start that only the pace holds back now; None where there is none."""
        held = (self._paces[connection].next_at for connection in self._waiting if room_of(connection) > 0)
        return min(held, default=None)


def failure_hold(
    failures: int,
    *,
    every: timedelta,
    failure_retry: timedelta,
    hint: timedelta | None,
    slack: timedelta = timedelta(),
) -> timedelta:
    """How long a poll is held after its ``failures``-th failure in a row (counted from 1).

    ``failure_retry`` at first, doubling up to the poll's interval; where the server asked for a delay, that,
    but no sooner than the poll would have been called anyway. ``slack`` is taken off for callers that come
    only once a tick, so that the next tick finds the poll due and not the one after it.
    """
    soonest = min(failure_retry, every)
    if hint is not None:
        return max(hint, soonest)
    delay, longest = failure_retry, max(every, failure_retry)
    for _ in range(failures - 1):
        if delay >= longest:
            break
        delay = min(delay * 2, longest)
    return max(delay - slack, timedelta())
