"""When trouble is worth a line: on its edges, and now and then while it lasts.

An *episode* of a subject (a connection, a subscriber) lasts from its first failure until nothing of it fails.
Ten thousand polls of fifty connections that all fail are fifty episodes, so about fifty lines.
Pure: instants are seconds that the caller gives, on any clock that does not step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GATHER_S = 60.0
"""A subject and kind that just had a line gets no other for so long; what happens meanwhile is counted."""
SUMMARY_S = 3600.0
"""While trouble lasts, it is summed up so often."""


@dataclass(frozen=True, slots=True)
class Began:
    """First failure of this kind: worth a warning."""

    kind: str


@dataclass(frozen=True, slots=True)
class Spread:
    """``more`` members fail that were not told of yet; ``failing`` fail in all."""

    kind: str
    more: int
    failing: int


@dataclass(frozen=True, slots=True)
class Lasts:
    """Still failing: since how many seconds, how many members now, how many failures so far."""

    seconds: float
    failing: int
    failures: int


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing of the subject fails any more. ``members`` had failed, ``failures`` times in all."""

    seconds: float
    members: int
    failures: int


@dataclass(slots=True)
class _Episode:
    since: float
    summed_up_at: float
    failing: set[str] = field(default_factory=set)
    members: int = 0
    failures: int = 0
    held_back: int = 0
    told: bool = False
    kinds: set[str] = field(default_factory=set)


class Episodes:
    """Takes every failure and recovery, and answers the few that should be told (None for the others)."""

    def __init__(self) -> None:
        self._episodes: dict[str, _Episode] = {}
        self._told_at: dict[tuple[str, str], float] = {}

    def failed(self, subject: str, kind: str, member: str, now: float) -> Began | Spread | Lasts | None:
        """``member`` of ``subject`` failed once more."""
        episode = self._episodes.setdefault(subject, _Episode(now, now))
        episode.failures += 1
        joined = member not in episode.failing
        if joined:
            episode.failing.add(member)
            episode.members += 1
        news = joined or kind not in episode.kinds
        if news and now - self._told_at.get((subject, kind), -GATHER_S) >= GATHER_S:
            return self._tell(episode, subject, kind, now)
        episode.held_back += joined
        if now - episode.summed_up_at >= SUMMARY_S:
            episode.summed_up_at = now
            episode.held_back = 0
            episode.told = True
            return Lasts(now - episode.since, len(episode.failing), episode.failures)
        return None

    def _tell(self, episode: _Episode, subject: str, kind: str, now: float) -> Began | Spread:
        first = kind not in episode.kinds
        more = episode.held_back + 1
        episode.kinds.add(kind)
        episode.told = True
        episode.held_back = 0
        self._told_at[subject, kind] = now
        return Began(kind) if first else Spread(kind, more, len(episode.failing))

    def recovered(self, subject: str, member: str, now: float) -> Ended | None:
        """``member`` works again. The end of an episode that nobody was told of is not told either."""
        episode = self._episodes.get(subject)
        if episode is None:
            return None
        episode.failing.discard(member)
        if episode.failing:
            return None
        del self._episodes[subject]
        if not episode.told:
            return None
        return Ended(now - episode.since, episode.members, episode.failures)
