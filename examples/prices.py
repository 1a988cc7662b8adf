"""A package declared in Python, and an app that uses it inside a program of its own.

bide sample                   in another terminal
python examples/prices.py     one pass; or, in this folder: bide run -a prices:app
"""

import asyncio
import json
import os
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bide import App, Delivery, Package


@dataclass
class Price:
    """What is read of an answer; ``fetched_at`` differs every time, and is no part of the event."""

    symbol: str
    price: Decimal
    fetched_at: str


@dataclass
class PriceChanged:
    """What counts as a change."""

    symbol: str
    price: Decimal


shop = Package("shop", max_concurrent=4)
shop.operation(
    "price",
    get="/price/ELM",
    answer=Price,
    select={"symbol": "s", "price": "data.price", "fetched_at": "at"},
)
price_changed = shop.event("PriceChanged", PriceChanged, public=True)
shop.poll("price", call="price", every="5s", emits=price_changed)


@shop.operation(answer=PriceChanged)
async def dearest(client: Any) -> PriceChanged:
    """An operation in Python asks as it likes through the connection's client, and answers the fields."""
    response = await client.get("/prices")
    prices = json.loads(response.body, parse_float=Decimal)["prices"]
    symbol = max(prices, key=lambda each: prices[each])
    return PriceChanged(symbol, prices[symbol])


dearest_changed = shop.event("DearestChanged", PriceChanged, public=True)
shop.poll("dearest", call=dearest, every="10s", emits=dearest_changed)

app = App("memory://", tick="1s")
app.connect("eu", shop, base_url=os.environ.get("SHOP_URL", "http://127.0.0.1:9000"))


@app.subscribe(price_changed)
@app.subscribe(dearest_changed, name="tell_dearest")
async def tell(delivery: Delivery) -> None:
    """Say what changed. ``previous`` is what the event before said, or None."""
    was = f", was {delivery.previous['price']}" if delivery.previous else ""
    print(f"{delivery.poll}: {delivery.data['symbol']} at {delivery.data['price']}{was}")


async def main() -> None:
    """One pass. ``await app.run(stopping)`` would go on until the event ``stopping`` is set."""
    async with app.open():
        report = await app.tick()
    print(f"{len(report.changed)} of {len(report.claimed)} polls changed")


if __name__ == "__main__":
    asyncio.run(main())
