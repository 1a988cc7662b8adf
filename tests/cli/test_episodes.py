"""Which failures are worth a line: edges, and now and then while they last."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from bide.cli.episodes import GATHER_S, SUMMARY_S, Began, Ended, Episodes, Lasts, Spread


def test_the_first_failure_is_told_and_the_following_ones_are_not() -> None:
    episodes = Episodes()
    assert episodes.failed("eu", "refused", "eu.price", 0.0) == Began("refused")
    assert [episodes.failed("eu", "refused", "eu.price", 60.0 * n) for n in range(1, 50)] == [None] * 49


def test_the_end_says_how_long_it_was_and_how_much_failed() -> None:
    episodes = Episodes()
    for n in range(3):
        episodes.failed("eu", "refused", "eu.price", 10.0 * n)
        episodes.failed("eu", "refused", "eu.stock", 10.0 * n)
    assert episodes.recovered("eu", "eu.price", 30.0) is None
    assert episodes.recovered("eu", "eu.stock", 40.0) == Ended(40.0, 2, 6)
    assert episodes.recovered("eu", "eu.stock", 50.0) is None


def test_ten_thousand_polls_of_fifty_connections_are_fifty_lines() -> None:
    episodes = Episodes()
    told = [
        episodes.failed(f"c{n % 50}", "refused", f"c{n % 50}.p{n}", n * GATHER_S / 10_000)
        for n in range(10_000)
    ]
    again = [
        episodes.failed(f"c{n % 50}", "refused", f"c{n % 50}.p{n}", 100.0 + n / 100) for n in range(10_000)
    ]
    assert sum(one is not None for one in told) == 50
    assert not any(again)
    ended = [episodes.recovered(f"c{n % 50}", f"c{n % 50}.p{n}", 300.0) for n in range(10_000)]
    assert [one for one in ended if one] == [
        Ended(300.0 - n * GATHER_S / 10_000, 200, 400) for n in range(50)
    ]


def test_another_kind_is_told_once_in_an_episode() -> None:
    episodes = Episodes()
    episodes.failed("eu", "refused", "eu.price", 0.0)
    assert episodes.failed("eu", "timeout", "eu.price", 1.0) == Began("timeout")
    for n in range(100):
        assert episodes.failed("eu", ("refused", "timeout")[n % 2], "eu.price", 2.0 + n) is None


def test_a_poll_that_joins_a_lasting_episode_is_told_with_those_held_back() -> None:
    episodes = Episodes()
    episodes.failed("eu", "refused", "eu.a", 0.0)
    assert episodes.failed("eu", "refused", "eu.b", 1.0) is None
    assert episodes.failed("eu", "refused", "eu.c", 2.0) is None
    assert episodes.failed("eu", "refused", "eu.d", 2.0 + GATHER_S) == Spread("refused", 3, 4)


def test_flapping_is_told_at_most_once_a_minute() -> None:
    episodes = Episodes()
    lines: list[object] = []
    for second in range(600):
        lines.append(episodes.failed("eu", "refused", "eu.price", float(second)))
        lines.append(episodes.recovered("eu", "eu.price", second + 0.5))
    assert sum(isinstance(line, Began) for line in lines) == 10
    assert sum(isinstance(line, Ended) for line in lines) == 10


def test_the_end_of_what_was_never_told_is_not_told() -> None:
    episodes = Episodes()
    episodes.failed("eu", "refused", "eu.price", 0.0)
    assert isinstance(episodes.recovered("eu", "eu.price", 1.0), Ended)
    assert episodes.failed("eu", "refused", "eu.price", 2.0) is None
    assert episodes.recovered("eu", "eu.price", 3.0) is None


def test_while_it_lasts_it_is_summed_up_every_hour() -> None:
    episodes = Episodes()
    told = [episodes.failed("eu", "refused", "eu.price", 60.0 * minute) for minute in range(181)]
    assert [(minute, one) for minute, one in enumerate(told) if one is not None] == [
        (0, Began("refused")),
        (60, Lasts(SUMMARY_S, 1, 61)),
        (120, Lasts(2 * SUMMARY_S, 1, 121)),
        (180, Lasts(3 * SUMMARY_S, 1, 181)),
    ]


def test_subjects_do_not_touch_each_other() -> None:
    episodes = Episodes()
    assert episodes.failed("eu", "refused", "eu.price", 0.0) == Began("refused")
    assert episodes.failed("us", "refused", "us.price", 0.0) == Began("refused")
    assert episodes.recovered("eu", "eu.price", 1.0) == Ended(1.0, 1, 1)
    assert episodes.failed("us", "refused", "us.price", 2.0) is None


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from(["refused", "timeout"])),
        max_size=200,
    )
)
def test_lines_stay_few_whatever_happens(steps: list[tuple[bool, str, str]]) -> None:
    """A step a second: no kind begins or spreads twice within a minute, and no end comes without a beginning."""
    episodes = Episodes()
    told_at: dict[str, list[float]] = {}
    begun = ended = 0
    for second, (fails, member, kind) in enumerate(steps):
        if not fails:
            ended += episodes.recovered("eu", member, float(second)) is not None
            continue
        told = episodes.failed("eu", kind, member, float(second))
        if isinstance(told, Began | Spread):
            told_at.setdefault(told.kind, []).append(second)
            begun += 1
    assert ended <= begun
    for instants in told_at.values():
        assert all(later - earlier >= GATHER_S for earlier, later in itertools.pairwise(instants))
