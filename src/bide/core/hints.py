"""Hints: how long a server asks not to be called again.

Retry-After counts on any answer, the freshness of Cache-Control on a good one. A hint that is not written as it
should be is no hint, and none is ever negative. A hint only delays: the caller never calls sooner for it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from bide.core.http import Headers

ZERO = timedelta()

LONGEST = timedelta(days=36_500)
"""What a longer delay is cut to, so that sums with it stay in range. A connection's ``hint_clamp`` is far below."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPTIONAL_SPACE = " \t"


def hold_of(headers: Headers, *, now_ms: int, clamp: timedelta, success: bool) -> timedelta | None:
    """How long the answer with ``headers`` asks to wait, at most ``clamp``; None where it does not.

    The longer of Retry-After and, on a ``success``, what is left of max-age. A ``clamp`` of zero ignores hints.
    """
    if "retry-after" not in headers and "cache-control" not in headers:
        return None  # as nearly every answer is
    asked = [retry_after(headers, now_ms=now_ms), fresh_for(headers) if success else None]
    hold = min(max((delay for delay in asked if delay is not None), default=ZERO), clamp)
    return hold if hold > ZERO else None


def retry_after(headers: Headers, *, now_ms: int) -> timedelta | None:
    """The delay of Retry-After (RFC 9110, 10.2.3): whole seconds, or an HTTP-date in one of its three forms.

    A date is taken relative to the Date of the answer, so that a clock that differs from the server's does no
    harm, else to ``now_ms`` (milliseconds since the epoch); one that has passed is zero. Of a repeated field the
    longest legal value counts, so that nobody who asked is called too soon. None where there is no legal value.
    """
    local = _EPOCH + timedelta(milliseconds=now_ms)
    now = _dated((headers.get("Date") or "").strip(_OPTIONAL_SPACE), local) or local
    delays = [_delay(value.strip(_OPTIONAL_SPACE), now) for value in headers.all("Retry-After")]
    return max((delay for delay in delays if delay is not None), default=None)


def fresh_for(headers: Headers) -> timedelta | None:
    """How much longer the answer is fresh: max-age of Cache-Control less Age (RFC 9111, 4.2 and 5.2.2.1).

    Zero where it is stale already. None without a legal max-age, and with ``no-store`` or ``no-cache``. Of a
    repeated max-age the first counts (4.2.1); it may be quoted. An Age that is no number is ignored.
    """
    directives = _directives(",".join(headers.all("Cache-Control")))
    if "no-store" in directives or "no-cache" in directives:
        return None
    max_age = _seconds(directives.get("max-age", ""))
    if max_age is None:
        return None
    age = _seconds((headers.get("Age") or "").strip(_OPTIONAL_SPACE))
    return max(max_age - (age or ZERO), ZERO)


def _delay(value: str, now: datetime) -> timedelta | None:
    seconds = _seconds(value)
    if seconds is not None:
        return seconds
    until = _dated(value, now)
    return None if until is None else min(max(until - now, ZERO), LONGEST)


_DIGITS = re.compile(r"[0-9]+")


def _seconds(text: str) -> timedelta | None:
    """A delay in whole seconds (RFC 9110, 10.2.3; RFC 9111, 1.2.2), however many digits it has."""
    if not _DIGITS.fullmatch(text):
        return None
    digits = text.lstrip("0")
    return min(timedelta(seconds=int(digits or "0")), LONGEST) if len(digits) <= 11 else LONGEST


# --- HTTP-date ---------------------------------------------------------------------------------------------

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_HTTP_DATE = tuple(
    re.compile(form, re.ASCII)
    for form in (
        rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?P<day>\d\d) {_MONTH} (?P<year>\d{{4}}) {_TIME} GMT",
        rf"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?P<day>\d\d)-{_MONTH}-(?P<year>\d\d) {_TIME} GMT",
        rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {_MONTH} (?P<day>\d\d| \d) {_TIME} (?P<year>\d{{4}})",
    )
)
"""The preferred form, that of RFC 850, and that of C's asctime (RFC 9110, 5.6.7). Whether the name of the day is
that of the date is not looked at."""


def _dated(text: str, now: datetime) -> datetime | None:
    """The instant of an HTTP-date; None for anything else.

    A year of two digits is the one within 50 years of ``now`` (RFC 9110, 5.6.7). A leap second is the second
    after it.
    """
    match = next((match for form in _HTTP_DATE if (match := form.fullmatch(text))), None)
    if match is None:
        return None
    year, second = int(match["year"]), int(match["second"])
    if len(match["year"]) == 2:
        year = now.year + (year - now.year + 49) % 100 - 49
    try:
        minute = datetime(
            year,
            _MONTHS.index(match["month"]) + 1,
            int(match["day"]),
            int(match["hour"]),
            int(match["minute"]),
            tzinfo=UTC,
        )
        return minute + timedelta(seconds=second) if second <= 60 else None
    except (ValueError, OverflowError):
        return None


# --- Cache-Control -----------------------------------------------------------------------------------------

_DIRECTIVE = re.compile(
    r"""([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:=(?:"((?:[^"\\]|\\.)*+)"?|([^\s,"]*)))?""", re.DOTALL
)


def _directives(field: str) -> dict[str, str]:
    """The directives of a Cache-Control field by their names in lower case, each as it was given first."""
    found: dict[str, str] = {}
    for name, quoted, plain in _DIRECTIVE.findall(field):
        found.setdefault(name.lower(), quoted or plain)
    return found
