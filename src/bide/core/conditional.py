"""Conditional requests: which validators to keep, when to send them, and how.

A validator is opaque. It is kept and sent back byte for byte, ``W/`` and quotes and all (RFC 9110, 8.8.3 and
13.1.2); nothing in here looks inside one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from bide.core.http import Headers

DISTRUST = timedelta(days=1)
"""Age of the last unconditional answer from which validators are not used, so that a server that answers 304
for ever, or loses track of its tags, hides a change for no longer than this."""

_SENDABLE = re.compile(r"[ -~]{1,1024}")
"""What every client can send back as it came: printable ASCII of a sane length. Anything else is not kept,
because a request that cannot be sent, or that the server refuses for its size, would fail each time."""

_ANY = "*"
"""As an If-None-Match this would match whatever the server has, and hide every change (RFC 9110, 13.1.2)."""


@dataclass(frozen=True, slots=True)
class Validators:
    """The ETag and Last-Modified of one answer, as they came. They are replaced together."""

    etag: str | None = None
    last_modified: str | None = None


def validators_of(headers: Headers) -> Validators:
    """The validators of a whole answer (200).

    They replace those kept as a unit: one that this answer lacks is gone. A field given twice with different
    values is not kept.
    """
    return Validators(etag=_etag(headers), last_modified=_only(headers, "Last-Modified"))


def updated(kept: Validators, headers: Headers) -> Validators:
    """``kept`` after a 304: the validators that it carries are taken over, others stay (RFC 9111, 4.3.4)."""
    etag, last_modified = headers.all("etag"), headers.all("last-modified")
    if etag in ([], [kept.etag]) and last_modified in ([], [kept.last_modified]):
        return kept  # as nearly every 304 says
    return Validators(
        etag=_etag(headers) or kept.etag,
        last_modified=_only(headers, "Last-Modified") or kept.last_modified,
    )


def conditional_headers(validators: Validators) -> tuple[tuple[str, str], ...]:
    """The header fields that make a request conditional; empty where there is no validator.

    Both are sent where both are known: a server that knows ETags ignores the date (RFC 9110, 13.1.3), one
    that does not needs it.
    """
    etag, last_modified = validators.etag, validators.last_modified
    by_etag = () if etag is None else (("If-None-Match", etag),)
    return by_etag if last_modified is None else (*by_etag, ("If-Modified-Since", last_modified))


def may_be_conditional(
    validators: Validators,
    *,
    kept_declaration: str | None,
    declaration: str,
    validated_ago: timedelta | None,
    distrust: timedelta = DISTRUST,
) -> bool:
    """Whether a call may be conditional.

    Only where there is a validator, where it was kept under the present ``declaration`` (a 304 says that the
    *body* is the same, which helps only if it is still read the same way), and where the last unconditional
    answer is younger than ``distrust``. ``validated_ago`` None: there was none; a negative age (the clock was
    set back) is no age to rely on.
    """
    if validated_ago is None or (validators.etag is None and validators.last_modified is None):
        return False
    return kept_declaration == declaration and timedelta() <= validated_ago < distrust


def _etag(headers: Headers) -> str | None:
    etag = _only(headers, "ETag")
    return None if etag == _ANY else etag


def _only(headers: Headers, name: str) -> str | None:
    """The one value of ``name`` that can be sent back, or None."""
    values = headers.all(name)
    if not values or values.count(values[0]) != len(values):
        return None
    value = values[0]
    return value if _SENDABLE.fullmatch(value) else None
