"""The ``queues`` block: how many items of a queue may be running at a time over the whole fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bide.config.report import Place
from bide.config.shape import Table, named_entries, read_table, whole
from bide.core.work import QueueDeclaration
from bide.provider import DELIVERIES

QUEUE_KEYS = ("limit", "per_key")


def read_queues(root: Table) -> Iterator[QueueDeclaration]:
    """Every queue of the ``queues`` block."""
    coded = Table(root.place.coded("queue.key_invalid", "queue.value_invalid"), root.entries)
    for name, place, value in named_entries(coded, "queues", "a queue"):
        if name == DELIVERIES:
            refuse_deliveries(place.refuse_key)
        table = read_table(place, value, QUEUE_KEYS)
        if table is None:
            continue
        limit = table.find("limit", whole(1))
        per_key = table.find("per_key", whole(1))
        if limit is not None and per_key is not None and per_key > limit:
            _refuse_per_key(place.at("per_key"), limit)
        yield QueueDeclaration(name, limit, per_key)


def refuse_deliveries(refuse: Callable[[str, str], None]) -> None:
    """Report the name of a queue that is not for tasks."""
    refuse(f"{DELIVERIES!r} is the queue of deliveries, and of nothing else", "Give the queue another name.")


def _refuse_per_key(place: Place, limit: int) -> None:
    place.refuse(f"is more than the whole queue may have, which is {limit}", f"Write {limit} or less.")
