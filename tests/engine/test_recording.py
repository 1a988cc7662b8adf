"""Answers are recorded in batches, and one that is refused holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from bide.core.conditional import Validators
from bide.engine.recording import RECORD_TRIES, Answer, AnswerRecorder
from bide.errors import ProviderError
from bide.provider import Claim, NotModified, Recorded, Unchanged
from bide.providers.memory import MemoryProvider
from bide.testing import VirtualClock

SAME = NotModified(Validators('"a"'))


def claim(name: str) -> Claim:
    return Claim(name, 1, 0, 60_000, 0, 0, Validators(), None, timedelta(), None)


class Batches(MemoryProvider):
    """Keeps nothing; ``faults`` says what a batch of names raises."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.batches: list[list[str]] = []
        self.faults: dict[str, ProviderError] = {}
        self.busy = asyncio.Event()
        self.busy.set()

    async def record_answers(self, answers: Sequence[Answer]) -> list[Recorded]:
        names = [given.name for given, _ in answers]
        self.batches.append(names)
        await self.busy.wait()
        for name in names:
            if name in self.faults:
                raise self.faults[name]
        return [Unchanged() for _ in names]


async def test_answers_that_come_while_a_batch_is_on_its_way_go_together_in_the_next() -> None:
    clock = VirtualClock()
    provider = Batches(clock)
    recorder, told = AnswerRecorder(provider, clock), list[object]()
    provider.busy.clear()
    recorder.record(claim("a"), SAME, told.append)
    await asyncio.sleep(0)
    for name in ("b", "c", "d"):
        recorder.record(claim(name), SAME, told.append)
    provider.busy.set()
    await clock.advance(0)
    assert len(told) == 4
    assert provider.batches == [["a"], ["b", "c", "d"]]


async def test_an_answer_that_is_refused_for_good_holds_up_no_other() -> None:
    clock = VirtualClock()
    provider = Batches(clock)
    refused = ProviderError("cannot be stored")
    provider.faults["b"] = refused
    recorder, told = AnswerRecorder(provider, clock), dict[str, object]()
    for name in ("a", "b", "c"):
        recorder.record(claim(name), SAME, lambda outcome, name=name: told.update({name: outcome}))  # type: ignore[misc]
    await clock.advance(0)
    assert told == {"a": Unchanged(), "b": refused, "c": Unchanged()}


async def test_a_provider_that_stays_away_is_asked_a_few_times_and_then_told() -> None:
    clock = VirtualClock(autojump=True)
    provider = Batches(clock)
    away = ProviderError("no connection", retryable=True)
    provider.faults["a"] = away
    recorder, told = AnswerRecorder(provider, clock), list[object]()
    recorder.record(claim("a"), SAME, told.append)
    while not told:
        await clock.sleep(1)
    assert told == [away]
    assert len(provider.batches) == RECORD_TRIES


async def test_nothing_more_is_recorded_once_it_is_cancelled() -> None:
    provider = Batches(VirtualClock())
    recorder, told = AnswerRecorder(provider, VirtualClock()), list[object]()
    provider.busy.clear()
    recorder.record(claim("a"), SAME, told.append)
    await asyncio.sleep(0)
    recorder.record(claim("b"), SAME, told.append)
    recorder.cancel()
    provider.busy.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (provider.batches, told) == ([["a"]], [])
