"""Promise 13, first half: which polls are claimed, by whom, and when they are due again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from bide.core.claim import next_due_at, phase_ms
from bide.core.conditional import Validators
from bide.provider import Changed, Schedule, Stale, Unchanged
from bide.testing.conformance.bench import MINUTE, Bench, answered

_HOLD_S = 90
"""The deadline of a call and the retry after a failure, as a schedule has them."""


class PollsSuite:
    """Claims and failures."""

    async def test_13_a_new_poll_is_claimed_once(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        assert (claim.name, claim.failures, claim.lag_ms) == ("eu.price", 0, 0)
        assert (claim.digest, claim.declaration, claim.validated_ago) == (None, None, None)
        assert claim.validators == Validators()
        assert claim.claimed_at == bench.now_ms()
        assert await bench.claim("eu.price") == []

    async def test_13_the_next_instant_keeps_the_phase(self, bench: Bench) -> None:
        for name in ("eu.price", "us.price", "a.b"):
            (claim,) = await bench.claim(name)
            assert claim.next_due_at == next_due_at(bench.now_ms(), 60_000, phase_ms(name, 60_000))
            assert (await bench.row(name)).due_at == claim.next_due_at

    async def test_13_a_poll_is_due_again_an_interval_later(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.answer(claim, 1)
        for _ in range(5):
            wait = (claim.next_due_at - bench.now_ms()) / 1000
            await bench.advance(wait - 0.001)
            assert await bench.claim("eu.price") == []
            await bench.advance(0.001)
            (following,) = await bench.claim("eu.price")
            assert following.generation == claim.generation + 1
            assert following.next_due_at == claim.next_due_at + 60_000
            assert following.lag_ms == 0
            await bench.answer(following, 1)
            claim = following

    async def test_13_missed_intervals_are_one_call_that_keeps_the_phase(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.answer(claim, 1)
        await bench.advance(10 * 3600)
        (late,) = await bench.claim("eu.price")
        assert late.lag_ms == bench.now_ms() - claim.next_due_at
        assert (late.next_due_at - claim.next_due_at) % 60_000 == 0
        assert 30_000 < late.next_due_at - bench.now_ms() <= 90_000
        await bench.answer(late, 1)
        assert await bench.claim("eu.price") == []

    async def test_13_of_many_callers_one_claims(self, bench: Bench) -> None:
        names = [f"eu.p{number}" for number in range(20)]
        claims = await asyncio.gather(*(bench.claim(*names, limit=7) for _ in range(10)))
        claimed = [claim.name for some in claims for claim in some]
        assert sorted(claimed) == sorted(names)

    async def test_13_limit_bounds_a_claim_and_the_longest_due_come_first(self, bench: Bench) -> None:
        for name in ("eu.a", "eu.b", "eu.c"):
            (claim,) = await bench.claim(name)
            await bench.answer(claim, 1)
            await bench.provider.poll_now([name])
            await bench.advance(1)
        claims = await bench.claim("eu.new", "eu.c", "eu.b", "eu.a", limit=2)
        assert [claim.name for claim in claims] == ["eu.a", "eu.b"]
        claims = await bench.claim("eu.new", "eu.c", "eu.b", "eu.a", limit=9)
        assert [claim.name for claim in claims] == ["eu.c", "eu.new"]
        assert await bench.claim("eu.other", limit=0) == []

    async def test_13_a_schedule_given_twice_is_one(self, bench: Bench) -> None:
        assert len(await bench.claim("eu.a", "eu.a", "eu.b")) == 2

    async def test_13_only_the_schedules_given_are_claimed(self, bench: Bench) -> None:
        await bench.claim("eu.a", "eu.b")
        await bench.advance(600)
        assert [claim.name for claim in await bench.claim("eu.a")] == ["eu.a"]
        assert await bench.claim() == []

    async def test_13_slack_takes_what_will_be_due_so_soon(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.answer(claim, 1)
        await bench.advance((claim.next_due_at - bench.now_ms()) / 1000 - 20)
        schedules = [Schedule("eu.price", MINUTE)]
        assert await bench.provider.claim_polls(schedules, 9, slack=timedelta(seconds=19)) == []
        claims = await bench.provider.claim_polls(schedules, 9, slack=timedelta(seconds=20))
        assert [claim.name for claim in claims] == ["eu.price"]
        await bench.answer(claims[0], 1)
        assert await bench.provider.claim_polls(schedules, 9, slack=timedelta(seconds=30)) == []

    async def test_13_a_shortened_interval_is_due_at_once(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price", every=timedelta(hours=4))
        await bench.answer(claim, 1)
        (sooner,) = await bench.claim("eu.price", every=MINUTE)
        assert 30_000 < sooner.next_due_at - bench.now_ms() <= 90_000
        await bench.answer(sooner, 1)
        assert await bench.claim("eu.price", every=MINUTE) == []
        assert await bench.claim("eu.price", every=timedelta(hours=4)) == []

    async def test_13_a_claim_never_recorded_is_due_again_after_its_hold(self, bench: Bench) -> None:
        (lost,) = await bench.claim("eu.price", every=timedelta(hours=4))
        await bench.advance(_HOLD_S - 0.001)
        assert await bench.claim("eu.price", every=timedelta(hours=4)) == []
        await bench.advance(0.001)
        (again,) = await bench.claim("eu.price", every=timedelta(hours=4))
        assert again.generation == lost.generation + 1

    async def test_13_the_hold_is_the_deadline_and_the_failure_retry(self, bench: Bench) -> None:
        schedule = Schedule("eu.price", MINUTE, timedelta(minutes=2), timedelta(minutes=3))
        await bench.provider.claim_polls([schedule], 1)
        row = await bench.row("eu.price")
        assert (row.outstanding, row.hold_ms) == (True, 300_000)
        assert row.not_before_at == bench.now_ms() + 300_000
        assert row.called_at == bench.now_ms()

    async def test_13_an_overtaken_claim_records_nothing(self, bench: Bench) -> None:
        (late,) = await bench.claim("eu.price")
        await bench.advance(_HOLD_S)
        (holder,) = await bench.claim("eu.price")
        await bench.subscribe("a")
        before = await bench.row("eu.price")
        assert await bench.answer(late, 1) == Stale()
        assert await bench.provider.record_failure(late, "late", MINUTE) is False
        assert await bench.row("eu.price") == before
        assert await bench.provider.events() == []
        assert await bench.deliveries("a") == []
        await bench.answer(holder, 2)
        assert await bench.answer(late, 1) == Stale()
        assert [event.payload for event in await bench.provider.events()] == ['{"price":2}']

    async def test_13_a_claim_is_recorded_once(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.answer(claim, 1)
        assert await bench.answer(claim, 2) == Stale()
        assert await bench.provider.record_failure(claim, "late", MINUTE) is False
        (other,) = await bench.claim("us.price")
        recorded = await asyncio.gather(*(bench.answer(other, 3) for _ in range(5)))
        assert [type(one).__name__ for one in recorded].count("Changed") == 1
        assert [one for one in recorded if one == Stale()] == [Stale()] * 4

    async def test_13_a_failure_keeps_what_was_known(self, bench: Bench) -> None:
        await bench.change("eu.price", 1)
        await bench.provider.poll_now(["eu.price"])
        (claim,) = await bench.claim("eu.price")
        before = await bench.row("eu.price")
        assert await bench.provider.record_failure(claim, "refused", MINUTE) is True
        row = await bench.row("eu.price")
        assert row == replace(
            before,
            outstanding=False,
            due_at=bench.now_ms(),
            hold_ms=60_000,
            not_before_at=bench.now_ms() + 60_000,
            failures=1,
            failing_since=bench.now_ms(),
            last_error="refused",
        )
        assert [event.payload for event in await bench.provider.events()] == ['{"price":1}']

    async def test_13_a_failed_poll_is_due_when_its_hold_is_over(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price", every=timedelta(hours=4))
        await bench.provider.record_failure(claim, "refused", timedelta(seconds=60))
        await bench.advance(59.999)
        assert await bench.claim("eu.price", every=timedelta(hours=4)) == []
        await bench.advance(2.001)
        (again,) = await bench.claim("eu.price", every=timedelta(hours=4))
        assert (again.failures, again.lag_ms) == (1, 2000)

    async def test_13_failures_in_a_row_are_counted_until_a_success(self, bench: Bench) -> None:
        began = None
        for count in (1, 2, 3):
            (claim,) = await bench.claim("eu.price")
            assert claim.failures == count - 1
            await bench.provider.record_failure(claim, f"error {count}", MINUTE)
            began = bench.now_ms() if began is None else began
            row = await bench.row("eu.price")
            assert (row.failures, row.failing_since, row.last_error) == (count, began, f"error {count}")
            await bench.advance(60)
        (claim,) = await bench.claim("eu.price")
        await bench.answer(claim, 1)
        row = await bench.row("eu.price")
        assert (row.failures, row.failing_since, row.last_error, row.not_before_at) == (0, None, None, None)

    async def test_13_a_long_error_is_kept_in_part(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.provider.record_failure(claim, "x\ud800" * 10_000, MINUTE)
        error = (await bench.row("eu.price")).last_error
        assert error is not None
        assert 100 < len(error) <= 2000

    async def test_13_an_error_is_kept_as_it_was(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        error = 'HTTP 500:\n\t\x00"é🙂\u2028\\'
        await bench.provider.record_failure(claim, error, MINUTE)
        assert (await bench.row("eu.price")).last_error == error

    async def test_13_a_hint_holds_the_next_call(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        answer = replace(answered(1, claim), hold=timedelta(minutes=10))
        await bench.provider.record_answer(claim, answer)
        row = await bench.row("eu.price")
        assert (row.not_before_at, row.hold_ms) == (bench.now_ms() + 600_000, 600_000)
        await bench.advance(599)
        assert await bench.claim("eu.price") == []
        await bench.advance(1)
        assert len(await bench.claim("eu.price")) == 1

    async def test_13_a_hint_never_makes_a_call_sooner(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.provider.record_answer(claim, replace(answered(1, claim), hold=timedelta(seconds=1)))
        await bench.advance(2)
        assert await bench.claim("eu.price") == []

    async def test_13_paused_polls_are_not_claimed(self, bench: Bench) -> None:
        await bench.claim("eu.a")
        assert await bench.provider.pause_polls(["eu.a", "eu.b", "eu.a"], True) == ["eu.a", "eu.b"]
        assert await bench.provider.pause_polls(["eu.a"], True) == []
        await bench.advance(3600)
        assert [claim.name for claim in await bench.claim("eu.a", "eu.b", "eu.c")] == ["eu.c"]
        assert await bench.provider.pause_polls(["eu.a", "eu.b", "eu.z"], False) == ["eu.a", "eu.b"]
        assert [row.name for row in await bench.provider.poll_rows()] == ["eu.a", "eu.b", "eu.c"]
        assert sorted(claim.name for claim in await bench.claim("eu.a", "eu.b")) == ["eu.a", "eu.b"]

    async def test_13_what_was_out_when_a_poll_was_paused_is_recorded(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.provider.pause_polls(["eu.price"], True)
        assert await bench.answer(claim, 1) != Stale()

    async def test_13_poll_now_makes_due_whatever_held(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.provider.record_failure(claim, "refused", timedelta(hours=5))
        assert await bench.provider.poll_now(["eu.price", "eu.none"]) == ["eu.price"]
        (again,) = await bench.claim("eu.price")
        assert again.failures == 1

    async def test_13_a_call_that_is_out_still_counts_after_poll_now(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.provider.poll_now(["eu.price"])
        assert await bench.answer(claim, 1) != Stale()
        await bench.provider.poll_now(["eu.price"])
        (first,) = await bench.claim("eu.price")
        await bench.provider.poll_now(["eu.price"])
        (second,) = await bench.claim("eu.price")
        assert await bench.answer(first, 2) == Stale()
        assert await bench.answer(second, 1) == Unchanged(timedelta())

    async def test_13_a_forgotten_poll_begins_anew(self, bench: Bench) -> None:
        await bench.change("eu.price", 1)
        (claim,) = await bench.claim("eu.other")
        assert await bench.provider.forget_polls(["eu.price", "eu.other", "eu.none"]) == [
            "eu.other",
            "eu.price",
        ]
        assert await bench.provider.poll_rows() == []
        assert await bench.answer(claim, 1) == Stale()
        assert len(await bench.provider.events()) == 1
        (claim,) = await bench.claim("eu.price")
        assert claim.digest is None

    async def test_13_a_call_from_before_it_was_forgotten_is_stale(self, bench: Bench) -> None:
        (old,) = await bench.claim("eu.price")
        await bench.provider.forget_polls(["eu.price"])
        await bench.advance(1)
        (new,) = await bench.claim("eu.price")
        assert await bench.answer(old, 1) == Stale()
        assert not await bench.provider.record_failure(old, "late", timedelta(minutes=1))
        assert isinstance(await bench.answer(new, 2), Changed)

    async def test_13_rows_are_listed_by_name(self, bench: Bench) -> None:
        await bench.claim("eu.b", "eu.a", "eu.c")
        assert [row.name for row in await bench.provider.poll_rows()] == ["eu.a", "eu.b", "eu.c"]
        rows = await bench.provider.poll_rows(["eu.c", "eu.a", "eu.z"])
        assert [row.name for row in rows] == ["eu.a", "eu.c"]
        assert await bench.provider.poll_rows([]) == []
