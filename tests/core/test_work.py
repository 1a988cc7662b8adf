"""Declarations of tasks: what a priority may be."""

from __future__ import annotations

import pytest

from bide.core.work import MOST_PRIORITY, is_priority


@pytest.mark.parametrize("value", [0, 1, -1, MOST_PRIORITY, -MOST_PRIORITY])
def test_a_priority_is_a_whole_number(value: int) -> None:
    assert is_priority(value)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, MOST_PRIORITY + 1, -MOST_PRIORITY - 1])
def test_what_is_no_priority(value: object) -> None:
    assert not is_priority(value)
