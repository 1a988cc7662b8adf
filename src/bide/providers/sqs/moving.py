"""Moving messages: each is sent anew first, then its old message is deleted.

A crash in between leaves two, never none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bide.errors import ProviderError
from bide.providers.sqs.batches import Handle, Outcome, Outgoing, delete_all, hide_all, send_all
from bide.providers.sqs.envelope import Envelope
from bide.providers.sqs.messages import Message, counted
from bide.providers.sqs.session import Session

LONGEST_DELAY_S = 900
"""A message may be delayed for so long when it is sent (Amazon SQS, SendMessage)."""


@dataclass(frozen=True, slots=True)
class Move:
    """The message of ``handle`` to be replaced by ``outgoing``; None: that one is there already."""

    handle: Handle
    outgoing: Outgoing | None


async def move_all(session: Session, moves: Sequence[Move]) -> list[Outcome]:
    """What became of each; an old message stays where the new one could not be sent."""
    outcomes: list[Outcome] = [True] * len(moves)
    sending = [index for index, move in enumerate(moves) if move.outgoing is not None]
    sent = await send_all(session, [out for move in moves if (out := move.outgoing) is not None])
    for index, outcome in zip(sending, sent, strict=True):
        outcomes[index] = outcome
    deleting = [index for index, outcome in enumerate(outcomes) if not isinstance(outcome, ProviderError)]
    deleted = await delete_all(session, [moves[index].handle for index in deleting])
    for index, outcome in zip(deleting, deleted, strict=True):
        outcomes[index] = outcome
    return outcomes


def again(message: Message, item: Envelope, delay_s: int, now_ms: int) -> Move:
    """``item`` to its own queue, visible after ``delay_s`` whole seconds."""
    later = delay_s > LONGEST_DELAY_S
    kept = replace(item, not_before=now_ms + delay_s * 1000 if later else None)
    outgoing = Outgoing(message.name, kept.text(), min(delay_s, LONGEST_DELAY_S))
    return Move(Handle(message.name, message.receipt), outgoing)


async def give_back_foreign(session: Session, messages: Sequence[Message]) -> None:
    """Messages that bide cannot write anew are made visible as they are; their receive counts."""
    handles = [Handle(message.name, message.receipt) for message in messages]
    await hide_all(session, handles, [0] * len(handles))


async def give_back_all(session: Session, messages: Sequence[Message]) -> None:
    """Messages that were received for nobody, as they were, due at once."""
    items = [
        (message, counted(message, message.said))
        for message in messages
        if isinstance(message.said, Envelope)
    ]
    await move_all(session, [_as_it_was(message, item) for message, item in items])
    await give_back_foreign(session, [one for one in messages if not isinstance(one.said, Envelope)])


def _as_it_was(message: Message, item: Envelope) -> Move:
    move = again(message, item, 0, 0)
    assert move.outgoing is not None
    return Move(move.handle, replace(move.outgoing, text=item.text()))
