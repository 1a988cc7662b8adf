"""Values in error texts: what they are, and not too much of what they hold."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from bide.core.shown import kind_of, shown_names, shown_text, shown_value


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "null", "null"),
        (True, "bool", "bool true"),
        (False, "bool", "bool false"),
        (12, "number", "number 12"),
        (-(10**30), "number", f"number -1{'0' * 30}"),
        pytest.param(10**5000, "number", "number of 16610 bits", id="huge"),
        (1.5, "number", "number 1.5"),
        (float("nan"), "number", "number nan"),
        (Decimal("12.50"), "number", "number 12.50"),
        (Decimal("1" * 60), "number", f"number {'1' * 40}…"),
        ("12.50", "str", "str '12.50'"),
        ("a" * 40, "str", f"str '{'a' * 40}'"),
        ("a" * 41, "str", f"str '{'a' * 40}'…"),
        ("\n\ud800", "str", "str '\\n\\ud800'"),
        ([1, 2], "list", "list of 2"),
        ((), "list", "list of 0"),
        ({}, "object", "empty object"),
        (OrderedDict(a=1, b=2), "object", "object of a, b"),
        (datetime(2026, 1, 1, tzinfo=UTC), "datetime", "datetime"),
        (object(), "object", "object"),
        (b"secret", "bytes", "bytes"),
    ],
)
def test_a_value_is_shown(value: object, kind: str, text: str) -> None:
    assert kind_of(value) == kind
    assert shown_value(value) == text


def test_names_are_few_and_short() -> None:
    assert shown_names(["a", "b"]) == "a, b"
    assert shown_names({str(number): 0 for number in range(8)}) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert shown_names([str(number) for number in range(9)]) == "0, 1, 2, 3, 4, 5, 6, 7, …"
    assert shown_names(["x" * 50]) == "x" * 40 + "…"


def test_text_is_cut_and_escaped() -> None:
    assert shown_text("abc", 3) == "'abc'"
    assert shown_text("abcd", 3) == "'abc'…"
    assert shown_text("\x1b[31m", 9) == "'\\x1b[31m'"
