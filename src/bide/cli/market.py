"""The sample API: prices of a few kinds of timber that move by themselves, with ETags and a release now and then.

    GET /price, /price/OAK   one price (OAK where none is named)
    GET /prices              all of them
    GET /releases/latest     the last release of a program that nobody wrote

Prices begin to move when somebody first looks, and are moved by what time has passed when somebody looks again,
so that it costs nothing while nobody does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from bide.cli.instants import rfc3339
from bide.cli.loopback import Answer, Asked
from bide.clock import Clock

DEFAULT_PORT = 9000
_START = {"OAK": 10_150, "ELM": 6_420, "ASH": 8_875, "FIR": 3_310}
_LIVELINESS = {"OAK": 0.8, "ELM": 0.4, "ASH": 0.15, "FIR": 0.05}
"""The chance of each price to move in a step."""
_RELEASE_CHANCE = 0.04
_MOST_STEPS = 1000
"""Steps made up for at most after nobody looked for long."""


@dataclass(slots=True)
class _Quote:
    cents: int
    moves: int = 0


class Market:
    """Prices that wander, one step every ``step_s`` seconds; all chance and time come from ``clock``."""

    def __init__(self, clock: Clock, *, step_s: float = 3.0) -> None:
        self._clock = clock
        self._step_s = step_s
        self._stepped_at: float | None = None
        self._quotes = {symbol: _Quote(cents) for symbol, cents in _START.items()}
        self._release = 0

    def answer(self, asked: Asked) -> Answer:
        """The answer to one request; conditional ones are answered 304 where nothing moved."""
        if asked.method not in ("GET", "HEAD"):
            return _error(405, f"{asked.method} is not served here")
        self._move()
        match asked.path.strip("/").split("/"):
            case ["price"]:
                return self._price("OAK", asked)
            case ["price", symbol] if symbol.upper() in self._quotes:
                return self._price(symbol.upper(), asked)
            case ["price", symbol]:
                return _error(404, f"no symbol {symbol}; there are {', '.join(self._quotes)}")
            case ["prices"]:
                return self._prices(asked)
            case ["releases", "latest"]:
                return self._latest_release(asked)
        return _error(404, "try /price, /price/ELM, /prices or /releases/latest")

    def _move(self) -> None:
        now = self._clock.monotonic()
        if self._stepped_at is None:
            self._stepped_at = now
        steps = int((now - self._stepped_at) / self._step_s)
        self._stepped_at += steps * self._step_s
        for _ in range(min(steps, _MOST_STEPS)):
            for symbol, quote in self._quotes.items():
                if self._clock.draw() < _LIVELINESS[symbol]:
                    change = 5 * (1 + int(self._clock.draw() * 20))
                    up = self._clock.draw() < 0.5 or quote.cents < 1000
                    quote.cents += change if up else -change
                    quote.moves += 1
            self._release += self._clock.draw() < _RELEASE_CHANCE

    def _price(self, symbol: str, asked: Asked) -> Answer:
        quote = self._quotes[symbol]
        body = f'{{"s": "{symbol}", "data": {{"price": {_decimal(quote.cents)}}}, "at": "{self._now()}"}}'
        return _tagged(asked, f"{symbol}-{quote.cents}", body)

    def _prices(self, asked: Asked) -> Answer:
        prices = ", ".join(f'"{symbol}": {_decimal(quote.cents)}' for symbol, quote in self._quotes.items())
        tag = "-".join(str(quote.cents) for quote in self._quotes.values())
        return _tagged(asked, tag, f'{{"prices": {{{prices}}}, "at": "{self._now()}"}}')

    def _latest_release(self, asked: Asked) -> Answer:
        version = f"v1.{self._release}.0"
        body = {"tag_name": version, "html_url": f"http://127.0.0.1/releases/{version}"}
        return _tagged(asked, version, json.dumps(body))

    def _now(self) -> str | None:
        return rfc3339(self._clock.utc_ms())


def _decimal(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _tagged(asked: Asked, tag: str, body: str) -> Answer:
    """A weak validator (RFC 9110, 8.8.1): two answers of one price differ in the moment they were asked."""
    etag = f'W/"{tag}"'
    if etag in (asked.headers.get("if-none-match") or ""):
        return Answer(304, headers=(("etag", etag),))
    return Answer(200, body.encode(), (("content-type", "application/json"), ("etag", etag)))


def _error(status: int, reason: str) -> Answer:
    return Answer(status, json.dumps({"error": reason}).encode(), (("content-type", "application/json"),))
