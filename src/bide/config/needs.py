"""What a declaration needs of the store beyond keeping work items, and which stores cannot do it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bide.config.report import Place
from bide.config.shape import Table
from bide.core.abilities import Ability, StoreKind, able, cannot

ANY = "*"
"""In a path: every entry of the table or list there."""

NEEDS: Mapping[tuple[str, ...], Ability] = {
    ("subscribers", ANY, "ordered"): "ordered",
    ("watches", ANY, "to", ANY, "ordered"): "ordered",
    ("queues", ANY, "limit"): "limits",
    ("queues", ANY, "per_key"): "limits",
    ("tasks", ANY, "every"): "periodic",
    ("tasks", ANY, "cron"): "periodic",
    ("tasks", ANY, "keep_result"): "results",
    ("tasks", ANY, "priority"): "priorities",
}
"""Settings that need an ability wherever they are given and say more than no."""


def check_needs(root: Table, kind: StoreKind | None) -> None:
    """Report each setting that a store of ``kind`` cannot do; None: it is not known what kind it will be."""
    if kind is None:
        return
    for path, ability in NEEDS.items():
        if ability not in kind.lacks:
            continue
        for place in _given(root.place, root.entries, path):
            place.refuse(
                f"needs a store that can do it: {cannot(kind, ability)}",
                f"Leave it out, or use a provider that can: {able(ability)}.",
                code="store.unable",
            )


def _given(place: Place, value: object, path: Sequence[str]) -> Iterator[Place]:
    """Every place of ``path`` below where something is asked for."""
    if not path:
        if value:
            yield place
        return
    key, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        for name in value if key == ANY else [key]:
            if name in value:
                yield from _given(place.at(name), value[name], rest)
    elif isinstance(value, list | tuple) and key == ANY:
        for index, entry in enumerate(value):
            yield from _given(place.item(index), entry, rest)
