"""Which of the eligible items a fetch takes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bide.providers.choosing import Candidate, choose, in_turn, rank_of

candidates = st.lists(
    st.builds(
        Candidate,
        seq=st.integers(1, 10**6),
        queue=st.sampled_from(["p", "q", "r"]),
        name=st.sampled_from(["m", "n"]),
        rank=st.integers(-100, 100),
        deaths=st.sampled_from([0, 0, 0, 1, 2]),
    ),
    max_size=30,
    unique_by=lambda candidate: candidate.seq,
)
limits = st.dictionaries(st.sampled_from(["m", "n", "none"]), st.integers(0, 3))


def test_a_step_of_priority_is_a_minute() -> None:
    assert rank_of(100_000, 0) == 100_000
    assert rank_of(100_000, 1) == 40_000
    assert rank_of(100_000, -2) == 220_000


def test_each_queue_is_first_in_its_turn() -> None:
    assert [in_turn("bcab", turn)[0] for turn in range(6)] == ["a", "b", "c", "a", "b", "c"]
    assert in_turn("bca", 1) == ("b", "c", "a")
    assert in_turn([], 5) == ()


def test_what_killed_workers_is_alone_when_its_turn_has_come() -> None:
    killer = Candidate(1, "q", "n", 0, 2)
    good = Candidate(2, "q", "n", 1, 0)
    assert choose([good, killer], ["q"], limit=5, most={}) == [killer]
    assert choose([good, Candidate(1, "q", "n", 2, 2)], ["q"], limit=5, most={}) == [good]
    assert choose([good, killer], ["p", "q"], limit=5, most={}) == [killer]


@given(candidates, st.integers(1, 8), limits, st.permutations(["p", "q", "r"]))
def test_choices(
    given_candidates: list[Candidate], limit: int, given_limits: dict[str, int], queues: list[str]
) -> None:
    chosen = choose(given_candidates, queues, limit=limit, most=given_limits)
    assert set(chosen) <= set(given_candidates)
    assert len(chosen) <= limit
    assert [one.place for one in chosen] == sorted(one.place for one in chosen)
    if any(one.deaths >= 2 for one in chosen):
        assert len(chosen) == 1
        return
    taken = Counter(one.name for one in chosen)
    assert all(taken[name] <= most for name, most in given_limits.items())
    left = [
        one
        for one in given_candidates
        if one not in chosen and one.deaths < 2 and taken[one.name] < given_limits.get(one.name, limit)
    ]
    if left:
        assert len(chosen) == limit  # nothing that could be taken is left while there is room
    of_queue = Counter(one.queue for one in chosen)
    for one in left:  # and what is left came after what was taken, of its own queue and name
        assert all(
            one.place > other.place for other in chosen if (one.queue, one.name) == (other.queue, other.name)
        )
        assert of_queue[one.queue] >= max(of_queue.values()) - 1
