"""When periodic tasks run: the instants of a rule, each of which happens once.

A rule answers two questions of an instant: which of its own instants was the latest, and which is next. Everything
else (that of many processes one runs it, that an outage is caught up with once) follows from asking for the latest.
Instants are milliseconds since the Unix epoch; those of a cron expression fall on whole seconds.

**Daylight saving.** An expression that names hours follows the clock on the wall: what falls into an hour that comes
twice happens at its first coming only, and what falls into an hour that is skipped happens at the moment after it. An
expression for every hour (``*``) follows the time that passes, and so goes on evenly through both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from bide.core.claim import phase_ms
from bide.core.durations import format_duration, to_ms
from bide.core.names import did_you_mean, nearest
from bide.errors import SettingError

if TYPE_CHECKING:
    from cronsim import CronSim

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of the clock on the wall
_STEP_S = 6 * 3600
"""No zone has two turns of its clock within so many seconds."""

_FIELDS = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_RANGES = ("0 to 59", "0 to 59", "0 to 23", "1 to 31", "1 to 12 or JAN to DEC", "0 to 7 or SUN to SAT")
_WORDS = (
    *("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * SUN",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_RIGHT = 'write minute, hour, day of month, month and day of week, as in "0 9 * * MON"'


@dataclass(frozen=True, slots=True)
class Every:
    """Every ``every_ms``, at ``phase`` within it: the same instants in every process, and for ever."""

    every_ms: int
    phase: int

    @property
    def text(self) -> str:
        """The rule as the store keeps it; another text is another rule."""
        return f"every {format_duration(timedelta(milliseconds=self.every_ms))}"

    def latest_instant(self, now_ms: int) -> int:
        """The last instant that is not after ``now_ms``."""
        return now_ms - (now_ms - self.phase) % self.every_ms

    def next_instant(self, now_ms: int) -> int:
        """The first instant after ``now_ms``."""
        return self.latest_instant(now_ms) + self.every_ms


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression of five fields, or of six with seconds first, by the clock of a time zone."""

    expression: str
    timezone: str
    zone: tzinfo = field(compare=False, repr=False)
    every_hour: bool = field(compare=False, repr=False)

    @property
    def text(self) -> str:
        """The rule as the store keeps it; another text is another rule."""
        return f"cron {self.expression} {self.timezone}"

    def latest_instant(self, now_ms: int) -> int:
        """The last instant that is not after ``now_ms``."""
        now = now_ms // 1000
        return 1000 * (self._latest_passing(now) if self.every_hour else self._latest_on_wall(now))

    def next_instant(self, now_ms: int) -> int:
        """The first instant after ``now_ms``."""
        now = now_ms // 1000
        return 1000 * (self._next_passing(now) if self.every_hour else self._next_on_wall(now))

    # --- by the clock on the wall ----------------------------------------------------------------------------

    def _next_on_wall(self, now: int) -> int:
        walls = self._after(self._shown(now).replace(tzinfo=None))
        return next(at for wall in walls if (at := self._first_at(wall)) > now)

    def _latest_on_wall(self, now: int) -> int:
        shown = self._shown(now)
        upto = shown.replace(tzinfo=None)
        if shown.fold:  # what follows in this hour has happened already, when the hour came first
            upto += _offset(shown.replace(fold=0)) - _offset(shown)
        return next(at for wall in self._upto(upto) if (at := self._first_at(wall)) <= now)

    def _first_at(self, wall: datetime) -> int:
        """When the clock first shows ``wall``; the moment after, where the clock skips it."""
        at = _second(wall.replace(tzinfo=self.zone, fold=0))
        if self._shown(at).replace(tzinfo=None) == wall:
            return at
        before = _second(wall.replace(tzinfo=self.zone, fold=1))
        return self._turn(before, at)

    # --- by the time that passes ---------------------------------------------------------------------------

    def _next_passing(self, now: int) -> int:
        after, offset = now, self._offset_at(now)
        while True:
            found = _of_wall(next(self._after(_wall(after, offset))), offset)
            turn = self._first_turn(after, found, offset)
            if turn is None:
                return found
            after, offset = turn - 1, self._offset_at(turn)

    def _latest_passing(self, now: int) -> int:
        upto, offset = now, self._offset_at(now)
        while True:
            found = _of_wall(next(self._upto(_wall(upto, offset))), offset)
            turn = self._last_turn(found, upto, offset)
            if turn is None:
                return found
            upto, offset = turn - 1, self._offset_at(turn - 1)

    def _first_turn(self, after: int, upto: int, offset: timedelta) -> int | None:
        """The first second behind ``after`` and up to ``upto`` that has another offset."""
        low = after
        while low < upto:
            high = min(low + _STEP_S, upto)
            if self._offset_at(high) != offset:
                return bisect_left(
                    range(high), True, low + 1, high, key=lambda at: self._offset_at(at) != offset
                )
            low = high
        return None

    def _last_turn(self, since: int, upto: int, offset: timedelta) -> int | None:
        """The last second from ``since`` up to ``upto`` before which another offset was in force."""
        high = upto
        while high > since:
            low = max(high - _STEP_S, since)
            if self._offset_at(low) != offset:
                return self._turn(low, high)
            high = low
        return None

    # --- the clock of the zone -------------------------------------------------------------------------------

    def _shown(self, at: int) -> datetime:
        return datetime.fromtimestamp(at, self.zone)

    def _offset_at(self, at: int) -> timedelta:
        return _offset(self._shown(at))

    def _turn(self, low: int, high: int) -> int:
        """The second between the two at which the offset of ``high`` came into force."""
        latest = self._offset_at(high)
        return bisect_left(range(high), True, low + 1, high, key=lambda at: self._offset_at(at) == latest)

    def _after(self, wall: datetime) -> Iterator[datetime]:
        return _simulated(self.expression, wall)

    def _upto(self, wall: datetime) -> Iterator[datetime]:
        return _simulated(self.expression, wall + timedelta(seconds=1), reverse=True)


Rule = Every | Cron


def every_rule(name: str, every: timedelta) -> Every:
    """The rule of a task that runs ``every`` so often; its phase is a hash of the task's name."""
    every_ms = to_ms(every)
    return Every(every_ms, phase_ms(name, every_ms))


def cron_rule(expression: str, timezone: str = "UTC") -> Cron:
    """The rule of a cron expression in a time zone (an IANA name).

    Raises :class:`~bide.errors.SettingError`, of ``cron`` or ``timezone``, with one next step behind its semicolon.
    """
    shown = " ".join(expression.upper().split())
    simulated = _checked(shown, expression)
    every_hour = len(simulated.hours) == 24
    return Cron(shown, timezone, zone_named(timezone), every_hour)


def _checked(shown: str, written: str) -> CronSim:
    from cronsim import CronSimError

    if (meant := _NICKNAMES.get(written.strip().lower())) is not None:
        raise SettingError("cron", f'{written!r} is a nickname, which is not read; write "{meant}"')
    fields = shown.split()
    if len(fields) not in {5, 6}:
        raise SettingError("cron", f"{written!r} has {_counted(len(fields))}, not five or six; {_RIGHT}")
    try:
        simulated = _simulated(shown, datetime(2000, 1, 1))  # noqa: DTZ001 - any day on the wall
    except CronSimError as error:
        raise SettingError("cron", _why(fields, str(error), written)) from None
    if next(simulated, None) is None:
        raise SettingError("cron", f"{written!r} never comes; name a day that some month has")
    return simulated


def _why(fields: list[str], error: str, written: str) -> str:
    name = error.removeprefix("Bad ")
    index = _FIELDS.index(name)
    value = fields[index - 6 + len(fields)]
    words = [part for part in value.replace("-", ",").replace("/", ",").split(",") if part.isalpha()]
    near = [did_you_mean(word, _WORDS) for word in words if word not in _WORDS]
    step = next((suggestion for suggestion in near if suggestion), _RIGHT)
    if name == "day-of-month" and not words and index == 3 and value.isdigit() and 1 <= int(value) <= 31:
        return f"{written!r} never comes; name a day that some month has"
    return f"{written!r} is no cron expression: its {name} cannot be {value!r} ({_RANGES[index]}); {step}"


def _counted(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"


def zone_named(name: str) -> tzinfo:
    """The time zone of an IANA name. Raises :class:`~bide.errors.SettingError`, of ``timezone``."""
    if name == "UTC":  # known also where there is no database of time zones
        return UTC
    from zoneinfo import ZoneInfo, available_timezones

    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # OSError: the name of a folder of the database
        known = available_timezones()
    if not known:
        raise SettingError(
            "timezone", "this machine has no database of time zones; run pip install tzdata"
        ) from None
    cities = {zone.rpartition("/")[2]: zone for zone in sorted(known, reverse=True)}
    near = nearest(name, known) or cities.get(nearest(name, cities) or "")
    step = f"did you mean {near!r}?" if near else 'write an IANA name such as "Europe/Berlin"'
    raise SettingError("timezone", f"there is no time zone {name!r}; {step}")


def _simulated(expression: str, wall: datetime, *, reverse: bool = False) -> CronSim:
    from cronsim import CronSim

    return CronSim(expression, wall, reverse=reverse)


def _offset(shown: datetime) -> timedelta:
    offset = shown.utcoffset()
    assert offset is not None
    return offset


def _second(aware: datetime) -> int:
    return (aware - _EPOCH.replace(tzinfo=UTC)) // timedelta(seconds=1)


def _wall(at: int, offset: timedelta) -> datetime:
    return _EPOCH + timedelta(seconds=at) + offset


def _of_wall(wall: datetime, offset: timedelta) -> int:
    return (wall - offset - _EPOCH) // timedelta(seconds=1)
