"""Removing items for good."""

from __future__ import annotations

from collections.abc import Sequence

from bide.providers.s3.keys import Keys
from bide.providers.s3.names import ITEMS, index_key
from bide.providers.s3.store import Kept, Store


async def remove_items(store: Store, keys: Keys, found: Sequence[Kept]) -> None:
    """Leave nothing of these items: their keys go first, so that no key leads to what is gone."""
    if not found:
        return
    await store.each([kept.item for kept in found if kept.item.key is not None], keys.free)
    for kept in found:
        store.watch.drop(kept.token)
    index = [index_key(kept.item, store.shards) for kept in found]
    await store.bucket.delete([*(f"{ITEMS}{kept.token}" for kept in found), *index])
