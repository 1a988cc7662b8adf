"""SQS and the way to it in trouble: what is said, what may be tried again, and what comes twice but is never lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from botocore.exceptions import ClientError, NoCredentialsError, NoRegionError, ReadTimeoutError

from bide.clock import SystemClock
from bide.core.findings import Finding
from bide.errors import ProviderError
from bide.provider import Ack
from bide.providers.sqs import SqsProvider
from bide.providers.sqs.enqueueing import PartlySent
from bide.providers.sqs.examining import examine
from bide.providers.sqs.faults import explained
from bide.testing.clock import VirtualClock
from bide.testing.conformance.bench import ITEM, ids_of
from tests.providers.sqs_bench import SqsBench
from tests.providers.sqs_server import Emulator
from tests.servers import Answer, RawServer, Received, refused_url


def _client_error(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "secret"}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "SendMessage",
    )


@pytest.mark.parametrize(
    ("error", "retryable", "said"),
    [
        (_client_error("QueueDoesNotExist"), False, "create=true"),
        (_client_error("AWS.SimpleQueueService.NonExistentQueue"), False, "create=true"),
        (_client_error("AccessDenied", 403), False, "may not do that"),
        (_client_error("InvalidClientTokenId", 403), False, "does not know the access key"),
        (_client_error("SignatureDoesNotMatch", 403), False, "secret key"),
        (_client_error("ExpiredToken", 403), True, "aws sso login"),
        (_client_error("OverLimit", 403), True, "120,000"),
        (_client_error("KmsThrottled"), True, "slower"),
        (_client_error("KmsAccessDenied"), False, "kms:Decrypt"),
        (_client_error("RequestThrottled", 403), True, "slower"),
        (_client_error("ThrottlingException"), True, "slower"),
        (_client_error("InternalFailure", 500), True, "trouble of its own"),
        (_client_error("ServiceUnavailable", 503), True, "trouble of its own"),
        (_client_error("Unheard", 400), False, "refused"),
        (NoCredentialsError(), False, "AWS_PROFILE"),
        (NoRegionError(), False, "region="),
        (ReadTimeoutError(endpoint_url="http://secret"), True, "in time"),
        (aiohttp.ServerDisconnectedError(), True, "lost"),
        (ConnectionResetError(), True, "lost"),
        (TimeoutError(), True, "in time"),
    ],
)
def test_each_trouble_says_what_to_do_and_whether_again_may_help(
    error: BaseException, retryable: bool, said: str
) -> None:
    told = explained(error, "sqs://jobs (eu-west-1)", "send_message")
    assert told.retryable is retryable
    assert said in str(told)
    assert str(told).startswith("sqs://jobs (eu-west-1): ")
    assert "http://secret" not in str(told)


async def test_an_address_where_nobody_listens_is_worth_another_try(aws: None) -> None:
    provider = SqsProvider(f"sqs://jobs?region=eu-west-1&endpoint={refused_url()}", clock=SystemClock())
    with pytest.raises(ProviderError, match="cannot be reached") as raised:
        await provider.open()
    assert raised.value.retryable
    await provider.close()


async def test_a_missing_queue_is_not_made_unless_the_address_says_so(sqs_bench: SqsBench) -> None:
    provider = sqs_bench.made(options="create=false")
    await provider.open()
    with pytest.raises(ProviderError, match=r"no such queue; create it, or add create=true") as raised:
        await sqs_bench.fetch(on=provider, queues=["never"])
    assert f"{sqs_bench.name.removesuffix('q')}never" in str(raised.value)
    assert not raised.value.retryable


async def test_a_queue_that_goes_away_is_made_anew_where_the_address_says_so(sqs_bench: SqsBench) -> None:
    """An error that passes: workers go on."""
    await sqs_bench.put("a")
    session = await sqs_bench.sqs.sessions.session()
    await session.call("delete_queue", QueueUrl=(await session.queue(sqs_bench.name)).url)
    with pytest.raises(ProviderError, match="queue is gone; it is made anew") as raised:
        await sqs_bench.fetch()
    assert raised.value.retryable
    assert await sqs_bench.take() == []
    await sqs_bench.put("b")
    assert ids_of(await sqs_bench.fetch()) == ["b"]


async def test_a_refusal_tells_what_time_it_is(sqs_bench: SqsBench) -> None:
    """Where no request was ever answered otherwise, as with no queue there yet."""
    provider = sqs_bench.made(options="create=false")
    await provider.open()
    assert abs(await provider.now() - sqs_bench.now_ms()) <= 1000


async def test_a_server_that_does_not_tell_the_time_is_an_error_that_says_so(aws: None) -> None:
    def answer(request: Received) -> Answer:
        return Answer.json({"QueueUrl": f"{server.url()}/1/jobs", "Attributes": {}})

    async with RawServer() as server:
        server.script("/", answer)
        provider = SqsProvider(f"sqs://jobs?region=eu-west-1&endpoint={server.url()}", clock=SystemClock())
        await provider.open()
        with pytest.raises(ProviderError, match="no Date"):
            await provider.now()
        await provider.close()


async def test_a_lost_answer_may_make_it_come_twice_and_never_loses_it(sqs_bench: SqsBench) -> None:
    """The queue takes it, and nobody hears so."""
    await sqs_bench.put("known")
    sqs_bench.proxy.swallow_answers = True
    putting = asyncio.ensure_future(sqs_bench.put("a"))
    for _ in range(1000):
        if any('"id":"a"' in one["Body"] for one in await sqs_bench.messages()):
            break
        await asyncio.sleep(0.01)
    sqs_bench.proxy.swallow_answers = False
    sqs_bench.proxy.cut()
    await asyncio.wait({putting})
    assert set(ids_of(await sqs_bench.fetch(10))) == {"known", "a"}


async def test_a_delete_that_was_lost_is_done_again(sqs_bench: SqsBench) -> None:
    await sqs_bench.put("a")
    (item,) = await sqs_bench.take()
    sqs_bench.proxy.swallow_answers = True
    settling = asyncio.ensure_future(sqs_bench.provider.settle([Ack(item.token)]))
    for _ in range(1000):
        if not await sqs_bench.messages():
            break
        await asyncio.sleep(0.01)
    sqs_bench.proxy.swallow_answers = False
    sqs_bench.proxy.cut()
    assert await settling in (["settled"], ["stale"])
    assert await sqs_bench.take() == []


async def test_entries_that_sqs_failed_on_are_sent_again_and_others_are_named(aws: None) -> None:
    """One entry fails at first, another for good; what was sent is told."""
    sent: list[str] = []

    def answer(request: Received) -> Answer:
        action = (request.header("x-amz-target") or "").partition(".")[2]
        if action != "SendMessageBatch":
            return Answer.json({"QueueUrl": f"{server.url()}/1/jobs", "Attributes": {}})
        entries = json.loads(request.body)["Entries"]
        failed = []
        for entry in entries:
            id = json.loads(entry["MessageBody"])["id"]
            if id == "bad":
                failed.append({"Id": entry["Id"], "Code": "KmsDisabled", "SenderFault": True})
            elif id == "slow" and len(entries) > 1:
                failed.append({"Id": entry["Id"], "Code": "InternalError", "SenderFault": False})
            else:
                sent.append(id)
        done = [{"Id": entry["Id"], "MessageId": "m"} for entry in entries if entry["Id"] not in str(failed)]
        return Answer.json({"Successful": done, "Failed": failed})

    async with RawServer() as server:
        server.script("/", answer)
        clock = VirtualClock(autojump=False)
        provider = SqsProvider(f"sqs://jobs?region=eu-west-1&endpoint={server.url()}", clock=clock)
        await provider.open()
        items = [replace(ITEM, id=id, queue="default") for id in ("good", "slow", "bad")]
        putting = asyncio.ensure_future(provider.enqueue(items))
        while not putting.done():
            await asyncio.sleep(0.005)
            await clock.advance(1)
        with pytest.raises(PartlySent, match="key that encrypts the queue") as raised:
            await putting
        assert sorted(sent) == ["good", "slow"]
        assert raised.value.sent == ("good", "slow")
        assert not raised.value.retryable
        await provider.close()


async def test_a_killer_is_buried_at_its_third_death_and_can_be_tried_again(sqs_bench: SqsBench) -> None:
    """FAULTS 29, also where each worker is another process: nothing is remembered but by the message."""
    await sqs_bench.put("killer")
    for deaths in range(3):
        async with sqs_bench.another() as worker:
            fetched = await sqs_bench.fetch(on=worker)
            assert [item.deaths for item in getattr(fetched, "items", ())] == [deaths]
        await sqs_bench.advance(30)
    assert await sqs_bench.take() == []
    (dead,) = await sqs_bench.provider.items("q", states=["dead"])
    assert (dead.error, dead.deaths) == ("the worker died 3 times while handling it", 3)
    assert await sqs_bench.provider.requeue(["killer"]) == ["killer"]
    (again,) = await sqs_bench.take()
    assert (again.attempt, again.deaths) == (1, 0)


async def _found(address: str) -> list[Finding]:
    return [finding async for finding in examine(address, Path(), SystemClock())]


async def test_an_examination_says_what_is_doubtful_and_leaves_nothing(
    sqs_bench: SqsBench, emulator: Emulator
) -> None:
    await sqs_bench.put("a")
    session = await sqs_bench.sqs.sessions.session()
    queue, dead = await session.queue(sqs_bench.name), await session.queue(f"{sqs_bench.name}-dead")
    arn = (await session.attributes(dead.url, "QueueArn"))["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    attributes = {"RedrivePolicy": policy, "MessageRetentionPeriod": "3600"}
    await session.call("set_queue_attributes", QueueUrl=queue.url, Attributes=attributes)
    before = await sqs_bench.messages()
    found = await _found(emulator.address(sqs_bench.name.removesuffix("-q"), "create=false"))
    doubts = [finding for finding in found if finding.judgement == "doubtful" and finding.subject != "clock"]
    assert [finding.step.partition(":")[0].partition(" to ")[0] for finding in doubts] == [
        "Create it, or add create=true",
        "Set MessageRetentionPeriod",
        "Remove it",
    ]
    assert {"access", "round trip", "clock"} <= {finding.subject for finding in found}
    assert not [finding for finding in found if finding.judgement == "refused"]
    assert await sqs_bench.messages() == before


async def test_an_examination_goes_on_where_there_is_no_queue(
    sqs_bench: SqsBench, emulator: Emulator
) -> None:
    found = await _found(emulator.address("nowhere-yet", "create=false"))
    told = {finding.subject: finding for finding in found}
    assert told["queues"].found == "there is no queue nowhere-yet"
    assert told["round trip"].value is not None
    assert f"{told['round trip'].value:.1f} ms" in told["round trip"].found


async def test_an_examination_of_nothing_says_so(aws: None) -> None:
    (found,) = await _found(f"sqs://jobs?region=eu-west-1&endpoint={refused_url()}")
    assert (found.subject, found.judgement) == ("access", "refused")
    assert "cannot be reached" in found.found


async def test_a_lock_of_less_than_a_second_is_a_second(sqs_bench: SqsBench) -> None:
    await sqs_bench.put("a")
    await sqs_bench.take(lock=timedelta(milliseconds=10))
    await sqs_bench.advance(0.9)
    assert await sqs_bench.take() == []
    await sqs_bench.advance(0.1)
    assert len(await sqs_bench.take()) == 1
