"""What statements cost: as much beside a hundred thousand rows that they do not concern as beside none."""

from __future__ import annotations

from datetime import timedelta

from bide.clock import SystemClock
from bide.provider import ZERO, Abandon, Ack, Items, Limit, NewItem, Schedule
from bide.providers.postgres import PostgresProvider
from bide.testing.conformance.bench import answered
from tests.providers.postgres_server import Server, run_sql

OTHERS = 30_000
MOST_ROWS = 1_500
"""Rows that everything below may look at together: it concerns about two hundred, each several times."""

_CROWD = f"""
INSERT INTO costs.work_items (id, queue, name, state, payload, rank, visible_at, enqueued_at, ended_at, key)
SELECT state || at, 'q', 'other', state, '{{}}', at, at, at, CASE WHEN state = 'done' THEN at END,
    CASE WHEN state = 'done' THEN at::text END
FROM generate_series(1, {OTHERS}) AS at, unnest(ARRAY['ready', 'done']) AS state
"""

_TENANTS = f"""
INSERT INTO costs.work_items (id, queue, name, state, payload, rank, visible_at, enqueued_at, limit_key)
SELECT 'tenant' || at, 'tenants', 'n', 'ready', '{{}}', at, at, at, 'k' || at % 10
FROM generate_series(1, {OTHERS}) AS at
"""

_POLLS = (
    f"INSERT INTO costs.polls (name, due) SELECT 'other.p' || at, 0 FROM generate_series(1, {OTHERS}) AS at"
)

_ENDED = _CROWD.replace("'ready', ", "")

_LAPSED = """
INSERT INTO costs.work_items (id, queue, name, state, payload, rank, visible_at, enqueued_at, token,
    locked_until, lock_ms)
VALUES ('lapsed', 'q', 'n', 'running', '{}', 1, 1, 1, 'x', 2, 1)
"""

_READ = """
SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables WHERE schemaname = 'costs'
"""


async def test_what_does_not_concern_a_statement_costs_it_nothing(server: Server) -> None:
    await run_sql(server.address(), "DROP SCHEMA IF EXISTS costs CASCADE")
    provider = PostgresProvider(server.address(options="?schema=costs&pool=1"), clock=SystemClock())
    await provider.open()
    await work_a_little(provider, "warm")  # plans are made while the tables are empty
    for statement in (_CROWD, _POLLS, "ANALYZE costs.work_items", "ANALYZE costs.polls"):
        await run_sql(server.address(), statement)
    before = await rows_read(server, provider)
    await work_a_little(provider, "now")
    assert await rows_read(server, provider) - before < MOST_ROWS
    await provider.close()


async def test_a_limit_is_kept_without_looking_at_all_that_it_holds_back(server: Server) -> None:
    await run_sql(server.address(), "DROP SCHEMA IF EXISTS costs CASCADE")
    provider = PostgresProvider(server.address(options="?schema=costs&pool=1"), clock=SystemClock())
    await provider.open()
    await provider.enqueue(
        [NewItem(f"first{at}", "tenants", "n", "{}", limit_key=f"k{at}") for at in range(10)]
    )
    assert len(await of_tenants(provider, 10)) == 10  # plans are made while there is little
    await run_sql(server.address(), _TENANTS)
    await run_sql(server.address(), "ANALYZE costs.work_items")
    before = await rows_read(server, provider)
    assert len(await of_tenants(provider, 10)) == 10
    assert await of_tenants(provider, 10) == []
    assert await rows_read(server, provider) - before < MOST_ROWS
    await provider.close()


async def test_a_page_of_few_among_many_costs_what_is_on_it(server: Server) -> None:
    await run_sql(server.address(), "DROP SCHEMA IF EXISTS costs CASCADE")
    provider = PostgresProvider(server.address(options="?schema=costs&pool=1"), clock=SystemClock())
    await provider.open()
    for statement in (_ENDED, _LAPSED, "ANALYZE costs.work_items"):
        await run_sql(server.address(), statement)
    before = await rows_read(server, provider)
    assert await provider.items("q", states=["running", "dead"]) == []
    assert [row.id for row in await provider.items("q", states=["ready"])] == ["lapsed"]
    assert await provider.discard(["lapsed"], "not wanted") == ["lapsed"]
    assert [row.id for row in await provider.items("q", states=["dead"])] == ["lapsed"]
    assert await rows_read(server, provider) - before < MOST_ROWS
    await provider.close()


async def of_tenants(provider: PostgresProvider, limit: int) -> list[str]:
    fetched = await provider.fetch_work_items(
        ["tenants"],
        ["n"],
        limit=limit,
        lock_timeout=timedelta(seconds=30),
        poll_timeout=ZERO,
        fetch_token="f",
        limits={"tenants": Limit(queue=100, per_key=2)},
    )
    return [item.id for item in fetched.items] if isinstance(fetched, Items) else []


async def work_a_little(provider: PostgresProvider, label: str) -> None:
    for turn in range(2):
        await provider.enqueue([NewItem(f"{label}.{turn}.{at}", "q", "n", "{}") for at in range(20)])
        fetched = await provider.fetch_work_items(
            ["q", "p"],
            ["n", "m"],
            limit=50,
            lock_timeout=timedelta(seconds=30),
            poll_timeout=ZERO,
            fetch_token="f",
        )
        assert isinstance(fetched, Items)
        tokens = [item.token for item in fetched.items]
        assert await provider.renew(tokens, timedelta(seconds=30)) == [True] * 20
        assert (
            await provider.settle([Abandon(tokens[0], timedelta(days=1)), *map(Ack, tokens[1:])])
            == ["settled"] * 20
        )
        keyed = [NewItem(f"{label}.{turn}.key.{at}", "q", "o", "{}", key=f"{turn}.{at}") for at in range(10)]
        assert {one.new for one in await provider.enqueue(keyed)} == {label == "warm"}
        await provider.fetch_work_items(
            ["q"], ["m"], limit=5, lock_timeout=timedelta(seconds=30), poll_timeout=ZERO, fetch_token="f"
        )
        schedules = [Schedule(f"{label}.p{at}", timedelta(hours=1)) for at in range(10)]
        await provider.poll_now([schedule.name for schedule in schedules])
        for claim in await provider.claim_polls(schedules, 10):
            await provider.record_answer(claim, answered(1, claim))
        await provider.prune(timedelta(days=36_500))


async def rows_read(server: Server, provider: PostgresProvider) -> int:
    """Rows of tables that statements have looked at so far."""
    await provider._database.rows("SELECT pg_stat_force_next_flush()")
    await provider.now()
    return int((await run_sql(server.address(), _READ))[0][0])
