"""Prices of timber, watched. `bide demo` wrote this file and ran it; change it and run it again.

Operations say how the API is asked and how its answer is read, polls how often, events what counts as a
change, and subscribers who hears of it.
"""

import json
import os
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from bide import App, Delivery, Package

# `bide sample` serves this API on port 9000; the demo has its own on a free one.
API = os.environ.get("DEMO_API", "http://127.0.0.1:9000")

shop = Package("shop", max_concurrent=4)
price_changed = shop.event("PriceChanged", {"symbol": str, "price": Decimal}, public=True)

for symbol, every in (("OAK", "1s"), ("ELM", "2s"), ("FIR", "3s")):
    name = symbol.lower()
    shop.operation(
        name,
        get=f"/price/{symbol}",
        answer={"symbol": str, "price": Decimal, "fetched_at": str},
        select={"symbol": "s", "price": "data.price", "fetched_at": "at"},
    )
    shop.poll(name, call=name, every=every, emits=price_changed)


@shop.operation(answer={"symbol": str, "price": Decimal})
async def cheapest(client: Any) -> dict[str, Any]:
    """An operation in Python: asks by itself, and answers the fields."""
    response = await client.get("/prices")
    prices = json.loads(response.body, parse_float=Decimal)["prices"]
    symbol = min(prices, key=lambda each: prices[each])
    return {"symbol": symbol, "price": prices[symbol]}


cheapest_changed = shop.event("CheapestChanged", {"symbol": str, "price": Decimal}, public=True)
shop.poll("cheapest", call=cheapest, every="2s", emits=cheapest_changed)

app = App("sqlite:///bide.db", tick="1s", folder=Path(__file__).parent)
app.connect("eu", shop, base_url=API)

# A webhook, signed; the secret comes from the environment and is never shown.
app.subscribe(price_changed, name="audit", webhook=f"{API}/hook", secret="${AUDIT_SECRET}")

# A command: it gets the event on its standard input.
app.subscribe(price_changed, name="ledger", command=[sys.executable, "ledger.py"], ordered=True)

latest: dict[str, Decimal] = {}


@app.subscribe(price_changed)
def notice(delivery: Delivery) -> None:
    """A Python function: it gets the delivery as an argument."""
    latest[delivery.data["symbol"]] = delivery.data["price"]


@app.subscribe(cheapest_changed)
async def bargain(delivery: Delivery) -> None:
    """An async one, of another event."""
    latest["cheapest"] = delivery.data["price"]
