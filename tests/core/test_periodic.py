"""Rules of periodic tasks: their instants, daylight saving, and what is said of rules that are none."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bide.core.periodic import Cron, Every, Rule, cron_rule, every_rule
from bide.errors import SettingError

HOUR_MS = 3_600_000
ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu"),
    *("America/Santiago", "Pacific/Apia"),
)
INSTANTS = st.integers(
    int(datetime(2010, 1, 1, tzinfo=UTC).timestamp()), int(datetime(2035, 1, 1, tzinfo=UTC).timestamp())
).map(lambda second: second * 1000)


def ms(text: str) -> int:
    """An instant with an offset, such as ``2026-03-29T03:00+02:00``."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def shown(rule: Rule, since: str, count: int) -> list[str]:
    """The next ``count`` instants after ``since``, as the clock of the rule's zone shows them."""
    zone = rule.zone if isinstance(rule, Cron) else UTC
    at, found = ms(since), []
    for _ in range(count):
        at = rule.next_instant(at)
        found.append(datetime.fromtimestamp(at / 1000, zone).strftime("%m-%d %H:%M%z"))
    return found


# --- every so often -------------------------------------------------------------------------------------------


@given(st.text(), st.timedeltas(timedelta(seconds=1), timedelta(days=400)), INSTANTS)
def test_instants_of_an_interval_are_that_far_apart_and_the_same_for_everybody(
    name: str, every: timedelta, now: int
) -> None:
    rule = every_rule(name, every)
    latest, upcoming = rule.latest_instant(now), rule.next_instant(now)
    assert latest <= now < upcoming == latest + rule.every_ms
    assert rule.latest_instant(latest) == latest
    assert rule.next_instant(latest) == upcoming
    assert every_rule(name, every) == rule


def test_intervals_of_several_tasks_do_not_all_begin_in_the_same_moment() -> None:
    phases = {every_rule(f"task_{number}", timedelta(hours=1)).phase for number in range(100)}
    assert len(phases) == 100
    assert max(phases) - min(phases) > HOUR_MS // 2


def test_a_rule_as_text_says_which_rule_it_is() -> None:
    assert every_rule("tidy", timedelta(minutes=90)).text == "every 1h30m"
    assert cron_rule("0  9 * * mon", "Europe/Berlin").text == "cron 0 9 * * MON Europe/Berlin"


# --- cron, by the clock on the wall -----------------------------------------------------------------------------


def test_what_falls_into_the_hour_that_comes_twice_happens_once() -> None:
    assert shown(cron_rule("30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00+02:00", 3) == [
        *("10-25 02:30+0200", "10-26 02:30+0100", "10-27 02:30+0100"),
    ]
    assert shown(cron_rule("30 1 * * *", "America/New_York"), "2026-10-31T12:00-04:00", 2) == [
        *("11-01 01:30-0400", "11-02 01:30-0500"),
    ]


def test_what_falls_into_the_hour_that_is_skipped_happens_at_its_end() -> None:
    assert shown(cron_rule("30 2 * * *", "Europe/Berlin"), "2026-03-28T12:00+01:00", 2) == [
        *("03-29 03:00+0200", "03-30 02:30+0200"),
    ]
    assert shown(cron_rule("30 2 * * *", "America/New_York"), "2026-03-07T12:00-05:00", 2) == [
        *("03-08 03:00-0400", "03-09 02:30-0400"),
    ]


def test_several_instants_of_a_skipped_hour_are_caught_up_with_once() -> None:
    rule = cron_rule("*/15 2-3 * * *", "Europe/Berlin")
    assert shown(rule, "2026-03-29T00:00+01:00", 4) == [
        *("03-29 03:00+0200", "03-29 03:15+0200", "03-29 03:30+0200", "03-29 03:45+0200"),
    ]


def test_seconds_make_no_difference_to_daylight_saving() -> None:
    rule = cron_rule("15 30 2 * * *", "Europe/Berlin")
    assert shown(rule, "2026-03-28T12:00+01:00", 1) == ["03-29 03:00+0200"]
    assert shown(rule, "2026-10-24T12:00+02:00", 2) == ["10-25 02:30+0200", "10-26 02:30+0100"]


def test_in_the_second_coming_of_an_hour_the_latest_instant_is_that_of_the_first() -> None:
    rule = cron_rule("30 2 * * *", "Europe/Berlin")
    first = ms("2026-10-25T02:30+02:00")
    for second in ("2026-10-25T02:10+01:00", "2026-10-25T02:30+01:00", "2026-10-25T02:59+01:00"):
        assert rule.latest_instant(ms(second)) == first


def test_a_rule_for_every_hour_goes_on_evenly_through_both() -> None:
    rule = cron_rule("20 * * * *", "Europe/Berlin")
    for since in ("2026-03-28T20:00+01:00", "2026-10-24T20:00+02:00"):
        at = ms(since)
        for _ in range(12):
            upcoming = rule.next_instant(at)
            assert at == ms(since) or upcoming - at == HOUR_MS
            at = upcoming
    assert shown(rule, "2026-10-25T01:30+02:00", 3) == [
        *("10-25 02:20+0200", "10-25 02:20+0100", "10-25 03:20+0100"),
    ]


EXPRESSIONS = st.builds(
    "{} {} {} {} {}".format,
    st.one_of(st.integers(0, 59).map(str), st.sampled_from(["*", "*/7", "*/30", "5,50"])),
    st.one_of(st.integers(0, 23).map(str), st.sampled_from(["*", "*/5", "0-3", "1,2,23"])),
    st.sampled_from(["*", "*", "1", "28", "L"]),
    st.sampled_from(["*", "*", "3,10,11"]),
    st.sampled_from(["*", "*", "SUN", "MON-FRI", "SUN#1"]),
)
"""Expressions in which something happens at least once in a year or two."""


@settings(deadline=None, max_examples=150)
@given(EXPRESSIONS, st.sampled_from(ZONES), INSTANTS)
@example("30 2 * * *", "Europe/Berlin", ms("2026-10-25T02:10+01:00"))
@example("45 * * * *", "Australia/Lord_Howe", ms("2026-04-05T01:50+10:30"))
@example("0 0 * * *", "America/Havana", ms("2026-03-08T01:00-04:00"))
@example("30 * 1 11 *", "America/Havana", ms("2026-01-01T00:00-05:00"))
def test_latest_and_next_agree(expression: str, timezone: str, now: int) -> None:
    rule = cron_rule(expression, timezone)
    latest, upcoming = rule.latest_instant(now), rule.next_instant(now)
    assert latest <= now < upcoming
    assert rule.next_instant(latest) == upcoming
    assert rule.latest_instant(upcoming) == upcoming
    assert rule.latest_instant(upcoming - 1) == latest
    assert rule.next_instant(latest - 1) == latest


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 23),
    st.integers(0, 59),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana"]),
    st.integers(2015, 2030),
)
def test_a_daily_instant_happens_once_on_every_day_of_a_year(
    hour: int, minute: int, timezone: str, year: int
) -> None:
    """None is lost in the skipped hour, and none repeated in the one that comes twice."""
    rule, zone = cron_rule(f"{minute} {hour} * * *", timezone), ZoneInfo(timezone)
    at = round(datetime(year, 1, 1, tzinfo=zone).timestamp() * 1000) - 1
    days = []
    while (local := datetime.fromtimestamp((at := rule.next_instant(at)) / 1000, zone)).year == year:
        days.append(local.date())
        skipped = local.replace(hour=hour, minute=minute, fold=0).astimezone(UTC).astimezone(zone)
        if (skipped.hour, skipped.minute) == (hour, minute):
            assert (local.hour, local.minute, local.fold) == (hour, minute, 0)
    assert len(days) == len(set(days)) == (datetime(year + 1, 1, 1) - datetime(year, 1, 1)).days  # noqa: DTZ001


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 59), st.sampled_from(["Europe/Berlin", "America/New_York", "UTC"]), INSTANTS)
def test_an_hourly_instant_is_never_more_or_less_than_an_hour_away(
    minute: int, timezone: str, now: int
) -> None:
    rule = cron_rule(f"{minute} * * * *", timezone)
    assert rule.next_instant(now) - rule.latest_instant(now) == HOUR_MS


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(["7,22 * * * *", "* * 1 * *", "0 */6 * * SUN", "59 23 * * *"]), INSTANTS)
def test_in_utc_instants_are_those_that_cronsim_finds(expression: str, now: int) -> None:
    from cronsim import CronSim

    began = datetime.fromtimestamp(now / 1000, UTC)
    expected = next(CronSim(expression, began))
    assert cron_rule(expression).next_instant(now) == round(expected.timestamp() * 1000)


# --- what is no rule --------------------------------------------------------------------------------------------

REFUSED = {
    "0 25 * * *": ("cron", "its hour cannot be '25' (0 to 23)", "write minute, hour"),
    "0 9 * * MOO": ("cron", "its day-of-week cannot be 'MOO'", "Did you mean 'MON'?"),
    "0 9 * FBE *": ("cron", "its month cannot be 'FBE'", "Did you mean 'FEB'?"),
    "70 0 9 * * MON": ("cron", "its second cannot be '70'", "write minute, hour"),
    "*/0 * * * *": ("cron", "its minute cannot be '*/0'", "write minute, hour"),
    "0 9 32 * *": ("cron", "its day-of-month cannot be '32'", "write minute, hour"),
    "hourly": ("cron", "has 1 field", "write minute, hour"),
    "0 9 * *": ("cron", "has 4 fields", "write minute, hour"),
    "": ("cron", "has 0 fields", "write minute, hour"),
    "@daily": ("cron", "is a nickname", 'write "0 0 * * *"'),
    "0 0 30 2 *": ("cron", "never comes", "name a day that some month has"),
    "0 0 29 2 MON#5L": ("cron", "its day-of-week cannot be", "write minute, hour"),
}


@pytest.mark.parametrize("expression", REFUSED)
def test_an_expression_that_is_none_is_refused_with_one_next_step(expression: str) -> None:
    setting, why, step = REFUSED[expression]
    with pytest.raises(SettingError) as caught:
        cron_rule(expression)
    assert caught.value.setting == setting
    reason, _, suggestion = caught.value.reason.partition("; ")
    assert why in reason
    assert step in suggestion


def test_days_that_never_meet_are_refused() -> None:
    with pytest.raises(SettingError, match="never comes"):
        cron_rule("0 0 31 2,4 *")
    with pytest.raises(SettingError, match="never comes"):
        cron_rule("0 0 */31 2 MON#5")


ZONES_REFUSED = {
    "Europe/Berln": "did you mean 'Europe/Berlin'?",
    "berlin": "did you mean 'Europe/Berlin'?",
    "New_York": "did you mean 'America/New_York'?",
    "../etc/passwd": "write an IANA name",
    "Q": "write an IANA name",
}


@pytest.mark.parametrize("timezone", ZONES_REFUSED)
def test_a_time_zone_that_is_none_is_refused_with_the_nearest(timezone: str) -> None:
    with pytest.raises(SettingError) as caught:
        cron_rule("0 9 * * *", timezone)
    assert caught.value.setting == "timezone"
    assert ZONES_REFUSED[timezone] in caught.value.reason


def test_without_a_database_of_time_zones_utc_is_known_and_others_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    assert cron_rule("0 9 * * *").timezone == "UTC"
    with pytest.raises(SettingError, match="pip install tzdata"):
        cron_rule("0 9 * * *", "Nowhere/Atall")


def test_rules_are_equal_by_what_they_say() -> None:
    assert cron_rule("0 9 * * *", "Europe/Berlin") == cron_rule("0 9  * * *", "Europe/Berlin")
    assert cron_rule("0 9 * * *", "Europe/Berlin") != cron_rule("0 9 * * *", "Europe/Rome")
    assert Every(1000, 5) == Every(1000, 5)
