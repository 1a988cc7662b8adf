"""Transactions of the caller: promise 6 for whoever is no worker."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bide.errors import KeyConflict, ProviderError
from bide.provider import Enqueued
from bide.testing.conformance.bench import ITEM, Bench, ids_of

_KEYED = replace(ITEM, key="k")


class OnPurpose(Exception):
    """What a caller's own code raises in the middle of its transaction."""


class JoiningSuite:
    """``transaction()`` and ``enqueue_within``."""

    async def test_06_what_is_enqueued_within_a_transaction_is_there_at_its_end(self, bench: Bench) -> None:
        async with bench.provider.transaction() as transaction:
            first = await bench.provider.enqueue_within(transaction, [replace(ITEM, id="a")])
            second = await bench.provider.enqueue_within(
                transaction, [replace(ITEM, id="b", delay=timedelta(seconds=5)), replace(ITEM, id="a")]
            )
            assert await bench.states() == {}
        assert first == [Enqueued("a", new=True)]
        assert second == [Enqueued("b", new=True), Enqueued("a", new=False)]
        assert await bench.states() == {"b": "ready", "a": "ready"}
        assert [item.id for item in await bench.take()] == ["a"]

    async def test_06_an_exception_leaves_nothing_of_a_transaction(self, bench: Bench) -> None:
        async def fail() -> None:
            async with bench.provider.transaction() as transaction:
                await bench.provider.enqueue_within(transaction, [replace(_KEYED, id="a")])
                raise OnPurpose

        with pytest.raises(OnPurpose):
            await fail()
        assert await bench.states() == {}
        assert await bench.provider.enqueue([replace(_KEYED, id="a", payload="[]")]) == [
            Enqueued("a", new=True)
        ]

    async def test_06_a_transaction_with_nothing_in_it_does_nothing(self, bench: Bench) -> None:
        async with bench.provider.transaction() as transaction:
            assert await bench.provider.enqueue_within(transaction, []) == []
        assert await bench.states() == {}

    async def test_06_transactions_come_one_after_the_other(self, bench: Bench) -> None:
        for id in ("a", "b", "c"):
            async with bench.provider.transaction() as transaction:
                await bench.provider.enqueue_within(transaction, [replace(ITEM, id=id)])
        assert sorted(await bench.states()) == ["a", "b", "c"]

    async def test_06_what_cannot_be_kept_fails_its_transaction(self, bench: Bench) -> None:
        async def enqueue_both() -> None:
            async with bench.provider.transaction() as transaction:
                await bench.provider.enqueue_within(transaction, [replace(ITEM, id="a")])
                await bench.provider.enqueue_within(transaction, [replace(ITEM, id="b", payload="\ud800")])

        async with bench.provider.transaction():
            """There are transactions, so that it is the text which is refused."""
        with pytest.raises(ProviderError, match="surrogate"):
            await enqueue_both()
        assert await bench.states() == {}

    async def test_10_keys_count_within_a_transaction(self, bench: Bench) -> None:
        await bench.put("holder", template=_KEYED)
        async with bench.provider.transaction() as transaction:
            joined = await bench.provider.enqueue_within(
                transaction, [replace(_KEYED, id="a"), replace(_KEYED, id="b", key="l")]
            )
            assert joined == [Enqueued("holder", new=False), Enqueued("b", new=True)]
            again = await bench.provider.enqueue_within(transaction, [replace(_KEYED, id="c", key="l")])
            assert again == [Enqueued("b", new=False)]
        assert sorted(await bench.states()) == ["b", "holder"]

    async def test_10_a_conflict_that_was_caught_leaves_the_transaction_as_it_was(self, bench: Bench) -> None:
        await bench.put("holder", template=_KEYED)
        async with bench.provider.transaction() as transaction:
            await bench.provider.enqueue_within(transaction, [replace(ITEM, id="a")])
            conflicting = [replace(ITEM, id="b"), replace(_KEYED, id="c", payload="[]")]
            with pytest.raises(KeyConflict) as raised:
                await bench.provider.enqueue_within(transaction, conflicting)
            assert raised.value.item == "holder"
            await bench.provider.enqueue_within(transaction, [replace(ITEM, id="d")])
        assert sorted(await bench.states()) == ["a", "d", "holder"]

    async def test_06_a_transaction_that_is_not_the_stores_is_refused(self, bench: Bench) -> None:
        for stranger in (object(), None, "BEGIN", 7):
            with pytest.raises(TypeError, match="transaction"):
                await bench.provider.enqueue_within(stranger, [replace(ITEM, id="a")])
        assert await bench.states() == {}

    async def test_06_a_transaction_that_has_ended_takes_nothing(self, bench: Bench) -> None:
        async with bench.provider.transaction() as transaction:
            await bench.provider.enqueue_within(transaction, [replace(ITEM, id="a")])
        with pytest.raises(ProviderError) as raised:
            await bench.provider.enqueue_within(transaction, [replace(ITEM, id="b")])
        assert not raised.value.retryable
        assert await bench.states() == {"a": "ready"}

    async def test_06_statements_of_the_caller_run_or_are_refused(self, bench: Bench) -> None:
        async def execute(statement: str) -> list[tuple[Any, ...]]:
            async with bench.provider.transaction() as transaction:
                return await transaction.execute(statement)

        async with bench.provider.transaction():
            """There are transactions, so that it is the statement which is refused."""
        with pytest.raises(ProviderError):
            await execute("SELECT nothing of sense")
        with suppress(ProviderError):  # of a store without SQL
            assert await execute("SELECT 1 + 1") == [(2,)]

    async def test_01_a_blocked_fetch_ends_when_a_transaction_commits(self, bench: Bench) -> None:
        fetching = bench.begin_fetch(60)
        await bench.advance(1)
        async with bench.provider.transaction() as transaction:
            await bench.provider.enqueue_within(transaction, [replace(ITEM, id="a")])
            assert not fetching.done()
        assert ids_of(await bench.ended(fetching)) == ["a"]
