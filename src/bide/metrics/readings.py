"""What is not counted record by record: it is read from the watched apps when somebody asks for metrics."""

from __future__ import annotations

from collections.abc import Iterable

from bide.app import App
from bide.core.kinds import kind_of
from bide.core.observed import REQUESTS
from bide.stores import filled

MOST_SERIES = 1000
"""How many combinations of label values one metric has at most; further ones are counted together as ``other``."""


class Reading:
    """What is read when it is asked for: its name, what it is, its labels, and values by label values.

    ``grows``: a counter, and ``since_s`` has by label values since when it counts (seconds since the epoch); else a
    gauge.
    """

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self.name = name
        self.text = text
        self.labels = labels
        self.grows = name.endswith("_total")
        self.values: dict[tuple[str, ...], float] = {}
        self.since_s: dict[tuple[str, ...], float] = {}

    def add(self, labels: tuple[str, ...], value: float, *, since_s: float | None = None) -> None:
        """So much more, unless there are too many series already."""
        if labels in self.values or len(self.values) < MOST_SERIES:
            self.values[labels] = self.values.get(labels, 0) + value
            if since_s is not None:
                self.since_s[labels] = min(self.since_s.get(labels, since_s), since_s)


_READ = (
    ("bide_slots_in_use", "Calls under way.", "connection"),
    ("bide_slots_waiting", "Calls that wait for a slot.", "connection"),
    ("bide_items_in_hand", "Items fetched and not handled yet.", "queue"),
    (REQUESTS, "Requests to the store, by the class that it bills them by.", "provider", "class"),
)


def readings_of(apps: Iterable[App]) -> list[Reading]:
    """What can be read at this moment, everything of one name and labels together."""
    readings: dict[str, Reading] = {name: Reading(name, *rest) for name, *rest in _READ}
    for app in apps:
        for slots in app.slots.all():
            readings["bide_slots_in_use"].add((slots.name,), slots.in_use)
            readings["bide_slots_waiting"].add((slots.name,), slots.waiting)
        for queue, in_hand in app.in_hand().items():
            readings["bide_items_in_hand"].add((queue,), in_hand)
        if (since := app.requested_since) is not None:
            kind = provider_of(app)
            for name, number in app.requests().items():
                readings[REQUESTS].add((kind, name), number, since_s=since / 1000)
    return list(readings.values())


def provider_of(app: App) -> str:
    """The kind of store that an app has, in one word: ``sqlite``, ``postgresql``, ``memory``."""
    scheme = filled(app.declarations.provider, app.environment).partition(":")[0]
    return kind_of(scheme)
