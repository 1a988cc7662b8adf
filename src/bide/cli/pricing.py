"""Which prices hold for a store, and how bills are printed."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bide.config.prices import PriceLists, price_lists
from bide.core.names import did_you_mean
from bide.core.prices import Bill, PriceList
from bide.errors import SettingError

if TYPE_CHECKING:
    from bide.app import App

_CENT = Decimal("0.01")
_MICRO = Decimal("0.000001")


def prices_of(app: App, given: Path | None) -> PriceLists:
    """bide's price lists, with those of the file that the command line or ``[cost]`` names over them."""
    block = app.raw().get("cost")
    declared = block.get("prices") if isinstance(block, Mapping) else None
    path = given if given is not None else app.folder / declared if isinstance(declared, str) else None
    return price_lists(path)


def list_for(kind: str, lists: PriceLists, named: str | None) -> PriceList:
    """The list called ``named``, else that of the kind's own name.

    Raises ``SettingError`` where there is none, and for one of another kind of store.
    """
    if named is None:
        return lists[kind]
    if named not in lists:
        step = did_you_mean(named, lists) or f"known are {', '.join(sorted(lists))}"
        raise SettingError("--price-list", f"there is none called {named!r}; {step}")
    found = lists[named]
    if found.kind != kind:
        fitting = ", ".join(sorted(each.name for each in lists.values() if each.kind == kind))
        raise SettingError(
            "--price-list", f"{named} is for {found.kind}, and the store is {kind}; lists for it: {fitting}"
        )
    return found


def whole(number: Decimal) -> int:
    """A number of requests, rounded."""
    return int(number.to_integral_value(ROUND_HALF_UP))


def dollars(amount: Decimal) -> str:
    """``"$1,234.50"``; what is less than a cent and not nothing is said to be so."""
    if 0 < amount < _CENT:
        return "<$0.01"
    return f"${amount.quantize(_CENT, ROUND_HALF_UP):,}"


def exact(amount: Decimal) -> float:
    """Dollars for JSON, to a millionth."""
    return float(amount.quantize(_MICRO, ROUND_HALF_UP))


def per_million(price: Decimal | None) -> str:
    """A price as tables show it."""
    if price is None:
        return "?"
    shown = f"{price.normalize():f}"
    return shown if len(shown.partition(".")[2]) > 2 else f"{price:.2f}"


def basis(prices: PriceList) -> list[str]:
    """Where the prices are from, and what is not in them."""
    if not any(tariff.per_million for tariff in prices.tariffs):
        return [f"{prices.place}: {prices.note}"] if prices.note else []
    day = f"as of {prices.as_of}" if prices.as_of else "of no known day"
    source = f", {prices.source}" if prices.source else ""
    return [f"prices of {prices.place} {day}{source}", *([prices.note] if prices.note else [])]


def prices_as_json(prices: PriceList) -> dict[str, Any]:
    """A price list, without its tariffs, for JSON."""
    return {
        "list": prices.name,
        "title": prices.title,
        "region": prices.region or None,
        "as_of": prices.as_of.isoformat() if prices.as_of else None,
        "source": prices.source or None,
        "note": prices.note or None,
    }


def total_as_json(bill: Bill) -> dict[str, Any]:
    """What is included, and what it comes to."""
    return {
        "included": [
            {"classes": list(one.classes), "requests": whole(one.requests), "dollars": exact(one.dollars)}
            for one in bill.allowances
        ],
        "total": {
            "requests": whole(bill.requests),
            "dollars": exact(bill.dollars),
            "unpriced": list(bill.unpriced),
        },
    }
