"""Instants and spans as people write and read them. Everything is whole milliseconds since the Unix epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bide.core.durations import parse_duration, to_ms
from bide.errors import SettingError

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def rfc3339(at: int | None) -> str | None:
    """An instant as RFC 3339 in UTC with milliseconds, or None where there is none."""
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_of_day(at: int) -> str:
    """The local time of day of an instant, to the second."""
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime("%H:%M:%S")


def span(ms: float) -> str:
    """A length of time in at most two units: ``"850ms"``, ``"12s"``, ``"3m20s"``, ``"4d"``."""
    whole = max(0, round(ms))
    if whole < 1000:
        return f"{whole}ms" if whole else "0s"
    for index, (unit, size) in enumerate(_UNITS):
        count, rest = divmod(whole, size)
        if not count:
            continue
        if index + 1 == len(_UNITS):
            return f"{count}{unit}"
        below, below_size = _UNITS[index + 1]
        return f"{count}{unit}{rest // below_size}{below}" if rest // below_size else f"{count}{unit}"
    return "0s"


def seconds_of(seconds: float) -> str:
    """A length of time as people read it while it passes: ``"850ms"``, ``"1.9s"``, ``"42s"``, ``"3m20s"``."""
    return f"{seconds:.1f}s" if 0.9995 <= seconds < 9.95 else span(seconds * 1000)


def relative(at: int | None, now: int) -> str:
    """``at`` seen from ``now``: ``"12s ago"``, ``"in 3m20s"``, ``"now"``; a dash where there is none."""
    if at is None:
        return "-"
    if abs(at - now) < 1000:
        return "now"
    return f"{span(now - at)} ago" if at < now else f"in {span(at - now)}"


def parse_since(text: str, now: int) -> int:
    """``"2h"`` (so long ago) or an instant of RFC 3339 with its offset.

    Raises :class:`SettingError` where it is neither, or lies ahead of ``now``.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return now - to_ms(_ago(text))
    if moment.tzinfo is None:
        raise SettingError("--since", f"{text!r} has no offset from UTC; write it as {text}Z")
    at = round(moment.timestamp() * 1000)
    if at > now:
        raise SettingError(
            "--since",
            f"{text!r} lies in the future; give an earlier instant",
        )
    return at


def _ago(text: str) -> timedelta:
    try:
        return parse_duration(text, "--since")
    except SettingError as error:
        raise SettingError(
            "--since", f'{text!r} is neither how long ago ("2h") nor an instant ("2026-01-31T12:00:00Z")'
        ) from error
