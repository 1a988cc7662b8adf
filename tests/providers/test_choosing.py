"""Which of the eligible items a fetch takes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bide.provider import Limit
from bide.providers.choosing import Candidate, Lane, Turns, choose, in_force, in_turn, rank_of

candidates = st.lists(
    st.builds(
        Candidate,
        seq=st.integers(1, 10**6),
        queue=st.sampled_from(["p", "q", "r"]),
        name=st.sampled_from(["m", "n"]),
        rank=st.integers(-100, 100),
        deaths=st.sampled_from([0, 0, 0, 1, 2]),
        limit_key=st.sampled_from([None, "", "x", "y", "z"]),
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


lanes_of_queues = st.dictionaries(
    st.sampled_from(["p", "q"]),
    st.builds(
        Lane,
        limit=st.builds(
            Limit,
            queue=st.one_of(st.none(), st.integers(0, 5)),
            per_key=st.one_of(st.none(), st.integers(0, 3)),
        ),
        running=st.builds(
            Counter, st.dictionaries(st.sampled_from([None, "x", "y", "gone"]), st.integers(1, 3), max_size=2)
        ),
        after=st.sampled_from([None, "", "x", "y", "z"]),
    ),
)


@given(candidates, st.integers(1, 8), limits, lanes_of_queues)
def test_choices_within_limits(
    given_candidates: list[Candidate], limit: int, most: dict[str, int], lanes: dict[str, Lane]
) -> None:
    before = {queue: Counter(lane.running) for queue, lane in lanes.items()}
    chosen = choose(given_candidates, ["p", "q", "r"], limit=limit, most=most, lanes=lanes)
    assert len(chosen) <= limit
    names = Counter(one.name for one in chosen)
    for queue, lane in lanes.items():
        took = Counter(one.limit_key for one in chosen if one.queue == queue)
        assert lane.running == before[queue] + took
        if lane.limit.queue is not None:
            assert took.total() <= max(lane.limit.queue - before[queue].total(), 0)
        for key in took:
            if key is not None and lane.limit.per_key is not None:
                assert lane.running[key] <= lane.limit.per_key
    if any(one.deaths >= 2 for one in chosen) or len(chosen) == limit:
        return
    for one in set(given_candidates) - set(chosen):  # nothing that could be taken is left while there is room
        held_back = one.queue in lanes and not lanes[one.queue].has_room(one.limit_key)
        assert one.deaths >= 2 or held_back or names[one.name] >= most.get(one.name, limit)


@given(candidates, st.integers(1, 8), lanes_of_queues)
def test_no_key_gets_ahead_of_one_that_could_be_served(
    given_candidates: list[Candidate], limit: int, lanes: dict[str, Lane]
) -> None:
    alive = [one for one in given_candidates if one.deaths < 2]
    before = {queue: Counter(lane.running) for queue, lane in lanes.items()}
    chosen = choose(alive, ["p", "q", "r"], limit=limit, most={}, lanes=lanes)
    for queue, lane in lanes.items():
        took = Counter(one.limit_key for one in chosen if one.queue == queue)
        left = {one.limit_key for one in alive if one.queue == queue and one not in chosen}
        for key in left:
            if key is not None and lane.limit.per_key is not None and lane.running[key] >= lane.limit.per_key:
                continue
            # Whoever was served had no more running than this key has now.
            assert all(before[queue][other] + count - 1 <= lane.running[key] for other, count in took.items())


def test_each_key_is_first_in_its_turn() -> None:
    turns = Turns()
    first = []
    for _ in range(6):
        lanes = {"q": Lane(Limit(queue=1), Counter(), turns.served("q"))}
        waiting = [
            Candidate(seq, "q", "n", rank, 0, key)
            for seq, (rank, key) in enumerate([(9, None), (5, "y"), (1, "x")])
        ]
        (one,) = choose(waiting, turns.next_of(["q"]), limit=5, most={}, lanes=lanes)
        turns.keep(lanes)
        first.append(one.limit_key)
    assert first == [None, "x", "y", None, "x", "y"]


def test_of_one_key_the_rank_decides() -> None:
    waiting = [Candidate(1, "q", "n", 9, 0, "x"), Candidate(2, "q", "n", 1, 0, "x")]
    lanes = {"q": Lane(Limit(per_key=1))}
    assert [one.seq for one in choose(waiting, ["q"], limit=5, most={}, lanes=lanes)] == [2]


def test_what_killed_workers_waits_for_a_place_too() -> None:
    killer = Candidate(1, "q", "n", 0, 2, "x")
    full = {"q": Lane(Limit(per_key=1), Counter({"x": 1}))}
    assert choose([killer], ["q"], limit=5, most={}, lanes=full) == []
    free = {"q": Lane(Limit(per_key=1))}
    assert choose([killer, Candidate(2, "q", "n", 0, 0, "y")], ["q"], limit=5, most={}, lanes=free) == [
        killer
    ]
    assert free["q"].running == {"x": 1}


def test_limits_that_bind_nothing_are_left_out() -> None:
    given_limits = {"p": Limit(), "q": Limit(queue=0), "r": Limit(per_key=1), "other": Limit(queue=1)}
    assert in_force(given_limits, ["p", "q", "r"]) == {"q": Limit(queue=0), "r": Limit(per_key=1)}
    assert in_force(None, ["p"]) == {}
