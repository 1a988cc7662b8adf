"""The suite on a provider that keeps a part of the contract: what it lacks is skipped, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from bide.core.abilities import StoreKind
from bide.errors import Unsupported
from bide.providers.choosing import Turns
from bide.providers.lacking import NoEvents, NoJoining, NoOccurrences, NoPolls
from bide.providers.memory.inspection import MemoryInspection
from bide.providers.memory.store import Store
from bide.providers.memory.work import MemoryWork
from bide.testing import VirtualClock
from bide.testing.conformance import Bench, ProviderSuite

LEAN = StoreKind("Lean", "lean://", frozenset({"polls", "events", "transactions", "periodic"}))


class LeanProvider(NoPolls, NoEvents, NoJoining, NoOccurrences, MemoryWork, MemoryInspection):
    """Keeps work, and nothing else."""

    kind = LEAN

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._store = Store(clock)
        self._clock = clock
        self._turns = Turns()

    async def now(self) -> int:
        return self.clock.utc_ms()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def requests(self) -> Mapping[str, int]:
        return {}


class LeanBench(Bench):
    lacks = dict.fromkeys(LEAN.lacks, "it keeps work alone")
    absent: Mapping[int | str, str] = MappingProxyType({16: "nothing outlives the process"})

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.provider = self.lean = LeanProvider(self.clock)

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def set_back(self, seconds: float) -> None:
        self.clock.step_wall(-seconds)

    async def corrupt(self, item_id: str) -> None:
        self.lean._store.items[item_id].unreadable = "damaged"

    async def reopen(self) -> None: ...

    def now_ms(self) -> int:
        return self.clock.utc_ms()


class TestLean(ProviderSuite):
    @pytest.fixture
    def bench(self) -> Bench:
        return LeanBench()


async def test_what_is_lacking_is_skipped_with_its_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match="not kept: it keeps work alone"):
        await TestLean().test_13_a_new_poll_is_claimed_once(LeanBench())


async def test_what_is_refused_without_being_declared_fails() -> None:
    bench = LeanBench()
    bench.lacks = {"events": "it keeps work alone"}
    with pytest.raises(Unsupported, match="Lean cannot keep polls"):
        await TestLean().test_13_a_new_poll_is_claimed_once(bench)


async def test_what_is_kept_is_tried() -> None:
    await TestLean().test_12_first_come_first_served(LeanBench())


def test_an_absent_test_has_to_exist(request: pytest.FixtureRequest) -> None:
    fixture = getattr(TestLean.made_promises_only, "__wrapped__", None) or TestLean.made_promises_only
    bench = LeanBench()
    bench.absent = {"test_that_nobody_wrote": "for a reason"}
    with pytest.raises(AssertionError, match="there is no test of that name"):
        fixture(TestLean(), request, bench)


async def test_what_is_lacking_reads_as_empty() -> None:
    provider = LeanProvider(VirtualClock())
    assert await provider.poll_rows() == []
    assert await provider.events() == []
    assert await provider.subscriptions() == []
    assert await provider.occurred({}) == {}
    assert await provider.claim_polls([], 1) == []
    assert await provider.register_subscriptions([]) == []
    with pytest.raises(Unsupported, match="cannot enqueue within a transaction"):
        provider.transaction()
