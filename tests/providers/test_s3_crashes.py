"""A process may die after any request of any operation: what it began is there as a whole afterwards, or not at all.

Each operation is run by a process that dies after its first, second, third … request. Then time passes, locks expire,
and others sweep. What they see is what they would have seen had the operation never begun, or had it been finished;
nothing of it is left when the rest has been worked off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from bide.provider import DELIVERIES, Abandon, Ack, Bury, NewItem, Provider
from bide.providers.s3.names import CLOCK, MARKER, META, SWEEP
from bide.testing.conformance.bench import ITEM, KEPT, LOCK, MINUTE, answered
from tests.providers.s3_bench import S3Bench
from tests.providers.s3_crashing import Died, mortal
from tests.providers.s3_server import S3Server

_KEYED = replace(ITEM, key="k")
_MONTH = timedelta(days=30)
_ENOUGH = 400
"""No operation here makes so many requests."""

Prepare = Callable[[S3Bench, Provider], Awaitable[Any]]
Act = Callable[[Provider, Any], Awaitable[object]]


@dataclass(frozen=True)
class Operation:
    """``act`` is what the process dies in; ``prepare`` is done before, and says what ``act`` needs."""

    name: str
    act: Act
    prepare: Prepare


async def _nothing(bench: S3Bench, provider: Provider) -> None:
    """There is nothing to prepare."""


def _enqueues(*items: NewItem) -> Act:
    return lambda provider, _: provider.enqueue(items)


def _taken(template: NewItem) -> Prepare:
    async def prepare(bench: S3Bench, provider: Provider) -> Any:
        await provider.enqueue([replace(template, id="a")])
        (item,) = await bench.take(on=provider)
        return item.token

    return prepare


def _ended(template: NewItem) -> Prepare:
    async def prepare(bench: S3Bench, provider: Provider) -> Any:
        token = await _taken(template)(bench, provider)
        await provider.settle([Bury(token, "bad")])

    return prepare


def _waiting(*items: NewItem) -> Prepare:
    async def prepare(bench: S3Bench, provider: Provider) -> Any:
        await provider.enqueue(items)

    return prepare


async def _claimed(bench: S3Bench, provider: Provider) -> Any:
    await bench.subscribe("a", "b")
    await bench.claim("eu.price")
    await bench.provider.poll_now(["eu.price"])
    (claim,) = await bench.claim("eu.price")
    return claim


async def _scheduled(bench: S3Bench, provider: Provider) -> Any:
    await provider.occurred({"s": ("hourly", 1)})


async def _subscribed(bench: S3Bench, provider: Provider) -> Any:
    await bench.subscribe("a", "b")
    await bench.change("eu.price", 1)


async def _join(provider: Provider, _: Any) -> None:
    async with provider.transaction() as transaction:
        await provider.enqueue_within(transaction, [replace(_KEYED, id="b")])
        await provider.enqueue_within(transaction, [replace(ITEM, id="c")])


async def _old(bench: S3Bench, provider: Provider) -> Any:
    await _ended(_KEYED)(bench, provider)
    await bench.advance(_MONTH.total_seconds() + 1)
    await provider.now()


_A, _B, _C = (replace(ITEM, id=id) for id in "abc")
_LATE = replace(ITEM, id="a", within=timedelta(seconds=1))


async def _outlived(bench: S3Bench, provider: Provider) -> Any:
    await provider.enqueue([_LATE])
    await bench.advance(2)
    await provider.now()


OPERATIONS = (
    Operation("enqueue", _enqueues(_A), _nothing),
    Operation("enqueue many", _enqueues(_A, _B, _C), _nothing),
    Operation("enqueue with a key", _enqueues(replace(_KEYED, id="a")), _nothing),
    Operation("enqueue many with a key", _enqueues(replace(_KEYED, id="a"), _B), _nothing),
    Operation("commit", _join, _nothing),
    Operation("take", lambda provider, _: _take(provider), _waiting(_A, _B)),
    Operation("ack", lambda provider, token: provider.settle([Ack(token)]), _taken(ITEM)),
    Operation("ack with a result", lambda provider, token: provider.settle([Ack(token, "r")]), _taken(KEPT)),
    Operation("ack with a key", lambda provider, token: provider.settle([Ack(token)]), _taken(_KEYED)),
    Operation(
        "ack that enqueues",
        lambda provider, token: provider.settle([Ack(token, enqueue=(_B, replace(_KEYED, id="c")))]),
        _taken(ITEM),
    ),
    Operation(
        "ack with a result that enqueues",
        lambda provider, token: provider.settle([Ack(token, "r", (_B,))]),
        _taken(KEPT),
    ),
    Operation(
        "abandon", lambda provider, token: provider.settle([Abandon(token, MINUTE, "later")]), _taken(ITEM)
    ),
    Operation("bury", lambda provider, token: provider.settle([Bury(token, "bad")]), _taken(ITEM)),
    Operation("renew", lambda provider, token: provider.renew([token], LOCK), _taken(ITEM)),
    Operation("release", lambda provider, _: provider.release("fetch"), _taken(ITEM)),
    Operation("requeue", lambda provider, _: provider.requeue(["a"]), _ended(_KEYED)),
    Operation("discard", lambda provider, _: provider.discard(["a"], "not wanted"), _waiting(_A)),
    Operation(
        "purge",
        lambda provider, _: provider.purge("q", states=["ready"]),
        _waiting(replace(_KEYED, id="a")),
    ),
    Operation("prune", lambda provider, _: provider.prune(_MONTH), _old),
    Operation("prune a life", lambda provider, _: provider.prune(_MONTH), _outlived),
    Operation("occur", lambda provider, _: provider.occur("s", 2, replace(_KEYED, id="a")), _scheduled),
    Operation(
        "record a change", lambda provider, claim: provider.record_answer(claim, answered(1, claim)), _claimed
    ),
    Operation(
        "end a subscription", lambda provider, _: provider.end_subscriptions(["a"], "410"), _subscribed
    ),
)


async def _take(provider: Provider) -> object:
    return await provider.fetch_work_items(
        ["q"], ["n"], limit=5, lock_timeout=LOCK, poll_timeout=timedelta(), fetch_token="fetch"
    )


@pytest.fixture
def server(durable_s3_server: S3Server) -> S3Server:
    return durable_s3_server


@pytest.fixture
async def made(server: S3Server) -> AsyncIterator[Callable[[], Awaitable[S3Bench]]]:
    benches: list[S3Bench] = []

    async def make() -> S3Bench:
        benches.append(S3Bench(server))
        await benches[-1].open()
        return benches[-1]

    yield make
    for bench in benches:
        await bench.close()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_whoever_dies_leaves_all_of_an_operation_or_nothing(
    operation: Operation, made: Callable[[], Awaitable[S3Bench]]
) -> None:
    never, _ = await _ended_state(await made(), operation, 0)
    finished, requests = await _ended_state(await made(), operation, _ENOUGH)
    assert 0 < requests < _ENOUGH
    for survived in range(1, requests):
        state, _ = await _ended_state(await made(), operation, survived)
        assert state in (never, finished), f"after {survived} of {requests} requests"


async def _ended_state(bench: S3Bench, operation: Operation, survived: int) -> tuple[Any, int]:
    """What others see after an operation of which so many requests were made; and how many were."""
    async with mortal(bench) as (provider, bucket):
        prepared = await operation.prepare(bench, provider)
        bucket.count_down(survived)
        try:
            await operation.act(provider, prepared)
        except Died:
            assert bucket.made == survived
        requests = bucket.made
    await bench.reopen()
    await bench.advance(600)
    await bench.provider.prune(2 * _MONTH)
    state = await _state(bench)
    await _work_off(bench)
    await _leaves_nothing(bench)
    return state, requests


async def _state(bench: S3Bench) -> Any:
    items = {
        row.id: (row.queue, row.state, row.deaths, row.error, row.result, row.key)
        for queue in ("q", DELIVERIES)
        for row in await bench.provider.items(queue, limit=1000)
    }
    events = [(event.seq, event.payload) for event in await bench.provider.events()]
    rows = [(row.name, row.event_id is None, row.digest) for row in await bench.provider.poll_rows()]
    occurred = await bench.provider.occurred({"s": ("hourly", 0)})
    ended = [(row.subscription.name, row.ended_reason) for row in await bench.provider.subscriptions()]
    return items, events, rows, occurred, ended


async def _work_off(bench: S3Bench) -> None:
    """Everything that waits is fetched and done: whatever is there can be."""
    waiting = [
        row.id
        for queue in ("q", DELIVERIES)
        for row in await bench.provider.items(queue, states=["ready"], limit=1000)
    ]
    done: list[str] = []
    await bench.advance(3600)
    for _ in range(10):
        items = await bench.take(100, queues=["q", DELIVERIES], names=["n", "a", "b"])
        done += [item.id for item in items]
        await bench.provider.settle([Ack(item.token) for item in items])
    assert sorted(done) == sorted(waiting)


async def _leaves_nothing(bench: S3Bench) -> None:
    """A year later there is nothing of any item: no object that the layout does not name."""
    await bench.provider.forget_polls(["eu.price"])
    for _ in range(4):
        await bench.advance(90 * 86_400)
        await bench.provider.prune(_MONTH)
    left = {one.key for one in await (await bench.bucket()).all("")}
    named = {META, MARKER, SWEEP, "schedules/s", "subscriptions"}
    assert {key for key in left - named if not key.startswith(CLOCK)} == set()
