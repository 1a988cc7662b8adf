"""Mending by hand, and retention: items begun anew or discarded, and what is old removed in small steps."""

from __future__ import annotations

from collections.abc import Collection

from bide.provider import Pruned
from bide.providers import reasons
from bide.providers.choosing import PRIORITY_MS
from bide.providers.sqlite.fetching import bury_past_life
from bide.providers.sqlite.items import as_json, end_item, line_up
from bide.providers.sqlite.writer import Transaction

_BEGIN_ANEW = """
UPDATE work_items SET
    state = iif(order_key IS NULL, 'ready', 'blocked'),
    attempts = 0, deaths = 0, error = NULL, ended_at = NULL, hold_ms = 0,
    visible_at = ?2, enqueued_at = ?2, rank = ?2 - priority * ?3, expires_at = ?2 + within_ms
WHERE id IN (SELECT value FROM json_each(?1)) AND state IN ('done', 'dead')
RETURNING id, queue, order_key
"""

_TO_DISCARD = """
SELECT seq, id FROM work_items
WHERE id IN (SELECT value FROM json_each(?)) AND state IN ('ready', 'waiting', 'blocked')
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
DELETE FROM work_items WHERE seq IN (SELECT seq FROM work_items WHERE ended_at < ? ORDER BY ended_at LIMIT 0 + ?)
RETURNING 1
"""


def begin_anew(transaction: Transaction, ids: Collection[str]) -> list[str]:
    """Make ended items ready, as if they had just been enqueued; the ids that were."""
    rows = transaction.rows(_BEGIN_ANEW, (as_json(ids), transaction.now, PRIORITY_MS))
    line_up(transaction, {(queue, key) for _, queue, key in rows if key is not None})
    transaction.wakes = transaction.wakes or bool(rows)
    return sorted(id for id, _, _ in rows)


def discard(transaction: Transaction, request: tuple[Collection[str], str]) -> list[str]:
    """Bury items that wait; the ids that did."""
    ids, reason = request
    found = transaction.rows(_TO_DISCARD, (as_json(ids),))
    for seq, _ in found:
        end_item(transaction, seq, "dead", reasons.storable(reason))
    return sorted(id for _, id in found)


def prune(transaction: Transaction, request: tuple[int, int]) -> Pruned:
    """Bury what is past its life and remove what ended so many milliseconds ago, up to a limit of each kind."""
    retention_ms, limit = request
    before = transaction.now - retention_ms
    return Pruned(
        events=len(transaction.rows(_OLD_EVENTS, (before, limit))),
        items=len(transaction.rows(_OLD_ITEMS, (before, limit))),
        expired=bury_past_life(transaction, limit),
    )
