"""What a delivery carries, how a webhook is signed, and what a subscriber's response means.

Signatures are those of Standard Webhooks 1.0 (symmetric, ``v1``): HMAC-SHA256 over ``id.timestamp.body``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from bide.core.canonical import canonical
from bide.core.hints import retry_after
from bide.core.http import Headers
from bide.errors import SettingError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PREFIX = "whsec_"


@dataclass(frozen=True, slots=True)
class Delivered:
    """The subscriber took it."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The subscriber wants no more of it (410): its subscription ends."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The subscriber did not take it now; ``retry_after`` is a delay that it asked for, not yet clamped."""

    error: str
    retry_after: timedelta | None = None


Judgement = Delivered | Gone | Refused


def envelope(
    *,
    name: str,
    event_id: str,
    seq: int,
    created_at: int,
    connection: str,
    poll: str,
    occurred_at: int | None,
    payload: str,
    previous: str | None,
) -> str:
    """The JSON text that a subscriber gets for an event.

    ``name`` is the event's full type, ``poll`` the poll's full name. Instants are milliseconds since the epoch.
    ``payload`` and ``previous`` are canonical JSON and go in as they are, so that no number is read and
    written again on the way; ``previous`` None: there was no event before, or it is no longer kept.
    """
    members = {
        "type": canonical(name),
        "id": canonical(event_id),
        "seq": str(seq),
        "timestamp": _instant(created_at),
        "connection": canonical(connection),
        "poll": canonical(poll),
        "occurred_at": "null" if occurred_at is None else _instant(occurred_at),
        "data": payload,
        "previous": "null" if previous is None else previous,
    }
    return "{" + ",".join(f'"{member}":{text}' for member, text in members.items()) + "}"


def _instant(at_ms: int) -> str:
    at = _EPOCH + timedelta(milliseconds=at_ms)
    return f'"{at.replace(tzinfo=None).isoformat(timespec="milliseconds")}Z"'


def sign(secret: str, delivery_id: str, timestamp_s: int, body: str | bytes) -> str:
    """The ``webhook-signature`` of a webhook: ``"v1,"`` and the Base64 of the HMAC.

    ``timestamp_s`` is in whole seconds since the epoch, as in ``webhook-timestamp``; ``body`` is what is sent,
    text as UTF-8. A ``secret`` of ``whsec_`` and Base64 is decoded, any other is used as its UTF-8. Raises
    ``SettingError``, which does not show the secret, for an empty one and one that is not Base64.
    """
    content = body.encode() if isinstance(body, str) else body
    signed = f"{delivery_id}.{timestamp_s}.".encode() + content
    return "v1," + base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()


def verify(secret: str, delivery_id: str, timestamp_s: int, body: str | bytes, signatures: str) -> bool:
    """Whether one of the ``signatures`` of a webhook (parted by spaces, as while a secret is replaced) is ours.

    Whether ``timestamp_s`` is recent is the receiver's to say; without that check a webhook can be sent again.
    """
    ours = sign(secret, delivery_id, timestamp_s, body).encode()
    return any(hmac.compare_digest(ours, theirs.encode()) for theirs in signatures.split())


def _key(secret: str) -> bytes:
    key = secret.encode()
    if secret.startswith(_PREFIX):
        encoded = secret.removeprefix(_PREFIX)
        try:
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise SettingError("secret", f'what follows "{_PREFIX}" is not Base64; copy it whole') from None
    if not key:
        raise SettingError("secret", "is empty, and would sign nothing; set it, or leave the setting out")
    return key


def judge_response(status: int, headers: Headers, now_ms: int) -> Judgement:
    """What a webhook's response means: 2xx took it, 410 wants no more, anything else is tried again.

    ``now_ms`` is the present instant, for a Retry-After that is a date and comes without a Date.
    """
    if 200 <= status < 300:
        return Delivered()
    if status == 410:
        return Gone()
    return Refused(f"answered {_named(status)}", retry_after(headers, now_ms=now_ms))


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
