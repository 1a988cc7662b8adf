"""A message as it was received, and what its counts mean."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bide.provider import WorkItem
from bide.providers import reasons
from bide.providers.sqs.envelope import Envelope, Foreign, Newer, Read, read


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a ``queue`` of bide's, whose SQS queue is ``name``. Instants are SQS's, in milliseconds.

    ``receives`` counts this one too. ``until_s`` is when its lock of ``lock_s`` ends, on the monotonic clock.
    """

    queue: str
    name: str
    id: str
    receipt: str
    text: str
    sent_at: int
    first_at: int
    receives: int
    lock_s: int
    until_s: float
    said: Read

    @property
    def early_receives(self) -> int:
        """1 where the first receive came before the item's instant: it was put off then, and not handed out."""
        item = self.said
        early = isinstance(item, Envelope) and item.not_before is not None and self.first_at < item.not_before
        return 1 if early else 0

    @property
    def deaths_here(self) -> int:
        """Receives of this message before the present one: each of them was lost with its worker."""
        return max(self.receives - 1 - self.early_receives, 0)


def received(answer: Mapping[str, Any], queue: str, name: str, lock_s: int, until_s: float) -> Message:
    """One message of the answer of a receive."""
    attributes = answer.get("Attributes", {})
    sent_at = int(attributes.get("SentTimestamp", 0))
    return Message(
        queue=queue,
        name=name,
        id=answer["MessageId"],
        receipt=answer["ReceiptHandle"],
        text=answer["Body"],
        sent_at=sent_at,
        first_at=int(attributes.get("ApproximateFirstReceiveTimestamp", sent_at)),
        receives=int(attributes.get("ApproximateReceiveCount", 1)),
        lock_s=lock_s,
        until_s=until_s,
        said=read(answer["Body"]),
    )


# --- what is to become of it -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fit:
    """It may be handed out; ``item`` has the present attempt counted, and every death so far."""

    item: Envelope


@dataclass(frozen=True, slots=True)
class Over:
    """It is dead; ``item`` says why."""

    item: Envelope


@dataclass(frozen=True, slots=True)
class Early:
    """Its instant is ``wait_ms`` ahead. ``item`` is as it was."""

    item: Envelope
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Unwanted:
    """It has a name that was not asked for."""

    item: Envelope


@dataclass(frozen=True, slots=True)
class FromNewer:
    """A newer version of bide wrote it."""

    said: Newer


@dataclass(frozen=True, slots=True)
class Unknown:
    """It is no item of bide's."""

    reason: str


Verdict = Fit | Over | Early | Unwanted | FromNewer | Unknown


def judge(message: Message, names: Container[str], now_ms: int) -> Verdict:
    """What is to become of ``message`` where items of ``names`` are wanted."""
    said = message.said
    if isinstance(said, Newer):
        return FromNewer(said)
    if isinstance(said, Foreign):
        return Unknown(said.reason)
    item = counted(message, said)
    if item.deaths >= reasons.DEATHS_BEFORE_BURIAL:
        return Over(replace(item, error=reasons.killed_workers(item.deaths)))
    if item.max_attempts is not None and item.attempts >= item.max_attempts:
        return Over(replace(item, error=reasons.gave_up(item.attempts, item.error)))
    if (expires_at := expiry(item)) is not None and expires_at <= now_ms:
        return Over(replace(item, error=reasons.expired(message.queue, item.within_ms or 0, item.error)))
    if item.not_before is not None and item.not_before > now_ms:
        return Early(item, item.not_before - now_ms)
    if item.name not in names:
        return Unwanted(item)
    return Fit(replace(item, attempts=item.attempts + 1))


def counted(message: Message, item: Envelope) -> Envelope:
    """The item as it was before the present receive: with the deaths that this message has been through."""
    died = message.deaths_here
    return replace(
        item,
        sent_at=message.sent_at if item.sent_at is None else item.sent_at,
        attempts=item.attempts + died,
        deaths=item.deaths + died,
        error=reasons.LOCK_EXPIRED if died else item.error,
    )


def expiry(item: Envelope) -> int | None:
    """When its life is over."""
    return None if item.within_ms is None or item.sent_at is None else item.sent_at + item.within_ms


def given_back(item: Envelope) -> Envelope:
    """A fitting item with the present attempt uncounted."""
    return replace(item, attempts=item.attempts - 1)


def as_work_item(item: Envelope, queue: str, token: str) -> WorkItem:
    """A fitting item as its worker gets it."""
    unreadable = item.unreadable
    return WorkItem(
        id=item.id,
        queue=queue,
        name=item.name,
        payload="" if unreadable else str(item.payload),
        token=token,
        attempt=item.attempts,
        deaths=item.deaths,
        enqueued_at=item.sent_at or 0,
        expires_at=expiry(item),
        max_attempts=item.max_attempts,
        unreadable=unreadable,
        given_back=item.given_back,
    )


def foreign_item(message: Message, name: str, token: str, reason: str) -> WorkItem:
    """What is no item of bide's, as something to be buried; it goes by one of the names that were asked for."""
    return WorkItem(
        id=message.id,
        queue=message.queue,
        name=name,
        payload="",
        token=token,
        attempt=message.receives,
        deaths=0,
        enqueued_at=message.sent_at,
        expires_at=None,
        max_attempts=None,
        unreadable=reason,
    )
