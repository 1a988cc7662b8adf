"""New items: what SQS cannot keep of them is refused before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from bide.core.abilities import SQS, Ability, unsupported
from bide.core.durations import format_duration, to_ms
from bide.core.sqs_address import SqsAddress
from bide.errors import ProviderError, SettingError
from bide.provider import Enqueued, NewItem
from bide.providers.sqs.batches import Outgoing, send_all
from bide.providers.sqs.envelope import RESERVED, Envelope, refuse_unstorable
from bide.providers.sqs.moving import LONGEST_DELAY_S
from bide.providers.sqs.session import Session

MOST_IDS = 10
"""Ids that an error names."""

_LEAST_BYTES = 2 * RESERVED


class PartlySent(ProviderError):
    """Some of a batch were sent and others not: ``sent`` has the ids of those that were.

    Sending all of them again is safe as far as handlers may see those twice.
    """

    def __init__(self, sent: Sequence[str], of: int, cause: ProviderError) -> None:
        self.sent = tuple(sent)
        named = ", ".join(self.sent[:MOST_IDS]) + (", …" if len(self.sent) > MOST_IDS else "")
        super().__init__(
            f"{cause}; {len(self.sent)} of {of} items were sent ({named}): leave them out when you send the rest, or "
            "they come twice",
            retryable=cause.retryable,
        )


async def prepared(session: Session, items: Sequence[NewItem]) -> list[Outgoing]:
    """Messages of ``items``. Raises ``ProviderError`` where SQS cannot keep one as it is; nothing is sent."""
    for item in items:
        refuse(item)
    outgoing = []
    for item in items:
        delay_s = await _delay_s(session, item)
        queue = await session.queue(queue_name(session.address, item.queue))
        text = as_envelope(item).text()
        most = queue.most_bytes - RESERVED
        if queue.most_bytes < _LEAST_BYTES:
            raise ProviderError(
                f"the queue {queue.name} takes messages of {queue.most_bytes} bytes at most; "
                f"set its MaximumMessageSize to {_LEAST_BYTES} or more"
            )
        if (size := len(text.encode())) > most:
            raise ProviderError(
                f"item {item.id} takes {size} bytes as a message, and {queue.name} keeps {most} of one; "
                "keep what is large elsewhere (S3, a database), and send where it is"
            )
        outgoing.append(Outgoing(queue.name, text, delay_s))
    return outgoing


async def enqueue(session: Session, items: Sequence[NewItem]) -> list[Enqueued]:
    """Send ``items``; of those with one id the first. Raises ``ProviderError``, or :class:`PartlySent`."""
    given = list(items)
    for item in given:
        refuse(item)
    first: dict[str, int] = {}
    for index, item in enumerate(given):
        first.setdefault(item.id, index)
    ids = list(first)
    outcomes = await send_all(session, await prepared(session, [given[index] for index in first.values()]))
    error = next((outcome for outcome in outcomes if isinstance(outcome, ProviderError)), None)
    if error is not None:
        sent = [id for id, outcome in zip(ids, outcomes, strict=True) if outcome is True]
        raise PartlySent(sent, len(ids), error) if sent else error
    return [Enqueued(item.id, new=first[item.id] == index) for index, item in enumerate(given)]


def refuse(item: NewItem) -> None:
    """Raise ``ProviderError`` for what SQS cannot keep of ``item``."""
    refuse_unstorable(item.id, item.queue, item.name, item.payload, item.key, item.order_key, item.limit_key)
    lacking: tuple[tuple[Ability, bool], ...] = (
        ("keys", item.key is not None),
        ("results", item.keep_result is not None),
        ("ordered", item.order_key is not None),
        ("priorities", item.priority != 0),
    )
    for ability, asked in lacking:
        if asked:
            raise unsupported(SQS, ability)
    if item.delay > timedelta(seconds=LONGEST_DELAY_S):
        raise _too_late(item.id, item.delay)


def queue_name(address: SqsAddress, queue: str) -> str:
    """The SQS queue of a queue of bide's. Raises ``ProviderError`` where there can be none."""
    try:
        return address.name_of(queue)
    except SettingError as error:
        raise ProviderError(f"{address.place}: {error.reason}") from error


def as_envelope(item: NewItem) -> Envelope:
    """What a new item's message says."""
    return Envelope(
        id=item.id,
        name=item.name,
        payload=item.payload,
        within_ms=None if item.within is None else to_ms(item.within),
        max_attempts=item.max_attempts,
    )


async def _delay_s(session: Session, item: NewItem) -> int:
    """Whole seconds that SQS is to hold it back."""
    delay_ms = to_ms(item.delay)
    if item.at is not None:
        delay_ms = max(delay_ms, item.at - await session.now_ms())
    if delay_ms > LONGEST_DELAY_S * 1000:
        raise _too_late(item.id, timedelta(milliseconds=delay_ms))
    return -(-delay_ms // 1000)


def _too_late(id: str, delay: timedelta) -> ProviderError:
    most = format_duration(timedelta(seconds=LONGEST_DELAY_S))
    return ProviderError(
        f"item {id} is to wait for {format_duration(delay)}, and SQS holds a new message back for {most} at most; "
        "submit it later (EventBridge Scheduler can), or use a store that keeps any delay, such as PostgreSQL"
    )
