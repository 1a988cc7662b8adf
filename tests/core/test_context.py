"""What a task's function may ask for, and what it may raise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bide.core.context import Context, Discard, GiveBack, Retry
from bide.errors import SettingError


def test_instants_of_a_context_are_aware() -> None:
    context = Context("i", "mail", enqueued_at_ms=1_769_850_000_123, deadline_ms=1_769_850_001_000)
    assert context.enqueued_at == datetime(2026, 1, 31, 9, 0, 0, 123000, tzinfo=UTC)
    assert context.deadline == datetime(2026, 1, 31, 9, 0, 1, tzinfo=UTC)
    assert Context("i", "mail").deadline is None


def test_a_context_can_be_made_for_a_test_of_the_function() -> None:
    context = Context("i", "mail")
    assert (context.attempt, context.queue, context.cancelled) == (1, "default", False)


def test_ways_to_end_an_attempt_say_when_and_why() -> None:
    assert Retry().after is None
    assert Retry(after="5s", reason="busy").after == timedelta(seconds=5)
    assert str(Retry(reason="busy")) == "busy"
    assert GiveBack().after == timedelta(seconds=1)
    assert GiveBack(after=0).after == timedelta()
    assert str(GiveBack()) == "given back"
    assert Discard("no such customer").reason == "no such customer"


def test_a_wait_that_is_no_duration_is_refused_by_its_name() -> None:
    with pytest.raises(SettingError, match=r"Retry\(after\): 'soon' is not a duration"):
        Retry("soon")
    with pytest.raises(SettingError, match=r"GiveBack\(after\): -1 is negative"):
        GiveBack(-1)
