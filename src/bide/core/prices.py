"""What requests cost: tariffs as price pages have them, and bills made from them. Exact decimal dollars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from bide.core.requests import Requests

MILLION = Decimal(1_000_000)
NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True)
class Tariff:
    """One price, in dollars for a million, of requests of several classes; ``free`` of them are included a month."""

    classes: tuple[str, ...]
    per_million: Decimal
    free: int = 0


@dataclass(frozen=True, slots=True)
class PriceList:
    """What a kind of store costs by the request, somewhere, as of a day. ``source`` is where that is published.

    ``note`` says what is not in it. ``as_of`` None: whoever gave the list did not say.
    """

    name: str
    kind: str
    title: str
    tariffs: tuple[Tariff, ...]
    region: str = ""
    as_of: date | None = None
    source: str = ""
    note: str = ""

    @property
    def place(self) -> str:
        """Title and region, for people."""
        return f"{self.title} ({self.region})" if self.region else self.title

    def per_million(self, name: str) -> Decimal | None:
        """The price of requests of a class; None where the list has none."""
        return next((tariff.per_million for tariff in self.tariffs if name in tariff.classes), None)

    def bill(self, requests: Requests) -> Bill:
        """What ``requests`` cost in a month."""
        lines = tuple(
            Line(name, number, self.per_million(name)) for name, number in requests.items() if number
        )
        allowances = tuple(
            Allowance(tariff.classes, taken, taken * tariff.per_million / MILLION)
            for tariff in self.tariffs
            if (taken := min(Decimal(tariff.free), _sum_of(requests, tariff))) and tariff.per_million
        )
        return Bill(lines, allowances)


@dataclass(frozen=True, slots=True)
class Line:
    """Requests of one class in a month. ``per_million`` None: nobody knows what they cost."""

    name: str
    requests: Decimal
    per_million: Decimal | None

    @property
    def dollars(self) -> Decimal:
        """What they cost, before anything is included."""
        return self.requests * (self.per_million or NOTHING) / MILLION


@dataclass(frozen=True, slots=True)
class Allowance:
    """Requests of a month that are included, and what they would have cost."""

    classes: tuple[str, ...]
    requests: Decimal
    dollars: Decimal


@dataclass(frozen=True, slots=True)
class Bill:
    """What requests cost in a month."""

    lines: tuple[Line, ...]
    allowances: tuple[Allowance, ...] = ()

    @property
    def requests(self) -> Decimal:
        """All of them."""
        return sum((line.requests for line in self.lines), NOTHING)

    @property
    def dollars(self) -> Decimal:
        """What is to be paid; never less than nothing."""
        gross = sum((line.dollars for line in self.lines), NOTHING)
        return max(NOTHING, gross - sum((one.dollars for one in self.allowances), NOTHING))

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Classes whose price is not known."""
        return tuple(line.name for line in self.lines if line.per_million is None)


def _sum_of(requests: Mapping[str, Decimal], tariff: Tariff) -> Decimal:
    return sum((requests.get(name, NOTHING) for name in tariff.classes), NOTHING)
