"""Rates and shares as people write them: ``100000/day``, ``500/5m``, ``10%``. Read exactly."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

import typer

from bide.core.durations import parse_duration
from bide.core.names import did_you_mean
from bide.errors import SettingError

_DAY = timedelta(days=1)
_PERIODS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": _DAY,
    "month": timedelta(days=30),
}
_NUMBER = re.compile(r"[0-9][0-9_,]*(?:\.[0-9]+)?")
_MOST = Decimal(10) ** 15
"""More a day than any store takes: such a number is a slip."""


def a_day(text: str, flag: str) -> Decimal:
    """``"100000/day"``, ``"3/second"`` or ``"500/5m"`` as a number a day. Raises ``typer.BadParameter``."""
    number, slash, period = (part.strip() for part in text.partition("/"))
    if not slash:
        if number in {"0", "none"}:
            return Decimal(0)
        raise _wrong(flag, f"{text!r} has no period", f"Write for example {number or '1000'}/day.")
    if not _NUMBER.fullmatch(number):
        raise _wrong(flag, f"{number!r} is not a number", "Write for example 100000/day.")
    count = Decimal(number.replace("_", "").replace(",", ""))
    found = count * _microseconds(_DAY) / _microseconds(_period(period, flag))
    if found > _MOST:
        raise _wrong(flag, f"{text!r} is more than any store takes", "Write for example 100000/day.")
    return found


def share(text: str, flag: str) -> Decimal:
    """``"10%"`` or ``"0.1"`` as a number from 0 to 1. Raises ``typer.BadParameter``."""
    bare = text.strip()
    number = bare.removesuffix("%").strip()
    if not _NUMBER.fullmatch(number):
        raise _wrong(flag, f"{text!r} is not a share", "Write for example 10%.")
    found = Decimal(number.replace("_", "").replace(",", "")) / (100 if bare.endswith("%") else 1)
    if found > 1:
        step = f"Write {number}%." if not bare.endswith("%") and found <= 100 else "Write at most 100%."
        raise _wrong(flag, f"{text!r} is more than everything", step)
    return found


def _period(text: str, flag: str) -> timedelta:
    if text in _PERIODS:
        return _PERIODS[text]
    try:
        return parse_duration(text, flag)
    except SettingError:
        step = did_you_mean(text, _PERIODS) or f"Write {', '.join(_PERIODS)} or a duration such as 5m."
        raise _wrong(flag, f"{text!r} is no period", step) from None


def _microseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)


def _wrong(flag: str, what: str, step: str) -> typer.BadParameter:
    return typer.BadParameter(f"{what}. {step}", param_hint=flag)
