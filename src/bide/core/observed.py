"""What processes counted of their requests, put together and scaled to a month."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from bide.core.durations import to_ms
from bide.core.estimates import MONTH
from bide.core.requests import Requests

REQUESTS = "bide_provider_requests_total"
"""The metric of requests to stores, whose labels are ``provider`` and ``class``."""

_CREATED = REQUESTS.replace("_total", "_created")
_FORMAT = 1
_SAMPLE = re.compile(rf"({REQUESTS}|{_CREATED})\{{([^}}]*)\}}\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Counted:
    """What one process asked of its store from ``since`` to ``until`` (ms since the epoch), by class.

    ``place`` is where the store is, for people, empty where that is not known; ``kind`` what kind of store it is.
    """

    kind: str
    place: str
    since: int
    until: int
    requests: Mapping[str, int]

    def as_json(self) -> str:
        """As it is written to a file."""
        return json.dumps(
            {
                "format": _FORMAT,
                "provider": self.kind,
                "place": self.place,
                "since": self.since,
                "until": self.until,
                "requests": dict(self.requests),
            },
            indent=2,
        )


@dataclass(frozen=True, slots=True)
class Observed:
    """All that was counted of one store. ``covered_ms``: for how long at least one process was counting."""

    kind: str
    place: str
    since: int
    until: int
    covered_ms: int
    processes: int
    requests: Mapping[str, int] = field(default_factory=dict)

    @property
    def monthly(self) -> Requests:
        """Requests of a month in which somebody asks all the time, as they did while it was counted."""
        scale = Decimal(to_ms(MONTH)) / max(1, self.covered_ms)
        return {name: number * scale for name, number in self.requests.items()}


def by_store(counts: Iterable[Counted]) -> list[Observed]:
    """What was counted, store by store, those most asked first."""
    stores: dict[tuple[str, str], list[Counted]] = {}
    for counted in counts:
        stores.setdefault((counted.kind, counted.place), []).append(counted)
    found = [_together(kind, place, of_it) for (kind, place), of_it in stores.items()]
    return sorted(found, key=lambda one: (-sum(one.requests.values()), one.place))


def _together(kind: str, place: str, counts: list[Counted]) -> Observed:
    requests: Counter[str] = Counter()
    for counted in counts:
        requests.update(counted.requests)
    return Observed(
        kind=kind,
        place=place,
        since=min(counted.since for counted in counts),
        until=max(counted.until for counted in counts),
        covered_ms=_covered_ms(counts),
        processes=len(counts),
        requests=dict(sorted(requests.items())),
    )


def _covered_ms(counts: list[Counted]) -> int:
    """How long the union of their times is."""
    covered, reached = 0, 0
    for counted in sorted(counts, key=lambda one: one.since):
        begin = max(counted.since, reached)
        if counted.until > begin:
            covered += counted.until - begin
            reached = counted.until
    return covered


def read_counts(text: str) -> Counted:
    """What a process wrote by :meth:`Counted.as_json`. Raises ``ValueError``, saying what is wrong."""
    value = json.loads(text)
    if not isinstance(value, dict) or value.get("format") != _FORMAT:
        raise ValueError("it is not a file of counts of this version of bide")
    requests = value.get("requests")
    if not isinstance(requests, dict) or not all(_is_count(number) for number in requests.values()):
        raise ValueError("its requests are no counts")
    since, until = value.get("since"), value.get("until")
    if not (isinstance(since, int) and isinstance(until, int)):
        raise ValueError("its times are no instants")
    return Counted(str(value.get("provider")), str(value.get("place")), since, max(since, until), requests)


def read_metrics(text: str, now: int) -> list[Counted]:
    """The counts in metrics as Prometheus reads them, up to ``now``; one for each kind of store.

    Raises ``ValueError``, saying what is wrong, where there are counts and it is not said since when.
    """
    requests: dict[str, dict[str, int]] = {}
    since: dict[str, int] = {}
    for name, labels, number in _SAMPLE.findall(text):
        given = dict(_LABEL.findall(labels))
        kind, sort = given.get("provider", ""), given.get("class", "")
        if name == REQUESTS:
            of_kind = requests.setdefault(kind, {})
            of_kind[sort] = of_kind.get(sort, 0) + int(float(number))
        else:
            begun = int(float(number) * 1000)
            since[kind] = min(since.get(kind, begun), begun)
    if missing := sorted(requests.keys() - since.keys()):
        raise ValueError(f"it does not say since when it counts requests to {missing[0]} (no {_CREATED})")
    return [
        Counted(kind, "", since[kind], max(since[kind], now), counts) for kind, counts in requests.items()
    ]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
