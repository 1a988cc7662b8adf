"""What stamps in whole seconds say of a server's clock: bounds that hold, however the clock and the network are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bide.core.server_time import DRIFT_PPM, ServerTime, Stamp

AHEAD = 1_750_000_000_123
"""By how many ms the server's clock is ahead of the monotonic one."""

waits = st.integers(0, 5_000)
writes = st.lists(st.tuples(st.integers(1, 60_000), waits, waits), min_size=1, max_size=30)
"""Of each write: how long after the last it was asked for, how long until it was done, and until that was heard."""


def stamped(instant: int, resolution: int = 1000) -> Stamp:
    """As a server stamps that cuts off what is smaller."""
    return Stamp(instant - instant % resolution, instant - instant % resolution + resolution)


def learnt(given_writes: list[tuple[int, int, int]], resolution: int = 1000) -> tuple[ServerTime, int]:
    """What is known after some writes, and the monotonic instant then."""
    known, at = None, 0
    for pause, sent, heard in given_writes:
        asked_at = at + pause
        at = asked_at + sent + heard
        newer = ServerTime.of(stamped(asked_at + sent + AHEAD, resolution), asked_at, at)
        known = newer if known is None else known.joined(newer)
    assert known is not None
    return known, at


@given(writes)
def test_the_truth_is_within_the_bounds(given_writes: list[tuple[int, int, int]]) -> None:
    known, at = learnt(given_writes)
    assert known.low <= AHEAD < known.high
    assert abs(known.now(at) - (at + AHEAD)) <= known.error_ms(at)


@given(writes, st.tuples(st.integers(1, 60_000), waits, waits))
def test_more_never_makes_it_worse_but_for_drift(
    given_writes: list[tuple[int, int, int]], one_more: tuple[int, int, int]
) -> None:
    before, _ = learnt(given_writes)
    after, at = learnt([*given_writes, one_more])
    assert after.error_ms(at) <= before.error_ms(at)


def test_several_stamps_know_better_than_a_second() -> None:
    known, at = learnt([(137, 0, 0)] * 30)
    assert known.error_ms(at) < 60


def test_bounds_widen_with_age() -> None:
    known, at = learnt([(1, 0, 0)])
    day = 86_400_000
    assert known.error_ms(at + day) - known.error_ms(at) == day * DRIFT_PPM // 1_000_000


@given(writes, st.integers(3_600_000, 10**11), st.booleans())
def test_a_clock_that_was_set_is_believed(
    given_writes: list[tuple[int, int, int]], by: int, is_back: bool
) -> None:
    known, at = learnt(given_writes)
    ahead = AHEAD - by if is_back else AHEAD + by
    newer = ServerTime.of(stamped(at + ahead), at, at)
    assert known.contradicts(newer)
    assert known.joined(newer) == newer
    assert newer.low <= ahead < newer.high


@given(writes)
def test_stamps_that_agree_do_not_contradict(given_writes: list[tuple[int, int, int]]) -> None:
    known, at = learnt(given_writes)
    assert not known.contradicts(ServerTime.of(stamped(at + AHEAD), at, at))


def test_an_exact_stamp_is_exact() -> None:
    known = ServerTime.of(Stamp(5_000, 5_001), 100, 100)
    assert known.now(100) == 5_000
    assert known.error_ms(100) == 0
    assert known.now(250) == 5_150
