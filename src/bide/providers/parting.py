"""New items as columns: what differs from one to the next, and what may be said once for all."""

from __future__ import annotations

from collections.abc import Sequence

from bide.provider import Alike, NewItem


def parted(items: Sequence[NewItem]) -> tuple[Sequence[str], Sequence[str], Sequence[NewItem]]:
    """Ids, payloads, and items that say all the rest: one for each, or a single one for all."""
    if isinstance(items, Alike):
        return items.ids, items.payloads, (items.pattern,)
    return [item.id for item in items], [item.payload for item in items], items
