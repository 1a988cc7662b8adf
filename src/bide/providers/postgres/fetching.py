"""A fetch as the arguments of a statement, and what came back as work items."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from typing import Any

from bide.core.durations import to_ms
from bide.provider import Contended, Empty, Items, Limit, WorkItem
from bide.providers.postgres.texts import ESCAPE, readable, shown, stored
from bide.providers.postgres.turns import Turns

_FETCH = "SELECT * FROM bide.fetch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_NEXT = "SELECT bide.next_eligible_in($1, $2, $3, $4)"


@dataclass(frozen=True, slots=True)
class Fetching:
    """What is asked for, as it is kept. ``queues`` are in this turn's order.

    Limits are None where nothing is limited, and else one for each queue.
    """

    queues: list[str]
    names: list[str]
    mosts: list[int]
    limit: int
    lock_ms: int
    fetch_token: str
    queue_limits: list[int | None] | None
    key_limits: list[int | None] | None

    @classmethod
    def of(
        cls,
        queues: Collection[str],
        names: Collection[str],
        *,
        limit: int,
        lock_timeout: timedelta,
        fetch_token: str,
        most: Mapping[str, int],
        limits: Mapping[str, Limit],
    ) -> Fetching:
        """Raises ``ProviderError`` for names that no item can have."""
        wanted = sorted(name for name in set(names) if most.get(name, 1) > 0)
        given = [limits.get(queue, _UNLIMITED) for queue in queues]
        limited = any(one.queue is not None or one.per_key is not None for one in given)
        return cls(
            queues=[stored(queue) for queue in queues],
            names=[stored(name) for name in wanted],
            mosts=[min(limit, most.get(name, limit)) for name in wanted],
            limit=limit,
            lock_ms=to_ms(lock_timeout),
            fetch_token=stored(fetch_token),
            queue_limits=[one.queue for one in given] if limited else None,
            key_limits=[one.per_key for one in given] if limited else None,
        )

    def take(self, nonce: str, turns: Turns) -> tuple[Any, ...]:
        """The statement that takes, and its arguments. ``nonce`` makes its tokens."""
        return (
            _FETCH,
            self.queues,
            self.names,
            self.mosts,
            self.limit,
            self.lock_ms,
            nonce,
            self.fetch_token,
            self.queue_limits,
            self.key_limits,
            None if self.queue_limits is None else turns.served(self.queues),
        )

    def peek(self) -> tuple[Any, ...]:
        """The statement that says when something will be eligible, and its arguments."""
        return _NEXT, self.queues, self.names, self.queue_limits, self.key_limits

    def taken(self, rows: list[Any], nonce: str, turns: Turns) -> Items | Empty | Contended:
        """What was taken, in order; or that nothing was, and why."""
        first = rows[0]
        if first["seq"] is None:
            next_in: int | None = first["next_in"]
            if next_in == 0:
                return Contended()
            return Empty(None if next_in is None else timedelta(milliseconds=next_in))
        if first["afters"] is not None:
            turns.keep(self.queues, first["afters"])
        rows.sort(key=_place)
        return Items(tuple([_work_item(row, nonce) for row in rows]))


_UNLIMITED = Limit()

_place = itemgetter(0, 1)


def _work_item(row: Any, nonce: str) -> WorkItem:
    (
        _,
        seq,
        id,
        queue,
        name,
        kept,
        attempts,
        deaths,
        enqueued_at,
        expires_at,
        most,
        given_back,
        keeps,
        _,
        _,
    ) = row
    payload, unreadable = (kept, None) if ESCAPE not in kept else readable(kept)
    return WorkItem(
        id if ESCAPE not in id else shown(id),
        _SHOWN[queue],
        _SHOWN[name],
        payload,
        f"{seq}:{nonce}",
        attempts,
        deaths,
        enqueued_at,
        expires_at,
        most,
        unreadable,
        given_back,
        keeps,
    )


class _Shown(dict[str, str]):
    """Names that were seen, as they are shown: of a batch they are nearly always the same few."""

    def __missing__(self, kept: str) -> str:
        if len(self) > 10_000:
            self.clear()
        text = self[kept] = shown(kept)
        return text


_SHOWN = _Shown()
