"""Mending by hand, and retention: items begun anew, discarded or purged, and what is old removed in small steps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bide.provider import ItemState, Pruned
from bide.providers import reasons
from bide.providers.choosing import PRIORITY_MS
from bide.providers.sqlite.enqueueing import KEY_KEPT_MS
from bide.providers.sqlite.fetching import bury_past_life
from bide.providers.sqlite.items import as_json, bury, line_up
from bide.providers.sqlite.writer import Transaction

_BEGIN_ANEW = """
UPDATE work_items SET
    state = iif(order_key IS NULL, 'ready', 'blocked'),
    attempts = 0, deaths = 0, given_back = 0, error = NULL, result = NULL, ended_at = NULL, kept_until = NULL,
    hold_ms = 0,
    visible_at = ?2, enqueued_at = ?2, rank = ?2 - priority * ?3, expires_at = ?2 + within_ms
WHERE id IN (SELECT value FROM json_each(?1)) AND state IN ('done', 'dead')
RETURNING id, queue, order_key
"""

_TO_DISCARD = """
SELECT seq, id FROM work_items
WHERE id IN (SELECT value FROM json_each(?1))
    AND (state IN ('ready', 'waiting', 'blocked') OR (state = 'running' AND locked_until <= ?2))
ORDER BY seq DESC
"""

_OLD_EVENTS = """
DELETE FROM events WHERE seq IN (
    SELECT seq FROM events AS old
    WHERE created_at < ?
        AND NOT EXISTS (SELECT 1 FROM polls WHERE polls.name = old.poll AND polls.event_id = old.id)
    ORDER BY created_at LIMIT 0 + ?)
RETURNING 1
"""

_OLD_ITEMS = """
DELETE FROM work_items WHERE seq IN (
    SELECT seq FROM work_items
    WHERE ended_at < ?1 AND kept_until IS NULL AND (key IS NULL OR ended_at < ?2)
    ORDER BY ended_at LIMIT 0 + ?3)
RETURNING 1
"""

_NOT_KEPT = """
DELETE FROM work_items WHERE seq IN (
    SELECT seq FROM work_items WHERE kept_until < ?1 ORDER BY kept_until LIMIT 0 + ?2)
RETURNING 1
"""

_ENDED_OF = """
SELECT seq FROM work_items INDEXED BY work_ended
WHERE queue = ? AND state = ? AND ended_at IS NOT NULL ORDER BY seq LIMIT 0 + ?
"""

_LIVING_OF = """
SELECT seq FROM work_items INDEXED BY work_living
WHERE queue = ?1 AND ended_at IS NULL AND (state <> 'running' OR locked_until <= ?3) ORDER BY seq LIMIT 0 + ?2
"""

_PURGE = "DELETE FROM work_items WHERE seq IN (SELECT value FROM json_each(?)) RETURNING queue, order_key"


@dataclass(frozen=True, slots=True)
class Purge:
    """What shall be removed for good."""

    queue: str
    states: frozenset[ItemState]
    limit: int


def begin_anew(transaction: Transaction, ids: Collection[str]) -> list[str]:
    """Make ended items ready, as if they had just been enqueued; the ids that were."""
    rows = transaction.rows(_BEGIN_ANEW, (as_json(ids), transaction.now, PRIORITY_MS))
    line_up(transaction, {(queue, key) for _, queue, key in rows if key is not None})
    transaction.wakes = transaction.wakes or bool(rows)
    return sorted(id for id, _, _ in rows)


def discard(transaction: Transaction, request: tuple[Collection[str], str]) -> list[str]:
    """Bury items that wait, or whose lock expired; the ids that did."""
    ids, reason = request
    found = transaction.rows(_TO_DISCARD, (as_json(ids), transaction.now))
    for seq, _ in found:
        bury(transaction, seq, reasons.storable(reason))
    return sorted(id for _, id in found)


def purge(transaction: Transaction, wanted: Purge) -> int:
    """Remove items, the oldest first; how many."""
    limit = max(wanted.limit, 0)
    found = [
        row
        for state in wanted.states & {"done", "dead"}
        for row in transaction.rows(_ENDED_OF, (wanted.queue, state, limit))
    ]
    if "ready" in wanted.states:
        found += transaction.rows(_LIVING_OF, (wanted.queue, limit, transaction.now))
    oldest = sorted(seq for (seq,) in found)[:limit]
    removed = transaction.rows(_PURGE, (as_json(oldest),))
    line_up(transaction, {(queue, key) for queue, key in removed if key is not None})
    return len(removed)


def prune(transaction: Transaction, request: tuple[int, int]) -> Pruned:
    """Bury what is past its life and remove what ended so many milliseconds ago, up to a limit of each kind."""
    retention_ms, limit = request
    now = transaction.now
    before = now - retention_ms
    kept_no_more = len(transaction.rows(_NOT_KEPT, (now, limit)))
    old = len(transaction.rows(_OLD_ITEMS, (before, now - KEY_KEPT_MS, limit - kept_no_more)))
    return Pruned(
        events=len(transaction.rows(_OLD_EVENTS, (before, limit))),
        items=kept_no_more + old,
        expired=bury_past_life(transaction, limit),
    )
