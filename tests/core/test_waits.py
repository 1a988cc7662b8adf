"""When a wait asks again, and when it may not any more, for any timeout, strategy and duration of its attempts."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.judging import judge
from bide.core.pacing import PollingStrategy
from bide.core.polling import RetryAfter
from bide.core.retrying import Retries, retries
from bide.core.verdict import Failure, NotYet, Success
from bide.core.waited import Tally, duration_text, explain
from bide.core.waits import Wait, WaitSettings, wait_settings
from bide.errors import SettingError


def settings_of(**given: Any) -> WaitSettings:
    defaults: dict[str, Any] = {
        "timeout": "10s",
        "strategy": PollingStrategy.fixed("1s"),
        "attempt_timeout": None,
        "hint_clamp": "1d",
    }
    return wait_settings(**(defaults | given))


def test_equal_settings_are_one_object_and_odd_ones_are_refused_by_name() -> None:
    assert settings_of() is settings_of()
    assert settings_of(timeout=1) is not settings_of(timeout=1.0)
    with pytest.raises(SettingError, match=r"^timeout: True"):
        settings_of(timeout=True)
    with pytest.raises(SettingError, match=r"^timeout: \[\]"):
        settings_of(timeout=[])
    assert settings_of(timeout=None).timeout == math.inf


seconds = st.floats(0.001, 100).map(lambda value: round(value, 3))
strategies_of_waits = st.one_of(
    seconds.map(PollingStrategy.fixed),
    st.builds(
        lambda least, more, factor: PollingStrategy.adaptive(least, least + more, factor),
        seconds,
        seconds,
        st.floats(1.01, 1e6),
    ),
)


@given(
    timeout=seconds,
    strategy=strategies_of_waits,
    attempt_timeout=st.none() | seconds,
    took=st.lists(st.floats(0, 50), min_size=1, max_size=20),
    hints=st.lists(st.none() | st.floats(0, 200), min_size=1, max_size=20),
    draw=st.floats(0, 1, exclude_max=True),
    start=st.floats(0, 1e6),
)
def test_no_attempt_begins_too_late_and_none_is_waited_for_that_may_not_begin(
    *,
    timeout: float,
    strategy: PollingStrategy,
    attempt_timeout: float | None,
    took: list[float],
    hints: list[float | None],
    draw: float,
    start: float,
) -> None:
    wait = Wait(settings_of(timeout=timeout, strategy=strategy, attempt_timeout=attempt_timeout), start)
    now = start
    for number in range(200):
        began = now
        ends_at = wait.begin(began)
        assert ends_at <= start + timeout
        now = min(began + took[number % len(took)], ends_at)
        wait.ended(began, now)
        hint = hints[number % len(hints)]
        delay = wait.next_delay(began, now, draw, None if hint is None else timedelta(seconds=hint))
        if delay is None:
            assert wait.limit in ("timeout", "hint")
            break
        assert delay >= 0
        if hint is not None:
            assert delay >= hint - 1e-6
        now += delay
        assert now <= start + timeout - (attempt_timeout or 0) + 1e-6
        assert not wait.is_late(now) or math.isclose(now, start + timeout)
    tally = wait.tally(now)
    assert 0 <= tally.calling <= tally.elapsed + 1e-6
    result = wait.result(7, now)
    assert result.elapsed == result.calling + result.waiting or result.waiting == timedelta()


def test_a_hint_that_comes_at_the_very_end_is_not_what_ended_the_wait() -> None:
    wait = Wait(settings_of(), 0.0)
    wait.begin(0.0)
    assert wait.next_delay(0.0, 9.99, 0.5, timedelta(seconds=5)) is None
    assert wait.limit == "timeout"


@pytest.mark.parametrize("strategy", [PollingStrategy.fixed("5s"), PollingStrategy.adaptive()])
def test_the_last_attempt_is_made_once_though_each_is_quicker_than_the_one_before(
    strategy: PollingStrategy,
) -> None:
    wait = Wait(settings_of(timeout="12s", strategy=strategy), 0.0)
    now, took, begun = 0.0, 0.04, []
    while True:
        begun.append(now)
        wait.begin(now)
        delay = wait.next_delay(now, now + took, 0.5)
        if delay is None:
            break
        now, took = now + took + delay, took * 0.8
    assert begun[-1] > 11.9
    assert begun[-2] < begun[-1] - 0.09


def test_time_that_the_last_attempt_leaves_is_used_where_the_strategy_asks_so_often() -> None:
    wait = Wait(settings_of(strategy=PollingStrategy.adaptive("100ms", "5s")), 0.0)
    for _ in range(6):
        wait.begin(0.0)
        wait.next_delay(0.0, 0.0, 0.5)
    assert wait.next_delay(0.0, 6.0, 0.5) == pytest.approx(
        1.975
    )  # half of what is left, after one that took 6 s
    assert wait.next_delay(7.975, 7.985, 0.5) == pytest.approx(1.955)
    assert wait.next_delay(9.94, 9.945, 0.5) is None


# --- what an answer means --------------------------------------------------------------------------------------


def test_an_answer_is_judged() -> None:
    assert judge(RetryAfter(3), None, None) == NotYet(timedelta(seconds=3))
    assert judge(1, None, None) is True
    assert judge([], None, None) is False
    assert judge(True, None, None) is True
    assert judge(1, lambda value: value, None) is True
    assert judge(0, lambda value: value, lambda value: value) is False
    assert judge(1, lambda value: True, lambda value: value) == Failure("")
    for verdict in (Success(1), Failure("x"), NotYet()):
        assert judge(1, lambda value, verdict=verdict: verdict, None) is verdict  # type: ignore[misc]  # bound


def test_a_future_is_no_answer_of_a_condition() -> None:
    class Awaitable:
        def __await__(self) -> Any:
            return iter(())

    with pytest.raises(TypeError, match="condition has to be a plain function"):
        judge(1, lambda value: Awaitable(), None)

    async def condition(value: object) -> bool:
        return False

    with pytest.raises(TypeError, match="failed has to be a plain function"):
        judge(1, None, condition)


# --- what is retried -------------------------------------------------------------------------------------------


def test_classes_are_read_once_and_functions_each_time() -> None:
    assert retries((OSError, KeyError)) is retries((OSError, KeyError))
    assert retries(lambda error: True) is not retries(lambda error: True)
    assert Retries([OSError]).answer(OSError()) is True
    assert Retries({OSError}).answer(KeyError()) is False
    assert Retries(lambda error: RetryAfter(1)).answer(OSError()) == RetryAfter(1)
    assert Retries(lambda error: TypeError()).answer(TypeError()) is False


# --- the text of a timeout ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0s"),
        (0.0004, "0s"),
        (0.25, "250ms"),
        (4.2, "4.2s"),
        (59.999, "60s"),
        (60.4, "1m"),
        (585, "9m45s"),
    ],
)
def test_durations_are_short(number: float, text: str) -> None:
    assert duration_text(number) == text


def test_texts_of_limits() -> None:
    def text(limit: str, timeout: float | None, attempt: float | None = None, **more: Any) -> str:
        tally = Tally(timeout, attempt, 2, 10.0, 4.0)
        told: dict[str, Any] = {"last": None, "error": None, "reason": "", "still_running": False} | more
        return explain("probe", limit, tally, **told)

    counted = "2 attempts in 10s (4s calling, 6s waiting)"
    assert text("timeout", 10.0) == f"probe did not hold within 10s; {counted}; nothing was answered"
    assert text("timeout", None, error=OSError()).endswith(
        f"hold; {counted}; the last attempt raised OSError"
    )
    assert text("attempt_timeout", None, None).startswith("probe took longer than one attempt may, and")
    assert text("hint", 10.0, reason="status 503").endswith("past the deadline; " + counted + "; status 503")
