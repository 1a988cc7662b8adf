"""What a fetch may choose from: the first ready items of each queue and name, and of each limit key in turn.

However many items there are, no more are looked at than may be taken: of a queue with a limit the keys are skipped
through an index, beginning with the one whose turn it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any

from bide.provider import Limit
from bide.providers.choosing import Candidate, Lane, Turns
from bide.providers.reasons import DEATHS_BEFORE_ALONE
from bide.providers.sqlite.items import as_json
from bide.providers.sqlite.writer import Transaction

_SHOWN = """
json_array(
    json_group_array(json_array(rank, seq, deaths, limit_key)) FILTER (WHERE NOT is_doomed),
    json_group_array(seq) FILTER (WHERE is_doomed))
"""
"""What choosing needs to know of each; and the places of those that cannot be handed out any more."""

_COLUMNS = """
seq, rank, deaths, limit_key,
    (coalesce(attempts >= max_attempts, 0) OR coalesce(expires_at <= ?3, 0)) AS is_doomed
"""

_FIRST_OF_PAIR = """
SELECT {shown} FROM (
    SELECT {columns} FROM work_items INDEXED BY {index}
    WHERE state = 'ready' AND limit_key {keyed} AND queue = pair.value ->> 0 AND name = pair.value ->> 1
    ORDER BY rank, seq LIMIT 0 + ?2)
"""

_FIRST_OF_BOTH = """
SELECT json_group_array(json_array(value ->> 0, value ->> 1, json(({free})), json(({keyed}))))
FROM json_each(?1) AS pair
"""

_FIRST = _FIRST_OF_BOTH.format(
    free=_FIRST_OF_PAIR.format(shown=_SHOWN, columns=_COLUMNS, index="work_ready", keyed="IS NULL"),
    keyed=_FIRST_OF_PAIR.format(
        shown=_SHOWN, columns=_COLUMNS, index="work_ready_keyed", keyed="IS NOT NULL"
    ),
)
"""Of each pair the first without a limit key and the first with one, in one row: at each row that a statement hands
out, this thread and the event loop may have to wait for each other."""

_RUNNING = """
SELECT json_group_array(json_array(queue, limit_key)) FROM work_items INDEXED BY work_running
WHERE state = 'running' AND queue IN (SELECT value FROM json_each(?))
"""

_KEYS = """
WITH RECURSIVE keys (key) AS (
    SELECT (
        SELECT limit_key FROM work_items INDEXED BY work_ready_by_key
        WHERE state = 'ready' AND limit_key IS NOT NULL AND queue = ?1 AND name = ?2 AND limit_key {after} ?3
        ORDER BY limit_key LIMIT 1)
    UNION ALL
    SELECT (
        SELECT limit_key FROM work_items INDEXED BY work_ready_by_key
        WHERE state = 'ready' AND limit_key IS NOT NULL AND queue = ?1 AND name = ?2 AND limit_key > keys.key
        ORDER BY limit_key LIMIT 1)
    FROM keys WHERE keys.key IS NOT NULL
)
SELECT json_group_array(key) FROM (
    SELECT key FROM keys
    WHERE key IS NOT NULL AND key NOT IN (SELECT value FROM json_each(?4)) LIMIT 0 + ?5)
"""
"""Limit keys with ready items behind one of them, in order, but for those that are full."""

KEYS_BEHIND = _KEYS.format(after=">")
KEYS_FROM = _KEYS.format(after=">=")

_FIRST_OF_KEYS = """
SELECT json_group_array(json((
    SELECT {shown} FROM (
        SELECT {columns} FROM work_items INDEXED BY work_ready_by_key
        WHERE state = 'ready' AND limit_key IS NOT NULL
            AND queue = ?4 AND name = ?5 AND limit_key = wanted.value
        ORDER BY rank, seq LIMIT 0 + ?2))))
FROM json_each(?1) AS wanted
"""

_OF_KEYS = _FIRST_OF_KEYS.format(shown=_SHOWN, columns=_COLUMNS)

Group = tuple[str, str, str | None]
"""Queue, name and limit key."""

_Row = tuple[int, int, int, str | None]
"""Rank, place, deaths and limit key."""


def lanes_of(transaction: Transaction, limits: Mapping[str, Limit], turns: Turns) -> dict[str, Lane]:
    """The queues with a limit, and what is running of them."""
    lanes = {queue: Lane(limit, Counter(), turns.served(queue)) for queue, limit in limits.items()}
    if lanes:
        for queue, key in _json(transaction, _RUNNING, (as_json(lanes),)):
            lanes[queue].running[key] += 1
    return lanes


class Search:
    """What may be chosen from, as far as it was looked for.

    ``free_pairs`` is JSON of the queues without a limit, each with each of ``names``. With more ``effort`` more items
    of each limit key are looked at.
    """

    def __init__(
        self,
        transaction: Transaction,
        lanes: Mapping[str, Lane],
        *,
        names: Collection[str],
        free_pairs: str,
        limit: int,
        most: Mapping[str, int],
        effort: int = 1,
    ) -> None:
        self.doomed: list[int] = []
        """Places of what cannot be handed out any more."""
        self._found: list[tuple[str, str, list[_Row]]] = []
        self._transaction = transaction
        self._limit = limit
        self._effort = effort
        self._cut: dict[Group, int] = {}
        for queue, name, free, keyed in _json(transaction, _FIRST, (free_pairs, limit, transaction.now)):
            allowed = min(limit, most.get(name, limit))
            self._add(queue, name, free, allowed)
            self._add(queue, name, keyed, allowed)
        for queue, lane in lanes.items():
            if lane.limit.queue is None or lane.running.total() < lane.limit.queue:
                for name in names:
                    self._look(lane, queue, name, min(limit, most.get(name, limit)))

    @property
    def candidates(self) -> list[Candidate]:
        """What may be chosen from."""
        return [
            Candidate(seq, queue, name, rank, deaths, limit_key)
            for queue, name, rows in self._found
            for rank, seq, deaths, limit_key in rows
        ]

    def simply_first(self, queues: Sequence[str]) -> list[int] | None:
        """The places of the first in order, where only that and the turn of queues decide; None where more does."""
        lines: dict[str, list[_Row]] = {queue: [] for queue in queues}
        for queue, _, rows in self._found:
            lines[queue] = sorted(lines[queue] + rows) if lines[queue] else rows
        names = [name for _, name, _ in self._found]
        rows = [row for rows in lines.values() for row in rows]
        if len(set(names)) < len(names) or any(deaths >= DEATHS_BEFORE_ALONE for _, _, deaths, _ in rows):
            return None
        if sum(map(bool, lines.values())) > 1:
            turns = (row for turn in zip_longest(*lines.values()) for row in turn if row is not None)
            rows = sorted(islice(turns, self._limit))
        return [seq for _, seq, _, _ in rows[: self._limit]]

    def is_too_narrow_for(self, chosen: Iterable[Candidate]) -> bool:
        """Whether all was chosen that was looked at of a limit key, and there is more of it."""
        counted = Counter((candidate.queue, candidate.name, candidate.limit_key) for candidate in chosen)
        return any(counted[group] == depth for group, depth in self._cut.items())

    def _add(self, queue: str, name: str, found: tuple[list[_Row], list[int]], allowed: int) -> None:
        rows, doomed = found
        self.doomed += doomed
        if rows:
            self._found.append((queue, name, rows[:allowed]))

    def _look(self, lane: Lane, queue: str, name: str, limit: int) -> None:
        """The first items of a name without a limit key, and those of each key that may be chosen."""
        tx = self._transaction
        ((_, _, free, _),) = _json(tx, _FIRST, (as_json([(queue, name)]), limit, tx.now))
        self._add(queue, name, free, limit)
        keys = _keys(tx, lane, queue, name, limit)
        if not keys:
            return
        room = limit if lane.limit.per_key is None else min(limit, lane.limit.per_key)
        depth = min(room, self._effort * (2 * limit // len(keys) + 1))
        of_keys = _json(tx, _OF_KEYS, (as_json(keys), depth, tx.now, queue, name))
        for key, found in zip(keys, of_keys, strict=True):
            self._add(queue, name, found, depth)
            if len(found[0]) == depth < room:
                self._cut[queue, name, key] = depth


def _keys(transaction: Transaction, lane: Lane, queue: str, name: str, limit: int) -> list[str]:
    """Keys that have room, the one whose turn it is first: enough of them to have as many as are wanted of the
    least that is running."""
    full = [key for key in lane.running if key is not None and not lane.has_room(key)]
    enough = limit + len(lane.running)
    bindings = (queue, name, lane.after or "", as_json(full), enough)
    if lane.after is None:
        return list(_json(transaction, KEYS_FROM, bindings))
    behind = list(_json(transaction, KEYS_BEHIND, bindings))
    if len(behind) == enough:
        return behind
    others = _json(transaction, KEYS_FROM, (queue, name, "", as_json(full), enough - len(behind)))
    return [*behind, *(key for key in others if key <= lane.after)]


def _json(transaction: Transaction, statement: str, bindings: tuple[Any, ...]) -> Any:
    """What a statement answers in one row as JSON."""
    (text,) = transaction.row(statement, bindings)
    return json.loads(text)
