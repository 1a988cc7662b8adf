"""What is not counted record by record: it is read from the watched apps when somebody asks for metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bide.core.observed import METRIC
from bide.core.requests import kind_of
from bide.stores import filled

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from bide.app import App
    from bide.slots import Slots

MOST_SERIES = 1000
"""How many combinations of label values one metric has at most."""


def provider_of(app: App) -> str:
    """The kind of store that an app has, in one word: ``sqlite``, ``postgresql``, ``memory``."""
    scheme = filled(app.declarations.provider, app.environment).partition(":")[0]
    return kind_of(scheme)


class SlotsCollector:
    """Reads the slots of connections when it is asked."""

    def __init__(self, apps: Sequence[App]) -> None:
        self._apps = apps

    def collect(self) -> Iterator[Metric]:
        """The slots of every connection of the watched apps."""
        from prometheus_client.core import GaugeMetricFamily

        in_use = GaugeMetricFamily("bide_slots_in_use", "Calls under way.", labels=["connection"])
        waiting = GaugeMetricFamily(
            "bide_slots_waiting", "Calls that wait for a slot.", labels=["connection"]
        )
        by_name: dict[str, list[Slots]] = {}
        for slots in [slots for app in self._apps for slots in app.slots.all()]:
            by_name.setdefault(slots.name, []).append(slots)
        for name, all_of in list(by_name.items())[:MOST_SERIES]:
            in_use.add_metric([name], sum(slots.in_use for slots in all_of))
            waiting.add_metric([name], sum(slots.waiting for slots in all_of))
        yield in_use
        yield waiting

    def describe(self) -> Sequence[Metric]:
        """Nothing, so that registering it asks nobody."""
        return ()


class RequestsCollector:
    """Asks providers what they were asked, when it is asked itself."""

    def __init__(self, apps: Sequence[App]) -> None:
        self._apps = apps

    def collect(self) -> Iterator[Metric]:
        """The requests of every watched app, those of one kind of store together."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(
            METRIC,
            "Requests to the store, by the class that it bills them by.",
            labels=["provider", "class"],
        )
        since: dict[tuple[str, str], int] = {}
        counts: dict[tuple[str, str], int] = {}
        for app in list(self._apps):
            if app.requested_since is None:
                continue
            kind = provider_of(app)
            for name, number in app.requests().items():
                series = (kind, name)
                counts[series] = counts.get(series, 0) + number
                since[series] = min(since.get(series, app.requested_since), app.requested_since)
        for series, number in counts.items():
            family.add_metric(list(series), number, created=since[series] / 1000)
        yield family

    def describe(self) -> Sequence[Metric]:
        """Nothing, so that registering it asks nobody."""
        return ()
