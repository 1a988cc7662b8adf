"""Durations: how they are read, shown and counted. The one parser behind every setting that is one."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction

from bide.errors import SettingError

SHORTEST = timedelta(milliseconds=1)
"""Anything shorter, but not zero, is refused: stores and timers count whole milliseconds."""

LONGEST = timedelta(days=3650)
"""Ten years. Longer ones are slips (seconds for milliseconds) and come close to what timers can hold."""

Duration = timedelta | float | str
"""How callers may write a duration: a ``timedelta``, a number of seconds, or text such as ``"1h30m"``."""

_UNITS = (
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("m", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
    ("ms", timedelta(milliseconds=1)),
)
"""Units of the text form, the largest first: the order in which a compound is written."""

_MICROSECOND = timedelta(microseconds=1)
_LONGEST_TEXT = 100
_TEXT = re.compile(r"\s*".join(rf"(?:([0-9]+(?:\.[0-9]+)?)\s*{unit}(?![a-z]))?" for unit, _ in _UNITS))
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_RIGHT = 'write for example "500ms", "5s", "1h30m" or a number of seconds'


def parse_duration(value: object, setting: str, *, zero: bool = False) -> timedelta:
    """Read ``value`` as a duration: a ``timedelta``, seconds as a number, or text.

    Text is numbers with units, the largest unit first and each at most once: ``d``, ``h``, ``m``, ``s``,
    ``ms`` (``"100ms"``, ``"1.5s"``, ``"1h30m"``). The answer is rounded to microseconds.

    ``zero`` allows a duration of 0, for settings where it means something and makes no loop spin.
    Raises :class:`~bide.errors.SettingError`, naming ``setting``, for anything else: truth values, NaN,
    infinities, negatives, zero unless allowed, less than a millisecond, more than ten years.
    """
    match value:
        case bool() | None:
            raise SettingError(setting, f"{value!r} is not a duration; {_RIGHT}")
        case timedelta():
            return _within_bounds(Fraction(value // _MICROSECOND), value, setting, zero=zero)
        case int():
            return _within_bounds(Fraction(value) * 1_000_000, value, setting, zero=zero)
        case float():
            if not math.isfinite(value):
                raise SettingError(setting, f"{value!r} is not a finite duration; {_RIGHT}")
            return _within_bounds(Fraction(value) * 1_000_000, value, setting, zero=zero)
        case str():
            return _within_bounds(_read(value, setting), value, setting, zero=zero)
        case _:
            raise SettingError(setting, f"{_shown(value)} is not a duration; {_RIGHT}")


def parse_ms(value: object, setting: str, *, zero: bool = False) -> timedelta:
    """Read ``value`` as a whole number of milliseconds: the ``…_ms`` spelling of a setting.

    Bounds and errors are those of :func:`parse_duration`; text and fractions are refused.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise SettingError(
            setting, f"{_shown(value)} is not a whole number of milliseconds; write for example 500"
        )
    return _within_bounds(Fraction(value) * 1000, value, setting, zero=zero, unit=" ms")


def format_duration(duration: timedelta) -> str:
    """``duration`` as text that :func:`parse_duration` reads back: ``"1h30m"``, ``"1.5ms"``, ``"0s"``."""
    if duration < timedelta():
        return f"-{format_duration(-duration)}"
    parts = []
    left = duration
    for unit, size in _UNITS[:-1]:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    if left:
        milliseconds, rest = divmod(left // _MICROSECOND, 1000)
        parts.append(f"{milliseconds}.{rest:03d}".rstrip("0").rstrip(".") + "ms")
    return "".join(parts) or "0s"


def to_ms(duration: timedelta) -> int:
    """``duration`` in whole milliseconds, rounded up, so that no wait is shortened and none becomes zero."""
    return -(-duration // timedelta(milliseconds=1))


def _read(text: str, setting: str) -> Fraction:
    """Microseconds of the text form."""
    bare = text.strip()
    if not bare or len(bare) > _LONGEST_TEXT:
        raise SettingError(setting, f"{_shown(text)} is not a duration; {_RIGHT}")
    if bare.startswith("-") and (_TEXT.fullmatch(bare[1:]) or _NUMBER.fullmatch(bare[1:])):
        raise SettingError(setting, f"{_shown(text)} is negative; {_RIGHT}")
    if _NUMBER.fullmatch(bare):
        raise SettingError(setting, f'{_shown(text)} has no unit; write "{bare}s" for seconds')
    found = _TEXT.fullmatch(bare)
    if not found:
        raise SettingError(setting, f"{_shown(text)} is not a duration; {_RIGHT}")
    counts = zip(_UNITS, found.groups(), strict=True)
    return sum((Fraction(count) * (size // _MICROSECOND) for (_, size), count in counts if count), Fraction())


def _within_bounds(
    microseconds: Fraction, value: object, setting: str, *, zero: bool, unit: str = ""
) -> timedelta:
    """The duration, where it may be one: compared before it becomes a ``timedelta``, which could overflow."""
    shown = f"{_shown(value)}{unit}"
    if microseconds < 0:
        raise SettingError(setting, f"{shown} is negative; {_RIGHT}")
    if microseconds == 0:
        if zero:
            return timedelta()
        raise SettingError(setting, f"{shown} is zero; the least is 1ms")
    if microseconds < SHORTEST // _MICROSECOND:
        raise SettingError(setting, f"{shown} is shorter than a millisecond; the least is 1ms")
    if microseconds > LONGEST // _MICROSECOND:
        raise SettingError(setting, f"{shown} is too long; the most is 3650d (ten years)")
    return timedelta(microseconds=round(microseconds))


def _shown(value: object) -> str:
    """``value`` as an error shows it: as the user wrote it, and never long."""
    match value:
        case timedelta():
            return format_duration(value)
        case int() if not -(10**20) < value < 10**20:
            return "a number of more than 20 digits"
        case _:
            return _clipped(repr(value))


def _clipped(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
