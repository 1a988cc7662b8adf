"""Instants and spans as people write and read them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.cli.instants import parse_since, relative, rfc3339, span
from bide.errors import SettingError

NOON = 1_767_268_800_000  # 2026-01-01T12:00:00Z


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0s"),
        (-5, "0s"),
        (850, "850ms"),
        (1000, "1s"),
        (12_400, "12s"),
        (200_000, "3m20s"),
        (180_000, "3m"),
        (7_500_000, "2h5m"),
        (345_600_000, "4d"),
        (349_200_000, "4d1h"),
    ],
)
def test_a_span_has_at_most_two_units(ms: int, shown: str) -> None:
    assert span(ms) == shown


@given(st.floats(min_value=0, max_value=1e12))
def test_a_span_is_always_short(ms: float) -> None:
    assert re.fullmatch(r"(\d+(d|h|m|s|ms)){1,2}", span(ms))


def test_an_instant_is_shown_as_rfc_3339_in_utc() -> None:
    assert rfc3339(NOON) == "2026-01-01T12:00:00.000Z"
    assert rfc3339(NOON + 7) == "2026-01-01T12:00:00.007Z"
    assert rfc3339(None) is None


def test_relative_instants() -> None:
    assert relative(NOON - 12_000, NOON) == "12s ago"
    assert relative(NOON + 200_000, NOON) == "in 3m20s"
    assert relative(NOON + 400, NOON) == "now"
    assert relative(None, NOON) == "-"


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [
        ("2h", 7_200_000),
        ("1h30m", 5_400_000),
        ("2026-01-01T11:59:00Z", 60_000),
        ("2026-01-01T12:59:00+01:00", 60_000),
    ],
)
def test_since_is_how_long_ago_or_an_instant(text: str, ago_ms: int) -> None:
    assert parse_since(text, NOON) == NOON - ago_ms


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yesterday", "neither how long ago"),
        ("2026-01-01T11:59:00", "no offset"),
        ("2026-01-01T12:00:01Z", "future"),
        ("-2h", "neither"),
        ("", "neither"),
    ],
)
def test_a_since_that_cannot_be_read_says_why(text: str, said: str) -> None:
    with pytest.raises(SettingError, match=said) as caught:
        parse_since(text, NOON)
    assert caught.value.setting == "--since"
