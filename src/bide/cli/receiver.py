"""A webhook receiver that checks signatures, for the demo and ``bide sample``.

It verifies by the Standard Webhooks scheme on its own, without the code that signs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass

from bide.cli.loopback import Answer, Asked
from bide.clock import Clock

_TOLERANCE_S = 300
"""How far a delivery's timestamp may be from now; older ones could be replays."""


@dataclass(frozen=True, slots=True)
class Received:
    """A delivery that was taken. ``verified``: its signature was checked (there is a secret) and right."""

    delivery: str
    event: str
    payload: str
    verified: bool
    again: bool


class Receiver:
    """Takes webhooks at any path; ``secret`` None takes unsigned ones. ``heard`` is told of each."""

    def __init__(
        self, clock: Clock, *, secret: str | None = None, heard: Callable[[Received], None] | None = None
    ) -> None:
        self._clock = clock
        self._secret = secret
        self._heard = heard
        self._seen: set[str] = set()
        self.verified = 0
        self.refused = 0
        self.again = 0

    def answer(self, asked: Asked) -> Answer:
        """204 for a delivery that was taken, new or known; 401 where the signature is wrong."""
        delivery = asked.headers.get("webhook-id")
        if asked.method != "POST" or delivery is None:
            return _refusal(400, "a webhook is a POST with a webhook-id")
        if self._secret is not None and not is_signed(asked, self._secret, self._clock.utc_ms() // 1000):
            self.refused += 1
            return _refusal(401, "the signature does not fit")
        try:
            envelope = json.loads(asked.body)
            event, payload = str(envelope["type"]), json.dumps(envelope["data"])
        except (ValueError, KeyError, TypeError):
            return _refusal(400, "the body is no event")
        again = delivery in self._seen
        self._seen.add(delivery)
        self.again += again
        self.verified += self._secret is not None
        if self._heard is not None:
            self._heard(Received(delivery, event, payload, self._secret is not None, again))
        return Answer(204)


def is_signed(asked: Asked, secret: str, now_s: int) -> bool:
    """Whether one of the ``v1`` signatures is right for the id, the timestamp and the body, and not too old."""
    delivery, stamp = asked.headers.get("webhook-id"), asked.headers.get("webhook-timestamp")
    if not delivery or not stamp or not stamp.isdecimal() or abs(now_s - int(stamp)) > _TOLERANCE_S:
        return False
    signed = f"{delivery}.{stamp}.".encode() + asked.body
    right = base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()
    given = (asked.headers.get("webhook-signature") or "").split()
    return any(hmac.compare_digest(f"v1,{right}".encode(), one.encode("latin-1")) for one in given)


def _key(secret: str) -> bytes:
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def _refusal(status: int, reason: str) -> Answer:
    return Answer(status, json.dumps({"error": reason}).encode(), (("content-type", "application/json"),))
