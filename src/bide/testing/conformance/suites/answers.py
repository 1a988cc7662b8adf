"""Promise 13, second half: what comes of an answer, all of it or nothing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from bide.core.conditional import Validators
from bide.errors import ProviderError
from bide.provider import DELIVERIES, Changed, EventRow, NotModified, Unchanged
from bide.testing.conformance.bench import Bench, answered, ids_of, subscription

_TAG = Validators('W/"a,b"', "Tue, 01 Jul 2025 10:00:00 GMT")


class AnswersSuite:
    """Digest, validators, event and deliveries."""

    async def test_13_the_first_answer_is_an_event(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        answer = replace(answered(1, claim), occurred_at=1_234)
        assert await bench.provider.record_answer(claim, answer) == Changed(answer.event_id, 1, 0)
        assert await bench.provider.events() == [
            EventRow(
                seq=1,
                id=answer.event_id,
                name="shop.PriceChanged",
                poll="eu.price",
                payload='{"price":1}',
                digest=answer.digest,
                created_at=bench.now_ms(),
                occurred_at=1_234,
                previous_id=None,
            )
        ]
        row = await bench.row("eu.price")
        assert (row.digest, row.changed_at, row.answered_at) == (
            answer.digest,
            bench.now_ms(),
            bench.now_ms(),
        )
        assert (row.event_id, row.outstanding, row.validated_at) == (answer.event_id, False, bench.now_ms())
        assert (row.validators, row.declaration) == (answer.validators, answer.declaration)

    async def test_13_the_same_answer_is_none(self, bench: Bench) -> None:
        await bench.change("eu.price", 1)
        await bench.advance(300)
        (claim,) = await bench.claim("eu.price")
        assert claim.digest == answered(1, claim).digest
        answer = replace(answered(1, claim), validators=_TAG, declaration="other")
        assert await bench.provider.record_answer(claim, answer) == Unchanged(timedelta(seconds=300))
        row = await bench.row("eu.price")
        assert (row.validators, row.declaration) == (_TAG, "other")
        assert (row.answered_at, row.validated_at) == (bench.now_ms(), bench.now_ms())
        assert row.changed_at == bench.now_ms() - 300_000
        assert len(await bench.provider.events()) == 1

    async def test_13_there_and_back_is_three_events(self, bench: Bench) -> None:
        for price in (1, 2, 1):
            await bench.change("eu.price", price)
        events = await bench.provider.events()
        assert [event.payload for event in events] == ['{"price":1}', '{"price":2}', '{"price":1}']
        assert [event.seq for event in events] == sorted(event.seq for event in events)
        assert [event.previous_id for event in events] == [None, events[0].id, events[1].id]

    async def test_13_not_modified_keeps_validators_and_the_age_of_the_last_whole_answer(
        self, bench: Bench
    ) -> None:
        await bench.change("eu.price", 1)
        validated_at = bench.now_ms()
        await bench.advance(300)
        (claim,) = await bench.claim("eu.price")
        assert claim.validated_ago == timedelta(seconds=300)
        recorded = await bench.provider.record_answer(claim, NotModified(_TAG))
        assert recorded == Unchanged(timedelta(seconds=300))
        row = await bench.row("eu.price")
        assert (row.validators, row.declaration, row.validated_at) == (_TAG, "declared", validated_at)
        assert (row.answered_at, row.outstanding) == (bench.now_ms(), False)
        await bench.advance(300)
        (claim,) = await bench.claim("eu.price")
        assert (claim.validators, claim.declaration) == (_TAG, "declared")
        assert claim.validated_ago == timedelta(seconds=600)

    async def test_13_validators_are_replaced_as_a_unit(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.provider.record_answer(claim, replace(answered(1, claim), validators=_TAG))
        await bench.provider.poll_now(["eu.price"])
        (claim,) = await bench.claim("eu.price")
        assert claim.validators == _TAG
        await bench.provider.record_answer(claim, replace(answered(1, claim), validators=Validators()))
        assert (await bench.row("eu.price")).validators == Validators()

    async def test_13_not_modified_of_a_poll_never_answered_is_no_change(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        assert await bench.provider.record_answer(claim, NotModified(Validators())) == Unchanged(None)
        assert await bench.provider.events() == []

    async def test_13_an_answer_ends_failures(self, bench: Bench) -> None:
        (claim,) = await bench.claim("eu.price")
        await bench.provider.record_failure(claim, "refused", timedelta(seconds=1))
        await bench.advance(1)
        (claim,) = await bench.claim("eu.price")
        await bench.provider.record_answer(claim, NotModified(Validators()))
        row = await bench.row("eu.price")
        assert (row.failures, row.failing_since, row.last_error) == (0, None, None)

    async def test_13_each_living_subscription_gets_a_delivery(self, bench: Bench) -> None:
        await bench.subscribe("a", "b", "c")
        await bench.subscribe("deaf", template=replace(subscription(), event="shop.Other"))
        await bench.provider.end_subscriptions(["c"], "410")
        changed = await bench.change("eu.price", 1)
        assert changed.deliveries == 2
        items = await bench.deliveries("a", "b", "c", "deaf")
        assert [item.id for item in items] == [f"{changed.event_id}.a", f"{changed.event_id}.b"]
        assert {item.queue for item in items} == {DELIVERIES}
        assert [item.name for item in items] == ["a", "b"]

    async def test_13_a_delivery_carries_the_event_and_the_one_before(self, bench: Bench) -> None:
        await bench.subscribe("a")
        for price in (1, 2):
            await bench.change("eu.price", price)
        envelopes = [json.loads(item.payload) for item in await bench.deliveries("a")]
        assert [envelope["data"] for envelope in envelopes] == [{"price": 1}, {"price": 2}]
        assert [envelope["previous"] for envelope in envelopes] == [None, {"price": 1}]
        events = await bench.provider.events()
        assert [envelope["id"] for envelope in envelopes] == [event.id for event in events]
        assert [envelope["seq"] for envelope in envelopes] == [event.seq for event in events]
        assert envelopes[0]["type"] == "shop.PriceChanged"
        assert (envelopes[0]["connection"], envelopes[0]["poll"]) == ("eu", "eu.price")

    async def test_13_a_delivery_has_what_its_subscription_says(self, bench: Bench) -> None:
        row = replace(subscription(), within=timedelta(hours=1), max_attempts=4, ordered=True)
        await bench.subscribe("a", template=row)
        await bench.subscribe("b")
        await bench.change("eu.price", 1)
        await bench.change("us.price", 1)
        items = await bench.deliveries("a", "b")
        assert [item.name for item in items] == ["a", "b", "b"]  # of an ordered one, one at a time
        assert (items[0].max_attempts, items[0].expires_at) == (4, bench.now_ms() + 3_600_000)
        assert (items[1].max_attempts, items[1].expires_at) == (None, bench.now_ms() + 3 * 86_400_000)

    async def test_13_an_event_ends_the_wait_for_deliveries(self, bench: Bench) -> None:
        await bench.subscribe("a")
        fetching = bench.begin_fetch(20, queues=[DELIVERIES], names=["a"])
        await bench.advance(1)
        changed = await bench.change("eu.price", 1)
        fetched = await bench.ended(fetching)
        assert ids_of(fetched) == [f"{changed.event_id}.a"]

    async def test_13_what_cannot_be_kept_leaves_everything_as_it_was(self, bench: Bench) -> None:
        await bench.subscribe("a")
        (bad, good) = await bench.claim("eu.bad", "eu.good")
        before = await bench.row("eu.bad")
        broken = replace(answered(1, bad), payload='{"price":"\ud800"}')
        results = await asyncio.gather(
            bench.provider.record_answer(bad, broken), bench.answer(good, 1), return_exceptions=True
        )
        assert isinstance(results[0], ProviderError)
        assert isinstance(results[1], Changed)
        assert await bench.row("eu.bad") == before
        assert [event.poll for event in await bench.provider.events()] == ["eu.good"]
        assert len(await bench.deliveries("a")) == 1
        assert isinstance(await bench.answer(bad, 1), Changed)

    @pytest.mark.parametrize("count", [1, 50])
    async def test_13_many_answers_at_once_are_each_their_own(self, bench: Bench, count: int) -> None:
        await bench.subscribe("a")
        names = [f"eu.p{number:02}" for number in range(count)]
        for price, expected in ((1, count), (2, count // 2)):
            await bench.provider.poll_now(names)
            claims = await bench.claim(*names)
            prices = [price if at % 2 else 1 for at in range(count)]
            recorded = await asyncio.gather(
                *(bench.answer(claim, given) for claim, given in zip(claims, prices, strict=True))
            )
            assert sum(isinstance(one, Changed) for one in recorded) == expected
        seqs = [event.seq for event in await bench.provider.events(limit=1000)]
        assert len(seqs) == len(set(seqs)) == count + count // 2

    async def test_13_a_digest_of_an_older_rule_is_compared_by_what_was_kept(self, bench: Bench) -> None:
        for price, digest in ((1, "0:old"), (2, None)):
            await bench.provider.poll_now(["eu.price"])
            (claim,) = await bench.claim("eu.price")
            answer = answered(1, claim) if price == 1 else answered(2, claim)
            await bench.provider.record_answer(claim, replace(answer, digest=digest or answer.digest))
            if price == 1:
                await bench.provider.poll_now(["eu.price"])
                (claim,) = await bench.claim("eu.price")
                assert claim.digest == "0:old"
                assert await bench.answer(claim, 1) == Unchanged(timedelta())
                assert (await bench.row("eu.price")).digest == answer.digest
        assert [event.payload for event in await bench.provider.events()] == ['{"price":1}', '{"price":2}']
