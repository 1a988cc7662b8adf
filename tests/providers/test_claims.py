"""The claim of every provider is the rule of ``core.claim``, on any row there can be."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import apsw
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.core.claim import is_claimable, next_due_at, phase_ms
from bide.provider import Claim, PollRow, Schedule
from bide.providers.memory import MemoryProvider
from bide.providers.sqlite import SqliteProvider
from bide.testing import VirtualClock
from tests.providers.postgres_bench import PostgresBench
from tests.providers.postgres_server import Server

NOW = 1_750_000_000_000

offsets = st.one_of(
    st.sampled_from([0, 1, -1, 5_000, 30_000, 30_001, 60_000, 60_001, 120_000, 120_001, -60_000]),
    st.integers(-(10**9), 10**9),
)
intervals = st.sampled_from([1, 2, 3, 999, 1_000, 60_000, 60_001, 14_400_000])


@dataclass(frozen=True)
class Kept:
    due: int
    not_before: int | None
    hold_ms: int
    outstanding: bool
    every_ms: int | None
    paused: bool


rows = st.builds(
    Kept,
    due=offsets.map(lambda offset: NOW + offset),
    not_before=st.one_of(st.none(), offsets.map(lambda offset: NOW + offset)),
    hold_ms=st.sampled_from([0, 1, 1_000, 90_000, 10**8]),
    outstanding=st.booleans(),
    every_ms=st.one_of(st.none(), intervals),
    paused=st.sampled_from([False, False, False, True]),
)
cases = st.lists(st.tuples(st.one_of(st.none(), rows), intervals), min_size=1, max_size=12)


def as_row(name: str, kept: Kept) -> PollRow:
    return PollRow(
        name=name,
        due_at=kept.due,
        not_before_at=kept.not_before,
        hold_ms=kept.hold_ms,
        outstanding=kept.outstanding,
        every_ms=kept.every_ms,
        generation=7,
        digest=None,
        changed_at=None,
        called_at=None,
        answered_at=None,
        failures=0,
        failing_since=None,
        last_error=None,
        paused=kept.paused,
        event_id=None,
    )


async def claim_from_sqlite(
    path: Path, wanted: list[tuple[PollRow | None, Schedule]], slack: timedelta, limit: int
) -> list[Claim]:
    provider = SqliteProvider(path, clock=VirtualClock(start_ms=NOW), synchronous="NORMAL")
    await provider.open()
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM polls")
    for row, _ in wanted:
        if row is not None:
            connection.execute(
                "INSERT INTO polls (name, due, not_before, hold_ms, outstanding, every_ms, generation, paused) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    row.name,
                    row.due_at,
                    row.not_before_at,
                    row.hold_ms,
                    int(row.outstanding),
                    row.every_ms,
                    row.generation,
                    int(row.paused),
                ),
            )
    connection.close()
    claims = await provider.claim_polls([schedule for _, schedule in wanted], limit, slack=slack)
    await provider.close()
    return claims


async def claim_from_memory(
    wanted: list[tuple[PollRow | None, Schedule]], slack: timedelta, limit: int
) -> list[Claim]:
    provider = MemoryProvider(VirtualClock(start_ms=NOW))
    provider.place([row for row, _ in wanted if row is not None])
    return await provider.claim_polls([schedule for _, schedule in wanted], limit, slack=slack)


async def claim_from_postgres(
    bench: PostgresBench, wanted: list[tuple[PollRow | None, Schedule]], slack: timedelta, limit: int
) -> list[Claim]:
    rows = [
        (
            row.name,
            row.due_at,
            row.not_before_at,
            row.hold_ms,
            row.outstanding,
            row.every_ms,
            row.generation,
            row.paused,
        )
        for row, _ in wanted
        if row is not None
    ]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * 8
    await bench.sql("DELETE FROM claims.polls")
    await bench.sql(
        "INSERT INTO claims.polls (name, due, not_before, hold_ms, outstanding, every_ms, generation, paused) "
        "SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bool[], $6::bigint[], "
        "$7::bigint[], $8::bool[])",
        *columns,
    )
    return await bench.provider.claim_polls([schedule for _, schedule in wanted], limit, slack=slack)


def test_postgres_claims_by_the_rule(server: Server) -> None:
    bench = PostgresBench(server, "claims", clock=VirtualClock(start_ms=NOW))
    with asyncio.Runner() as runner:
        runner.run(bench.open())

        @settings(max_examples=60, deadline=None)
        @given(cases, st.sampled_from([0, 500, 30_000]), st.sampled_from([3, 100]))
        def check(given_cases: list[tuple[Kept | None, int]], slack_ms: int, limit: int) -> None:
            wanted = wanted_of(given_cases)
            slack = timedelta(milliseconds=slack_ms)
            found = runner.run(claim_from_postgres(bench, wanted, slack, limit))
            assert found == runner.run(claim_from_memory(wanted, slack, limit))

        check()
        runner.run(bench.provider.close())


def wanted_of(given_cases: list[tuple[Kept | None, int]]) -> list[tuple[PollRow | None, Schedule]]:
    return [
        (
            None if kept is None else as_row(f"eu.p{at}", kept),
            Schedule(f"eu.p{at}", timedelta(milliseconds=every_ms)),
        )
        for at, (kept, every_ms) in enumerate(given_cases)
    ]


def test_every_provider_claims_by_the_rule(tmp_path: Path) -> None:
    @settings(max_examples=100, deadline=None)
    @given(cases, st.sampled_from([0, 500, 30_000]), st.sampled_from([3, 100]))
    def check(given_cases: list[tuple[Kept | None, int]], slack_ms: int, limit: int) -> None:
        wanted = wanted_of(given_cases)
        slack = timedelta(milliseconds=slack_ms)
        expected = {
            schedule.name: next_due_at(NOW, every_ms, phase_ms(schedule.name, every_ms))
            for (row, schedule), (_, every_ms) in zip(wanted, given_cases, strict=True)
            if is_claimable(row, now=NOW, every_ms=every_ms, slack_ms=slack_ms)
        }
        found = asyncio.run(claim_from_sqlite(tmp_path / "bide.db", wanted, slack, limit))
        assert found == asyncio.run(claim_from_memory(wanted, slack, limit))
        claimed = {claim.name: claim.next_due_at for claim in found}
        assert claimed.items() <= expected.items()
        assert len(claimed) == min(len(expected), limit)

    check()
