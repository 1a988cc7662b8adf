"""The memory provider keeps every promise: it is the reference model."""

from __future__ import annotations

import pytest

from bide.errors import ProviderError
from bide.provider import NewItem
from bide.providers.memory import MemoryProvider
from bide.testing import VirtualClock
from bide.testing.benches.memory import MemoryBench
from bide.testing.conformance import Absent, Bench, ProviderSuite


class TestMemoryProvider(ProviderSuite):
    @pytest.fixture
    def bench(self) -> Bench:
        return MemoryBench()

    async def test_16_an_older_program_leaves_a_newer_store_alone(self, bench: Bench) -> None:
        with pytest.raises(Absent, match="no version"):
            await bench.open_as_older()


async def test_what_others_took_while_a_transaction_was_open_fails_it() -> None:
    provider = MemoryProvider(VirtualClock())
    item = NewItem(id="a", queue="q", name="n", payload="{}", key="k")

    async def overtaken() -> None:
        async with provider.transaction() as transaction:
            await provider.enqueue_within(transaction, [item])
            await provider.enqueue([NewItem(id="b", queue="q", name="n", payload="{}", key="k")])

    with pytest.raises(ProviderError, match="run it again") as raised:
        await overtaken()
    assert raised.value.retryable
    assert [row.id for row in await provider.items("q")] == ["b"]


async def test_a_transaction_of_another_store_is_refused() -> None:
    mine, other = MemoryProvider(VirtualClock()), MemoryProvider(VirtualClock())
    async with other.transaction() as transaction:
        with pytest.raises(TypeError, match="no transaction of this store"):
            await mine.enqueue_within(transaction, [])


async def test_objects_beside_each_other_see_the_same_store() -> None:
    clock = VirtualClock()
    first = MemoryProvider(clock)
    second = MemoryProvider(clock, beside=first)
    await second.enqueue([NewItem(id="a", queue="q", name="n", payload="{}")])
    assert [row.id for row in await first.items("q")] == ["a"]
