"""Promises 15 and 16: lost connections, other versions of the program, and many that start at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

import pytest

from bide.errors import ProviderError, ProviderNewer
from bide.provider import Ack
from bide.testing.conformance.bench import ITEM, KEPT, Absent, Bench, ids_of

_HOUR = timedelta(hours=1)

_R = TypeVar("_R")


class OpeningSuite:
    """What happens to a store as a whole."""

    async def test_15_a_lost_connection_is_worth_asking_again(self, bench: Bench) -> None:
        await bench.put("a", template=KEPT)
        (item,) = await bench.take()
        for number in range(5):
            await bench.drop()
            new = [replace(ITEM, id=f"i{number}")]
            assert len(await _asked_again(partial(bench.provider.enqueue, new))) == 1
        await bench.drop()
        settled = await _asked_again(lambda: bench.provider.settle([Ack(item.token)]))
        assert settled in (["settled"], ["stale"])  # stale: the first time had been heard
        assert await bench.states() == {"a": "done", **{f"i{number}": "ready" for number in range(5)}}

    async def test_15_a_blocked_fetch_outlives_a_lost_connection(self, bench: Bench) -> None:
        fetching = bench.begin_fetch(60)
        await bench.advance(1)
        await bench.drop()
        await _asked_again(lambda: bench.put("a"))
        await bench.advance(5)
        fetches = [fetching]
        fetched = await _asked_again(lambda: bench.ended(fetches.pop() if fetches else bench.begin_fetch(5)))
        await bench.provider.release("blocked")
        assert ids_of(fetched) == ["a"]
        assert [(item.id, item.attempt) for item in await bench.take()] == [("a", 1)]

    async def test_16_an_older_program_leaves_a_newer_store_alone(self, bench: Bench) -> None:
        await bench.put("a")
        try:
            with pytest.raises(ProviderNewer) as raised:
                await bench.open_as_older()
        except Absent as absent:
            pytest.skip(str(absent))
        assert not raised.value.retryable
        assert await bench.states() == {"a": "ready"}

    async def test_16_many_open_a_store_at_once(self, bench: Bench) -> None:
        await bench.put("a")
        async with AsyncExitStack() as stack:
            others = await asyncio.gather(*(stack.enter_async_context(bench.another()) for _ in range(4)))
            taken = [ids_of(await bench.fetch(by=f"f{at}", on=other)) for at, other in enumerate(others)]
        assert sorted(taken) == [[], [], [], ["a"]]

    async def test_16_opening_what_is_open_changes_nothing(self, bench: Bench) -> None:
        await bench.put("a")
        await bench.provider.open()
        assert await bench.states() == {"a": "ready"}

    async def test_16_new_work_outlives_a_restart_with_all_that_belongs_to_it(self, bench: Bench) -> None:
        full = replace(
            KEPT, id="a", key="k", limit_key="l", order_key="o", priority=3, max_attempts=4, delay=2 * _HOUR
        )
        await bench.provider.enqueue([full, replace(KEPT, id="b")])
        (item,) = await bench.take()
        await bench.provider.settle([Ack(item.token, "result")])
        before = await bench.provider.items("q")
        await bench.reopen()
        assert await bench.provider.items("q") == before
        assert [(row.id, row.result, row.key, row.limit_key) for row in before] == [
            ("b", "result", None, None),
            ("a", None, "k", "l"),
        ]


async def _asked_again(ask: Callable[[], Awaitable[_R]]) -> _R:
    """What ``ask`` answers; asked a second time where the first one said that this may help."""
    try:
        return await ask()
    except ProviderError as error:
        if not error.retryable:
            raise
    return await ask()
