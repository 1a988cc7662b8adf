"""Requests of many entries: ten to a request, several requests at a time, and what failed of each told apart."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bide.errors import ProviderError
from bide.providers.sqs.faults import STALE, judged
from bide.providers.sqs.session import Session

MOST_ENTRIES = 10
"""Of a request (Amazon SQS, SendMessageBatch)."""

AT_A_TIME = 8
"""Requests of one call that are under way together."""

TRIES = 3
"""How often an entry is sent that SQS itself failed on."""

FIRST_PAUSE_S = 0.2
"""Before an entry is sent again; then twice as long."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be sent to the SQS queue ``name``, visible there after ``delay_s`` whole seconds."""

    name: str
    text: str
    delay_s: int = 0


@dataclass(frozen=True, slots=True)
class Handle:
    """A message that was received from the SQS queue ``name``."""

    name: str
    receipt: str


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    fields: Mapping[str, Any]
    size: int = 0


Outcome = ProviderError | bool
"""True: done. False: the receipt does not hold its message any more. An error: it was not done."""


async def send_all(session: Session, outgoing: Sequence[Outgoing]) -> list[Outcome]:
    """Send them; what became of each."""
    entries = [
        _Entry(one.name, {"MessageBody": one.text, "DelaySeconds": one.delay_s}, len(one.text.encode()))
        for one in outgoing
    ]
    return await _all(session, "send_message_batch", entries)


async def delete_all(session: Session, handles: Sequence[Handle]) -> list[Outcome]:
    """Delete them; what became of each."""
    entries = [_Entry(one.name, {"ReceiptHandle": one.receipt}) for one in handles]
    return await _all(session, "delete_message_batch", entries)


async def hide_all(session: Session, handles: Sequence[Handle], seconds: Sequence[int]) -> list[Outcome]:
    """Make each invisible for so long from now (0: visible at once); what became of each."""
    entries = [
        _Entry(one.name, {"ReceiptHandle": one.receipt, "VisibilityTimeout": each})
        for one, each in zip(handles, seconds, strict=True)
    ]
    return await _all(session, "change_message_visibility_batch", entries)


def done_or_raise(outcomes: Sequence[Outcome]) -> list[bool]:
    """Whether each was done. Raises ``ProviderError`` where it is not known of one."""
    for outcome in outcomes:
        if isinstance(outcome, ProviderError):
            raise outcome
    return [outcome is True for outcome in outcomes]


async def _all(session: Session, operation: str, entries: Sequence[_Entry]) -> list[Outcome]:
    outcomes: list[Outcome] = [True] * len(entries)
    left = list(range(len(entries)))
    pause_s = FIRST_PAUSE_S
    for attempt in range(TRIES):
        again = await _once(session, operation, entries, left, outcomes)
        if not again or attempt == TRIES - 1:
            break
        await session.clock.sleep(pause_s)
        left, pause_s = again, pause_s * 2
    return outcomes


async def _once(
    session: Session, operation: str, entries: Sequence[_Entry], left: Sequence[int], outcomes: list[Outcome]
) -> list[int]:
    """Ask for those that are ``left``, and note what became of them; which of them are worth asking again."""
    by_name: dict[str, list[int]] = defaultdict(list)
    for index in left:
        by_name[entries[index].name].append(index)
    room = asyncio.Semaphore(AT_A_TIME)

    async def ask(name: str, batch: Sequence[int]) -> list[int]:
        async with room:
            return await _ask(session, operation, name, {index: entries[index] for index in batch}, outcomes)

    asked: list[Coroutine[Any, Any, list[int]]] = []
    for name, indices in by_name.items():
        try:
            queue = await session.queue(name)
        except ProviderError as error:
            outcomes_of(outcomes, indices, error)
            continue
        batches = split(indices, lambda index: entries[index].size, queue.most_bytes)
        asked += [ask(name, batch) for batch in batches]
    return [index for again in await asyncio.gather(*asked) for index in again]


async def _ask(
    session: Session, operation: str, name: str, batch: Mapping[int, _Entry], outcomes: list[Outcome]
) -> list[int]:
    queue = await session.queue(name)
    try:
        answer = await session.call(
            operation,
            QueueUrl=queue.url,
            Entries=[{"Id": str(index), **entry.fields} for index, entry in batch.items()],
        )
    except ProviderError as error:
        outcomes_of(outcomes, batch, error)
        return []
    for done in answer.get("Successful", ()):
        outcomes[int(done["Id"])] = True
    again = []
    for failed in answer.get("Failed", ()):
        index, code = int(failed["Id"]), str(failed.get("Code", ""))
        if "ReceiptHandle" in batch[index].fields and code in STALE:
            outcomes[index] = False
            continue
        sender = bool(failed.get("SenderFault"))
        retryable, message = judged(code, 400 if sender else 500)
        outcomes[index] = ProviderError(
            f"sqs://{name}: {message} ({operation}: {code or 'no code'})", retryable=retryable
        )
        if retryable:
            again.append(index)
    return again


def outcomes_of(
    outcomes: list[Outcome], indices: Sequence[int] | Mapping[int, Any], error: ProviderError
) -> None:
    """Note that none of these was done."""
    for index in indices:
        outcomes[index] = error


def split(indices: Sequence[int], size_of: Callable[[int], int], most_bytes: int) -> Iterator[list[int]]:
    """``indices`` in batches that a request can hold."""
    batch: list[int] = []
    bytes_in = 0
    for index in indices:
        size = size_of(index)
        if batch and (len(batch) == MOST_ENTRIES or bytes_in + size > most_bytes):
            yield batch
            batch, bytes_in = [], 0
        batch.append(index)
        bytes_in += size
    if batch:
        yield batch
