"""What a provider of SQS remembers of what it handed out, and for how long."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bide.errors import ProviderError
from bide.provider import Abandon, Ack
from bide.providers.sqs import session as sessions
from tests.providers.sqs_bench import SqsBench

HALF_A_DAY = timedelta(hours=11)


async def test_what_is_settled_is_not_remembered_however_long_its_lock(sqs_bench: SqsBench) -> None:
    await sqs_bench.put(*(f"i{number}" for number in range(12)))
    items = await sqs_bench.take(12, lock=HALF_A_DAY)
    assert len(items) == 12
    acks = [Ack(item.token) for item in items[:6]]
    others = [Abandon(item.token, timedelta(hours=1)) for item in items[6:]]
    assert await sqs_bench.sqs.settle([*acks, *others]) == ["settled"] * 12
    assert len(sqs_bench.sqs.holdings) == 0
    assert await sqs_bench.sqs.settle([*acks, *others]) == ["stale"] * 12
    assert await sqs_bench.sqs.renew([item.token for item in items], HALF_A_DAY) == [False] * 12


async def test_what_was_settled_beside_what_failed_is_said_to_be_when_asked_again(
    sqs_bench: SqsBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of which the second request of deletes fails is tried again as a whole."""
    await sqs_bench.put(*(f"i{number}" for number in range(12)))
    items = await sqs_bench.take(12)
    session = await sqs_bench.sqs.sessions.session()
    call, failures = session.call, iter([ProviderError("throttled", retryable=True)])

    async def failing(operation: str, **fields: Any) -> dict[str, Any]:
        if operation == "delete_message_batch" and len(fields["Entries"]) < 10:
            for failure in failures:
                raise failure
        return await call(operation, **fields)

    monkeypatch.setattr(session, "call", failing)
    acks = [Ack(item.token) for item in items]
    with pytest.raises(ProviderError, match="throttled"):
        await sqs_bench.sqs.settle(acks)
    assert len(await sqs_bench.messages()) == 2
    assert await sqs_bench.sqs.settle(acks) == ["settled"] * 12
    assert await sqs_bench.messages() == []
    assert await sqs_bench.sqs.settle(acks) == ["stale"] * 12


async def test_a_token_that_another_acknowledged_is_dead_for_it_as_well(sqs_bench: SqsBench) -> None:
    await sqs_bench.put("a")
    (item,) = await sqs_bench.take()
    async with sqs_bench.another() as other:
        assert await other.settle([Ack(item.token)]) == ["settled"]
        assert await other.settle([Ack(item.token)]) == ["stale"]
        assert await other.renew([item.token], timedelta(seconds=30)) == [False]


async def test_a_request_that_is_never_answered_ends_in_time(
    sqs_bench: SqsBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the library would try: whoever asks does that."""
    monkeypatch.setattr(sessions, "SHORT_S", 0.05)
    sqs_bench.proxy.swallow_answers = True
    with pytest.raises(ProviderError, match="did not answer in time") as raised:
        await sqs_bench.provider.now()
    assert raised.value.retryable
    sqs_bench.proxy.swallow_answers = False
    sqs_bench.proxy.cut()


async def test_a_client_for_another_loop_is_not_made_once_the_provider_is_closed(sqs_bench: SqsBench) -> None:
    """A renewal that began as the provider was closed would leave a thread and connections behind."""
    provider = sqs_bench.made()
    await provider.open()
    session = await asyncio.to_thread(lambda: asyncio.run(provider.sessions.session()))
    assert provider.sessions.opened() == [await provider.sessions.session(), session]
    await sqs_bench.shut(provider)
    with pytest.raises(ProviderError, match="is not open"):
        await asyncio.to_thread(provider.sessions.open_aside)
    assert provider.sessions.opened() == []
