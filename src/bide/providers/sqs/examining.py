"""What SQS is like for bide: reached or not, how far away, what may be done, and how its queues are set up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from statistics import median

from bide.clock import Clock
from bide.core.durations import format_duration
from bide.core.findings import Finding
from bide.core.sqs_address import SqsAddress, sqs_address
from bide.errors import ProviderError
from bide.providers.sqs.envelope import RESERVED
from bide.providers.sqs.inspection import queue_names
from bide.providers.sqs.server_clock import ServerClock
from bide.providers.sqs.session import ENOUGH_RECEIVES, RETENTION_S, Session
from bide.providers.sqs.traffic import Traffic

ROUNDS = 5
"""Requests that the round trip is the median of."""

MOST_APART_S = 300
"""Seconds that the clocks may be apart; AWS refuses signatures that are 15 minutes off."""

DENIED = ("AccessDenied", "AccessDeniedException")

_PROBES: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("sqs:SendMessage", "send_message", {"MessageBody": "\x00"}),
    ("sqs:ReceiveMessage", "receive_message", {"MaxNumberOfMessages": 11, "VisibilityTimeout": 0}),
    ("sqs:DeleteMessage", "delete_message", {"ReceiptHandle": "none"}),
    (
        "sqs:ChangeMessageVisibility",
        "change_message_visibility",
        {"ReceiptHandle": "none", "VisibilityTimeout": 0},
    ),
)
"""Requests that SQS refuses whoever makes them, but first whoever may not: nothing is sent, taken or changed."""

_ATTRIBUTES = ("MessageRetentionPeriod", "MaximumMessageSize", "RedrivePolicy", "KmsMasterKeyId")


async def examine(address: str, folder: Path, clock: Clock) -> AsyncIterator[Finding]:
    """What is found at ``address``, one by one; nothing is left behind. Raises ``SettingError`` for a bad address."""
    parsed = sqs_address(address)
    session = Session(parsed, clock, ServerClock(), Traffic(), {})
    try:
        await session.open()
        async for finding in _examined(session, parsed, clock):
            yield finding
    except ProviderError as error:
        yield Finding("access", "refused", str(error), "Mend that, and look again.")
    finally:
        await session.close()


async def _examined(session: Session, address: SqsAddress, clock: Clock) -> AsyncIterator[Finding]:
    spans = []
    for _ in range(ROUNDS):
        began_s = clock.monotonic()
        await session.has_queue(address.prefix)
        spans.append((clock.monotonic() - began_s) * 1000)
    yield Finding("access", "good", f"{address.place} answers these credentials")
    span = median(spans)
    yield Finding("round trip", "good", f"a request takes {span:.1f} ms", value=span, unit="ms")
    yield _clocks(abs(await session.now_ms() - clock.utc_ms()) / 1000)
    if not await session.has_queue(address.prefix):
        yield _missing(address, address.prefix)
    try:
        names = await queue_names(session)
    except ProviderError as error:
        yield Finding(
            "list of queues", "unknown", str(error), "Allow sqs:ListQueues, so that counts show every queue."
        )
        names = [address.prefix] if await session.has_queue(address.prefix) else []
    for name in names:
        async for finding in _queue(session, address, name):
            yield finding


def _clocks(apart_s: float) -> Finding:
    if apart_s <= MOST_APART_S:
        return Finding(
            "clock", "good", "the clocks of this machine and of SQS agree", value=apart_s, unit="s"
        )
    return Finding(
        "clock",
        "doubtful",
        f"the clocks of this machine and of SQS are {apart_s:.0f} s apart, and AWS refuses signatures that are 15 "
        "minutes off",
        "Set the clock of this machine (NTP).",
        apart_s,
        "s",
    )


def _missing(address: SqsAddress, name: str) -> Finding:
    found = f"there is no queue {name}"
    if address.create:
        return Finding("queues", "good", f"{found} yet; it is made when it is first needed")
    return Finding("queues", "doubtful", found, "Create it, or add create=true to the address.")


async def _queue(session: Session, address: SqsAddress, name: str) -> AsyncIterator[Finding]:
    subject = f"queue {name}"
    url = (await session.call("get_queue_url", QueueName=name))["QueueUrl"]
    for action, operation, fields in _PROBES:
        if await session.refusal(operation, QueueUrl=url, **fields) in DENIED:
            yield Finding(subject, "refused", f"the credentials lack {action}", f"Allow {action} on it.")
    if not await session.has_queue(f"{name}-dead"):
        yield _missing(address, f"{name}-dead")
    try:
        attributes = await session.attributes(url, *_ATTRIBUTES)
    except ProviderError as error:
        yield Finding(subject, "unknown", str(error), "Allow sqs:GetQueueAttributes on it.")
        return
    for finding in _judged(subject, attributes):
        yield finding


def _judged(subject: str, attributes: dict[str, str]) -> list[Finding]:
    found = [_retention(subject, int(attributes.get("MessageRetentionPeriod", 0)))]
    size = int(attributes.get("MaximumMessageSize", 0))
    found.append(
        Finding(
            subject,
            "good",
            f"an item may have {size - RESERVED:,} bytes",
            value=size - RESERVED,
            unit="bytes",
        )
        if size >= 2 * RESERVED
        else Finding(
            subject,
            "refused",
            f"it takes messages of {size} bytes at most",
            "Set MaximumMessageSize to 262144 or more.",
        )
    )
    if "RedrivePolicy" in attributes:
        found.append(_redrive(subject, attributes["RedrivePolicy"]))
    if "KmsMasterKeyId" in attributes:
        found.append(Finding(subject, "good", "it is encrypted with a key of KMS, whose requests cost extra"))
    return found


def _retention(subject: str, seconds: int) -> Finding:
    if seconds >= RETENTION_S:
        return Finding(subject, "good", "it keeps messages for 14 days", value=seconds, unit="s")
    return Finding(
        subject,
        "doubtful",
        f"it drops messages, and whatever work they are, after {format_duration(timedelta(seconds=seconds))}",
        f"Set MessageRetentionPeriod to {RETENTION_S}, the most that there is.",
        seconds,
        "s",
    )


def _redrive(subject: str, policy: str) -> Finding:
    try:
        most = int(json.loads(policy)["maxReceiveCount"])
    except (ValueError, KeyError, TypeError):
        return Finding(
            subject, "unknown", "its redrive policy cannot be read", "Remove it: bide buries by itself."
        )
    if most >= ENOUGH_RECEIVES:
        return Finding(
            subject,
            "good",
            f"its redrive policy (maxReceiveCount {most}) takes only what bide has given up before",
            value=most,
        )
    return Finding(
        subject,
        "doubtful",
        f"its redrive policy (maxReceiveCount {most}) moves items away, without a reason, that bide would still try",
        f"Remove it: bide buries by itself. Or set maxReceiveCount to {ENOUGH_RECEIVES} or more.",
        most,
    )
