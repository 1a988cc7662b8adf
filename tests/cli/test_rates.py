"""Rates and shares as people write them."""

from __future__ import annotations

from decimal import Decimal

import pytest
import typer

from bide.cli.rates import a_day, share


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("100000/day", 100_000),
        ("100,000/day", 100_000),
        ("1_000/hour", 24_000),
        ("2/second", 172_800),
        ("1.5/minute", 2160),
        ("3000/month", 100),
        ("500/5m", 144_000),
        (" 10 / day ", 10),
        ("0", 0),
        ("none", 0),
    ],
)
def test_rates_are_numbers_a_day(text: str, number: int) -> None:
    assert a_day(text, "--items") == number


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("100", "Write for example 100/day."),
        ("/day", "Write for example 100000/day."),
        ("-5/day", "Write for example 100000/day."),
        ("nan/day", "Write for example 100000/day."),
        ("5/daay", "Did you mean 'day'?"),
        ("5/xyz", "or a duration such as 5m."),
        ("5/0s", "or a duration such as 5m."),
        ("1e9/day", "Write for example"),
        ("99999999999999999/second", "more than any store takes"),
    ],
)
def test_what_is_no_rate_is_refused_with_a_step(text: str, step: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        a_day(text, "--items")
    assert step in caught.value.message


@pytest.mark.parametrize(
    ("text", "part"),
    [("10%", "0.1"), ("0.1", "0.1"), ("100%", "1"), ("1", "1"), ("0", "0"), ("12.5 %", "0.125")],
)
def test_shares_are_parts_of_one(text: str, part: str) -> None:
    assert share(text, "--busy") == Decimal(part)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("10", "Write 10%."),
        ("150%", "Write at most 100%."),
        ("1000", "Write at most 100%."),
        ("-1%", "Write for example 10%."),
        ("half", "Write for example 10%."),
        ("%", "Write for example 10%."),
    ],
)
def test_what_is_no_share_is_refused_with_a_step(text: str, step: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        share(text, "--busy")
    assert step in caught.value.message
