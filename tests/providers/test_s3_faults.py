"""S3 answers 409, 412, 404 and 503, loses answers and lists late: different things, and nothing is done twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from obstore import exceptions

from bide.errors import ProviderError
from bide.provider import Ack, Bury, Contended, Empty, Enqueued
from bide.providers.s3 import S3Provider
from bide.providers.s3.bucket import Found, Lost, Missing, Page, Written
from bide.testing import VirtualClock
from bide.testing.benches.s3 import StampedBucket
from bide.testing.conformance.bench import ITEM, KEPT, LOCK, ids_of
from tests.providers.s3_bench import S3Bench
from tests.providers.s3_server import S3Server

CONFLICT = "status code: 409 Conflict: <Error><Code>ConditionalRequestConflict</Code></Error>"
SLOW = "status code: 503 Service Unavailable: <Error><Code>SlowDown</Code></Error>"
LOST = "HTTP error: connection closed before message completed"


class FaultyBucket(StampedBucket):
    """A real server behind faults: each of ``scripts`` is used once, for the first write of a key that begins so."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.scripts: list[tuple[str, str, bool]] = []
        """Beginning of the key, error, and whether the write is done all the same."""
        self.hidden: set[str] = set()
        """Beginnings of keys that listings do not show yet."""

    async def _put(self, key: str, body: bytes, mode: Any) -> Any:
        for script in self.scripts:
            prefix, error, is_done = script
            if key.startswith(prefix):
                self.scripts.remove(script)
                if is_done:
                    await super()._put(key, body, mode)
                    self._stamps.put(key)
                raise exceptions.GenericError(error)
        return await super()._put(key, body, mode)

    async def page(self, prefix: str, after: str | None = None) -> Page:
        page = await super().page(prefix, after)
        shown = tuple(one for one in page.objects if not one.key.startswith(tuple(self.hidden)))
        return Page(shown, page.whole)


class FaultyBench(S3Bench):
    """Its own provider is the one with the faults."""

    def __init__(self, server: S3Server) -> None:
        super().__init__(server, clock=VirtualClock(autojump=True))
        self.faulty = FaultyBucket(self.address, self.clock, self.stamps)
        self.provider = self.s3 = S3Provider(self.s3_text, clock=self.clock, bucket=self.faulty)
        self.watched.append(self.s3)


@pytest.fixture
async def bench(s3_server: S3Server) -> AsyncIterator[FaultyBench]:
    bench = FaultyBench(s3_server)
    await bench.open()
    await bench.provider.now()
    yield bench
    await bench.close()


async def test_409_is_no_answer_yet(bench: FaultyBench) -> None:
    bench.faulty.scripts = [("items/", CONFLICT, False)] * 2
    assert await bench.provider.enqueue([replace(ITEM, id="a")]) == [Enqueued("a", new=True)]
    bench.faulty.scripts = [("items/", CONFLICT, False)]
    assert ids_of(await bench.fetch()) == ["a"]


async def test_409_that_does_not_end_is_worth_asking_again_later(bench: FaultyBench) -> None:
    bench.faulty.scripts = [("items/", CONFLICT, False)] * 6
    with pytest.raises(ProviderError):
        await bench.put("a")
    await bench.put("a")
    assert ids_of(await bench.fetch()) == ["a"]


async def test_409_and_then_412_is_lost(bench: FaultyBench) -> None:
    async with bench.another() as other:
        await other.enqueue([replace(ITEM, id="a", payload="theirs")])
    bench.faulty.scripts = [("items/", CONFLICT, False)]
    assert await bench.provider.enqueue([replace(ITEM, id="a")]) == [Enqueued("a", new=False)]
    (item,) = await bench.take()
    assert item.payload == "theirs"


async def test_if_match_on_what_is_gone_is_lost(bench: FaultyBench) -> None:
    written = await bench.faulty.put("x", b"1")
    await bench.faulty.delete(["x"])
    assert await bench.faulty.replace("x", b"2", written.etag) == Lost()
    assert await bench.faulty.get("x") == Missing()


async def test_a_write_whose_answer_was_lost_is_settled_by_reading_back(bench: FaultyBench) -> None:
    bench.faulty.scripts = [("items/", LOST, True)]
    assert await bench.provider.enqueue([replace(KEPT, id="a")]) == [Enqueued("a", new=True)]
    bench.faulty.scripts = [("items/", LOST, True)]
    (item,) = await bench.take()
    assert (item.id, item.attempt) == ("a", 1)
    bench.faulty.scripts = [("items/", LOST, True)]
    assert await bench.provider.renew([item.token], LOCK) == [True]
    bench.faulty.scripts = [("items/", LOST, True)]
    assert await bench.provider.settle([Ack(item.token, "r")]) == ["settled"]
    assert (await bench.item("a")).result == "r"


async def test_a_key_whose_answer_was_lost_is_taken_once(bench: FaultyBench) -> None:
    bench.faulty.scripts = [("keys/", LOST, True)]
    keyed = replace(ITEM, key="k")
    assert await bench.provider.enqueue([replace(keyed, id="a")]) == [Enqueued("a", new=True)]
    assert await bench.provider.enqueue([replace(keyed, id="b")]) == [Enqueued("a", new=False)]


async def test_409_and_then_412_of_ones_own_write_is_won(bench: FaultyBench) -> None:
    """The first answer was lost, and whoever sent it again is told that the object is there."""
    bench.faulty.scripts = [("items/", CONFLICT, True)]
    assert await bench.provider.enqueue([replace(ITEM, id="a")]) == [Enqueued("a", new=True)]


async def test_a_lock_whose_write_and_answer_were_lost_is_free_again(bench: FaultyBench) -> None:
    await bench.put("a")
    bench.faulty.scripts = [("items/", LOST, False)]
    with pytest.raises(ProviderError) as raised:
        await bench.fetch()
    assert raised.value.retryable
    assert ids_of(await bench.fetch()) == ["a"]


async def test_503_is_the_callers_to_ask_again(bench: FaultyBench) -> None:
    bench.faulty.scripts = [("items/", SLOW, False)]
    before = bench.s3.requests().get("PUT", 0)
    with pytest.raises(ProviderError, match="asked less often") as raised:
        await bench.put("a")
    assert raised.value.retryable
    assert bench.s3.requests()["PUT"] == before + 1
    assert await bench.fetch() == Empty()


async def test_a_hint_that_is_lost_costs_a_minute_and_a_half(bench: FaultyBench) -> None:
    await bench.fetch()
    async with bench.another() as other:
        assert isinstance(await bench.faulty.create("marker", b"not what it should be"), Written)
        await bench.fetch()
        await other.enqueue([replace(ITEM, id="a")])
        await bench.faulty.delete(["marker"])
    await bench.clock.sleep(90)
    assert ids_of(await bench.fetch()) == ["a"]


async def test_a_listing_that_lags_is_made_up_for(bench: FaultyBench) -> None:
    """By the marker at once, and without it by the next listing."""
    bench.faulty.hidden = {"ready/"}
    async with bench.another() as other:
        await other.enqueue([replace(ITEM, id="a")])
        assert ids_of(await bench.fetch()) == ["a"]
    await bench.provider.release("fetch")
    await bench.reopen()
    assert ids_of(await bench.fetch()) == ["a"]


async def test_an_item_that_cannot_be_read_at_all_blocks_nobody(bench: FaultyBench) -> None:
    await bench.put("a", "b")
    await bench.faulty.put("items/a", b"\x00 no JSON")
    assert ids_of(await bench.fetch()) == ["b"]
    fetched = await bench.fetch()
    assert isinstance(fetched, Empty | Contended)
    assert [row.id for row in await bench.provider.items("q")] == ["b"]


async def test_what_lies_there_has_a_nonce(bench: FaultyBench) -> None:
    """Two writes of one content never have one ETag."""
    await bench.put("a", template=KEPT)
    (item,) = await bench.take()
    await bench.provider.settle([Bury(item.token, "bad")])
    etags = set()
    for _ in range(3):
        await bench.provider.requeue(["a"])
        (item,) = await bench.take()
        await bench.provider.settle([Bury(item.token, "bad")])
        found = await bench.faulty.get("items/a")
        assert isinstance(found, Found)
        etags.add(found.etag)
    assert len(etags) == 3
