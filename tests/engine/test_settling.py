"""Settlements gather while one batch is under way, and survive a provider that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from bide.engine.health import ProviderHealth
from bide.engine.outcome import GivenBack, Outcome, Retried, Succeeded
from bide.engine.settling import Handled, Settler
from bide.errors import ProviderError
from bide.provider import Abandon, Ack, Bury, Settled, Settlement, WorkItem
from bide.providers.memory import MemoryProvider
from bide.telemetry import ProviderDown, ProviderUp, Record, Telemetry
from bide.testing import VirtualClock


class Slow(MemoryProvider):
    """Takes a second to settle, and remembers the batches. ``refused`` are tokens that it never settles as asked."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.batches: list[list[Settlement]] = []
        self.errors: list[ProviderError] = []
        self.refused: set[str] = set()
        self.buries = True

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        await self.clock.sleep(1)
        self.batches.append(list(settlements))
        if self.errors:
            raise self.errors.pop(0)
        for each in settlements:
            if each.token in self.refused and not (self.buries and isinstance(each, Bury)):
                raise ProviderError(f"{each.token} is refused")
        return ["stale" if each.token == "stale" else "settled" for each in settlements]

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]


def item(token: str) -> WorkItem:
    return WorkItem(f"item-{token}", "q", "n", "{}", token, 1, 0, 0, None, None)


class Rig:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.provider = Slow(self.clock)
        self.answers: dict[str, Settled | None] = {}
        telemetry, self.told = Telemetry(), list[Record]()
        telemetry.listen(self.told.append)
        health = ProviderHealth("q", self.clock, telemetry)
        self.settler = Settler(self.provider, self.clock, health, self._answered)

    def _answered(self, batch: Sequence[Handled], answers: Sequence[Settled | None]) -> None:
        for (handled, _, _), answer in zip(batch, answers, strict=True):
            self.answers[handled.token] = answer

    def add(self, *tokens: str, outcome: Outcome | None = Succeeded()) -> None:  # noqa: B008 - immutable
        for token in tokens:
            self.settler.add(item(token), outcome, 0.0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        running = asyncio.ensure_future(self.settler.run())
        yield
        running.cancel()
        await asyncio.wait({running})


async def test_one_is_settled_at_once_and_others_gather_while_a_batch_is_under_way() -> None:
    rig = Rig()
    async with rig.running():
        rig.add("0")
        await rig.clock.advance(0.5)
        rig.add(*(str(n) for n in range(1, 40)))
        rig.add("stale", outcome=Retried("no", timedelta()))
        assert len(rig.settler) == 41
        await rig.clock.advance(2)
        assert rig.provider.sizes == [1, 40]
        assert rig.answers.pop("stale") == "stale"
        assert set(rig.answers.values()) == {"settled"}
        assert len(rig.settler) == 0
        rig.add("y")
        await rig.clock.advance(1)
        assert rig.answers["y"] == "settled"


async def test_a_provider_that_is_away_is_asked_again_with_back_off_and_what_gathers_goes_along() -> None:
    rig = Rig()
    rig.provider.errors = [ProviderError("locked", retryable=True) for _ in range(3)]
    async with rig.running():
        rig.add("a")
        await rig.clock.advance(1.05)
        rig.add("b")
        await rig.clock.advance(3 + 0.1 + 0.2 + 0.4)
    assert rig.provider.sizes == [1, 2, 2, 2]
    assert rig.answers == {"a": "settled", "b": "settled"}
    assert [type(each) for each in rig.told] == [ProviderDown, ProviderUp]


async def test_what_is_refused_for_good_is_tried_alone_and_buried_with_the_reason() -> None:
    rig = Rig()
    rig.provider.refused = {"bad"}
    async with rig.running():
        rig.add("a", "bad", "b")
        await rig.clock.advance(10)
    assert rig.provider.sizes == [3, 1, 1, 1, 1]
    assert rig.answers == {"a": "settled", "bad": "settled", "b": "settled"}
    (buried,) = [each for batch in rig.provider.batches for each in batch if isinstance(each, Bury)]
    assert buried.token == "bad"
    assert "bad is refused" in buried.error
    assert rig.told == [], "the store is well"


async def test_what_cannot_even_be_buried_is_let_go_of() -> None:
    rig = Rig()
    rig.provider.refused, rig.provider.buries = {"bad"}, False
    async with rig.running():
        rig.add("a", "bad")
        await rig.clock.advance(10)
        assert rig.answers == {"a": "settled", "bad": None}
        assert len(rig.settler) == 0


async def test_what_was_not_handled_is_never_buried_for_a_refusal() -> None:
    rig = Rig()
    rig.provider.refused = {"a", "b"}
    async with rig.running():
        rig.add("a", outcome=None)
        rig.add("b", outcome=GivenBack("not yet", timedelta()))
        await rig.clock.advance(10)
    assert rig.answers == {"a": None, "b": None}
    assert not any(isinstance(each, Bury) for batch in rig.provider.batches for each in batch)


async def test_what_was_never_begun_is_given_back_uncounted_with_its_last_error_as_it_was() -> None:
    rig = Rig()
    async with rig.running():
        rig.add("a", outcome=None)
        rig.add("b")
        await rig.clock.advance(1)
    assert rig.provider.batches == [[Abandon("a", timedelta(), None, count_attempt=False), Ack("b")]]


async def test_ended_it_forgets_what_is_not_settled() -> None:
    rig = Rig()
    async with rig.running():
        rig.add("a")
        await rig.clock.advance(0.5)
        rig.add("b")
    assert len(rig.settler) == 0
    async with rig.running():
        rig.add("c")
        await rig.clock.advance(1)
    assert list(rig.answers) == ["c"]
