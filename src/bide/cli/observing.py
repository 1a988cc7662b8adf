"""What ``cost --observed`` does: what was really counted, scaled to a month."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from bide.cli.instants import rfc3339, span
from bide.cli.opening import load
from bide.cli.pricing import (
    basis,
    dollars,
    exact,
    list_for,
    per_million,
    prices_as_json,
    prices_of,
    total_as_json,
    whole,
)
from bide.cli.printing import add_row, new_table, print_json, print_table, print_text
from bide.cli.tallying import folder_of, kept_counts
from bide.clock import SystemClock
from bide.config.prices import PriceLists
from bide.core.durations import to_ms
from bide.core.observed import Counted, Observed, by_store, read_counts, read_metrics
from bide.core.prices import Bill, PriceList
from bide.errors import BideError, CallError

_ADDRESSES = ("http://", "https://")
_ANSWER_S = 10.0
_SHORT_MS = to_ms(timedelta(hours=1))
"""What was observed for less than this says little of a month."""

_NUMBERS = ("counted", "a month", "$ per million", "dollars")


def show_observed(
    target: str, sources: Sequence[str], *, prices: Path | None, price_list: str | None, as_json: bool
) -> None:
    """Print what was counted, store by store; without ``sources`` by the processes beside the app's file.

    Raises ``BideError`` where nothing was counted, or a source cannot be read.
    """
    app = load(target)
    folder = folder_of(app)
    found = [one for source in sources for one in _counts_of(source)]
    if not sources and folder.is_dir():
        found = _counts_of(str(folder))
    stores = by_store(one for one in found if one.until > one.since)
    if not stores:
        raise BideError(
            f"nothing was counted in {', '.join(sources) or folder} yet; `bide run` and `bide worker` count, and "
            "write it there each minute"
        )
    lists = prices_of(app, prices)
    bills = [(store, _list_of(store, lists, price_list)) for store in stores]
    if as_json:
        print_json({"estimate": False, "days": 30, "stores": [_as_json(*each) for each in bills]})
        return
    for at, (store, its_prices) in enumerate(bills):
        if at:
            print_text("")
        _print(store, its_prices)


def _list_of(store: Observed, lists: PriceLists, named: str | None) -> PriceList:
    if store.kind not in lists:
        return PriceList(store.kind, store.kind, store.kind, ())
    fits = named is None or named not in lists or lists[named].kind == store.kind
    return list_for(store.kind, lists, named if fits else None)


# --- what there is to read ---------------------------------------------------------------------------------


def _counts_of(source: str) -> list[Counted]:
    if source.startswith(_ADDRESSES):
        return _read(source, asyncio.run(_ask(source)), SystemClock().utc_ms())
    path = Path(source)
    try:
        if not path.is_dir():
            return _read(source, path.read_text(encoding="utf-8"), int(path.stat().st_mtime * 1000))
        return [one for file in kept_counts(path) for one in _read(str(file), file.read_text("utf-8"), 0)]
    except FileNotFoundError:
        raise BideError(
            f"{source}: there is no such file; name an address of metrics, a file or a folder"
        ) from None
    except UnicodeDecodeError:
        raise BideError(f"{source}: it is no text; name a file of metrics or of counts") from None
    except OSError as error:
        raise BideError(f"{source}: it cannot be read ({error.strerror or error})") from error


def _read(source: str, text: str, now: int) -> list[Counted]:
    try:
        if text.lstrip().startswith("{"):
            return [read_counts(text)]
        found = read_metrics(text, now)
    except ValueError as error:
        raise BideError(f"{source}: {error}") from None
    if not found:
        raise BideError(
            f"{source}: there are no counts of requests in it; name the metrics of `bide run --metrics-port` or "
            "`bide worker --metrics-port`"
        )
    return found


async def _ask(url: str) -> str:
    from bide.connection.transport import HttpClient
    from bide.core.http import Request

    try:
        async with HttpClient() as http:
            answer = await http.send(Request("GET", url), timeout=_ANSWER_S)
    except CallError as error:
        raise BideError(f"{error}; is it the address that `--metrics-port` said?") from error
    if answer.status != 200:
        raise BideError(f"{url}: it answered {answer.status}, and no metrics; they are at /metrics")
    return answer.body.decode("utf-8", "replace")


# --- what is said of it ------------------------------------------------------------------------------------


def _print(store: Observed, prices: PriceList) -> None:
    bill = prices.bill(store.monthly)
    of = store.place or store.kind
    processes = f"{store.processes} process" + ("es" if store.processes != 1 else "")
    print_text(f"counted: requests to {of} by {processes} over {span(store.covered_ms)}\n")
    table = new_table("request", *_NUMBERS, right=_NUMBERS)
    for line in bill.lines:
        add_row(
            table,
            line.name,
            f"{store.requests[line.name]:,}",
            f"{whole(line.requests):,}",
            per_million(line.per_million),
            dollars(line.dollars) if line.per_million is not None else "?",
        )
    for allowance in bill.allowances:
        free = f"{whole(allowance.requests):,}"
        add_row(table, "free each month", "", free, "", f"-{dollars(allowance.dollars)}")
    total = f"{sum(store.requests.values()):,}"
    add_row(table, "total", total, f"{whole(bill.requests):,}", "", dollars(bill.dollars))
    print_table(table)
    print_text("")
    for remark in (*_remarks(store, bill), *basis(prices)):
        print_text(f"- {remark}")


def _remarks(store: Observed, bill: Bill) -> list[str]:
    said = [f"counted from {rfc3339(store.since)} to {rfc3339(store.until)}; a month is 30 days of the same"]
    if store.covered_ms < _SHORT_MS:
        said.append(f"{span(store.covered_ms)} says little of a month: look again after an hour or a day")
    if store.covered_ms < (store.until - store.since) * 9 // 10:
        said.append(
            f"something ran for {span(store.covered_ms)} of these {span(store.until - store.since)}; the rest is not "
            "taken for idle time"
        )
    if bill.unpriced:
        said.append(f"no price is known of {', '.join(bill.unpriced)}; give one with --prices")
    return said


def _as_json(store: Observed, prices: PriceList) -> dict[str, Any]:
    bill = prices.bill(store.monthly)
    return {
        "kind": store.kind,
        "store": store.place or None,
        "processes": store.processes,
        "since": rfc3339(store.since),
        "until": rfc3339(store.until),
        "covered_ms": store.covered_ms,
        "prices": prices_as_json(prices),
        "requests": [
            {
                "class": line.name,
                "counted": store.requests[line.name],
                "requests": whole(line.requests),
                "per_million": None if line.per_million is None else float(line.per_million),
                "dollars": exact(line.dollars),
            }
            for line in bill.lines
        ],
        **total_as_json(bill),
        "remarks": [*_remarks(store, bill), *basis(prices)],
    }
