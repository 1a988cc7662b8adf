"""Settling: whatever is to be sent is sent first, then the old messages are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import assert_never

from bide.core.durations import to_ms
from bide.errors import ProviderError
from bide.provider import Abandon, Ack, Bury, Settled, Settlement
from bide.providers import reasons
from bide.providers.sqs.batches import (
    Handle,
    Outcome,
    Outgoing,
    delete_all,
    done_or_raise,
    hide_all,
    send_all,
)
from bide.providers.sqs.enqueueing import prepared
from bide.providers.sqs.envelope import Envelope, refuse_unstorable
from bide.providers.sqs.holding import LONGEST_LOCK_S, Held, Holdings, Token
from bide.providers.sqs.messages import Message, given_back
from bide.providers.sqs.moving import again
from bide.providers.sqs.session import Session

FOREIGN = "(not of bide)"
"""The name of what somebody else sent, once it is dead."""

_MARGIN_S = 60


@dataclass(frozen=True, slots=True)
class _Sending:
    """A message to be sent on behalf of what is ``held``; ``key`` tells it from others of the same."""

    held: Held
    key: str
    outgoing: Outgoing


async def settle(session: Session, holdings: Holdings, settlements: Sequence[Settlement]) -> list[Settled]:
    """Settle each by its token. Raises ``ProviderError``; then nothing is lost, and it may be asked again."""
    claimed: dict[int, Held] = {}
    for index, settlement in enumerate(settlements):
        held = await claim(session, holdings, settlement.token)
        if held is not None:
            claimed[index] = held
    settling = [(held, settlements[index]) for index, held in claimed.items() if held.settled is None]
    try:
        await _send(session, settling)
        await _let_go(session, settling)
    except BaseException:
        holdings.unclaim(claimed.values())
        raise
    holdings.forget(claimed.values())
    return [
        "settled" if index in claimed and claimed[index].settled else "stale"
        for index in range(len(settlements))
    ]


async def release(session: Session, holdings: Holdings, fetch_token: str) -> int:
    """Give back, uncounted and due at once, what the fetch of that token took and still holds; how many."""
    now_s = session.clock.monotonic()
    claimed = [
        held
        for one in holdings.of_fetch(fetch_token, now_s)
        if (held := holdings.claim(one.token, now_s)) is not None
    ]
    try:
        whole = [(held, held.message, held.item) for held in claimed]
        copies = [
            _Sending(held, held.token, out)
            for held, message, item in whole
            if message is not None
            and item is not None
            and (out := again(message, given_back(item), 0, 0).outgoing)
        ]
        await _send_all(session, copies)
        await _hide(session, [(held, 0) for held in claimed if held.item is None])
        await _delete(session, [held for held in claimed if held.item is not None])
    except BaseException:
        holdings.unclaim(claimed)
        raise
    holdings.forget(claimed)
    return len(claimed)


async def renew(session: Session, holdings: Holdings, tokens: Sequence[str], lock_s: int) -> list[bool]:
    """Prolong locks to ``lock_s`` from now; False for each token that is dead, or has been held for too long."""
    now_s = session.clock.monotonic()
    renewing: dict[int, Held] = {}
    for index, token in enumerate(tokens):
        held = holdings.get(token) or await _of_others(session, holdings, token)
        if held is not None and held.is_live(now_s) and now_s + lock_s <= held.received_s + LONGEST_LOCK_S:
            renewing[index] = held
    handles = [held.handle for held in renewing.values()]
    renewed = done_or_raise(await hide_all(session, handles, [lock_s] * len(handles)))
    for (index, held), done in zip(list(renewing.items()), renewed, strict=True):
        if not done:
            del renewing[index]
            continue
        held.until_s = now_s + lock_s
        holdings.keep([held], now_s)
    return [index in renewing for index in range(len(tokens))]


async def claim(session: Session, holdings: Holdings, token: str) -> Held | None:
    """What is held under ``token``, to be settled; None where it is dead."""
    now_s = session.clock.monotonic()
    if holdings.get(token) is None and (found := await _of_others(session, holdings, token)) is not None:
        holdings.keep([found], now_s)
    return holdings.claim(token, now_s)


async def _of_others(session: Session, holdings: Holdings, token: str) -> Held | None:
    """What a token says that another provider object was given; None where it says nothing, or its time is over."""
    said = Token.of(token)
    if said is None or said.by == holdings.mark:
        return None
    now_s, now_ms = session.clock.monotonic(), await session.now_ms()
    if said.until <= now_ms:
        return None
    until_s = now_s + (said.until - now_ms) / 1000
    handle = Handle(session.address.name_of(said.queue), said.receipt)
    return Held(token, handle, None, None, "", now_s, until_s)


# --- what is sent ------------------------------------------------------------------------------------------------


async def _send(session: Session, settling: Sequence[tuple[Held, Settlement]]) -> None:
    """Send what these settlements ask for. Everything is judged before anything is sent."""
    sending: list[_Sending] = []
    now_ms = await session.now_ms() if settling else 0
    for held, settlement in settling:
        match settlement:
            case Ack(_, result, new):
                refuse_unstorable(result)
                outgoing = await prepared(session, new)
                sending += [_Sending(held, item.id, one) for item, one in zip(new, outgoing, strict=True)]
            case Abandon():
                if held.message is not None and held.item is not None:
                    sending.append(
                        _Sending(held, held.token, _abandoned(held.message, held.item, settlement, now_ms))
                    )
            case Bury(_, error):
                sending.append(_Sending(held, held.token, _buried(held, error)))
            case _:
                assert_never(settlement)
    await _send_all(session, sending)


async def _send_all(session: Session, sending: Sequence[_Sending]) -> None:
    left = [one for one in sending if one.key not in one.held.sent]
    outcomes = await send_all(session, [one.outgoing for one in left])
    for one, outcome in zip(left, outcomes, strict=True):
        if outcome is True:
            one.held.sent.add(one.key)
    done_or_raise(outcomes)


def _abandoned(message: Message, item: Envelope, settlement: Abandon, now_ms: int) -> Outgoing:
    """The item again, with what this attempt came to; or dead, where it was the last."""
    error = item.error if settlement.error is None else settlement.error
    kept = replace(item, error=error, passed=0)
    if not settlement.count_attempt:
        kept = replace(given_back(kept), given_back=item.given_back + 1)
    elif item.max_attempts is not None and item.attempts >= item.max_attempts:
        dead = replace(kept, error=reasons.gave_up(item.attempts, error))
        return Outgoing(f"{message.name}-dead", dead.text())
    move = again(message, kept, _whole_s(settlement.delay), now_ms)
    assert move.outgoing is not None
    return move.outgoing


def _buried(held: Held, error: str) -> Outgoing:
    message = held.message
    if message is None:
        raise ProviderError(
            "an item can be buried only through the provider object that fetched it: another does not have its text"
        )
    name = f"{message.name}-dead"
    if held.item is not None:
        return Outgoing(name, replace(held.item, error=error).text())
    wrapped = Envelope(
        message.id, FOREIGN, message.text, sent_at=message.sent_at, attempts=message.receives, error=error
    ).text()
    too_long = len(wrapped.encode()) > len(message.text.encode()) * 2 + 4096
    return Outgoing(name, message.text if too_long else wrapped)


# --- what is let go of -------------------------------------------------------------------------------------------


async def _let_go(session: Session, settling: Sequence[tuple[Held, Settlement]]) -> None:
    """Delete the old messages; those that cannot be written anew are hidden for their delay instead."""
    hiding = [
        (held, _whole_s(settlement.delay))
        for held, settlement in settling
        if isinstance(settlement, Abandon) and held.item is None
    ]
    hidden = {held.token for held, _ in hiding}
    await _hide(session, hiding)
    await _delete(session, [held for held, _ in settling if held.token not in hidden])


async def _delete(session: Session, deleting: Sequence[Held]) -> None:
    _note(deleting, await delete_all(session, [held.handle for held in deleting]))


async def _hide(session: Session, hiding: Sequence[tuple[Held, int]]) -> None:
    seconds = [min(each, LONGEST_LOCK_S - _MARGIN_S) for _, each in hiding]
    _note(
        [held for held, _ in hiding],
        await hide_all(session, [held.handle for held, _ in hiding], seconds),
    )


def _note(settling: Sequence[Held], outcomes: Sequence[Outcome]) -> None:
    """What became of each. Raises ``ProviderError`` where one is not settled."""
    for held, outcome in zip(settling, outcomes, strict=True):
        if not isinstance(outcome, ProviderError):
            held.settled = outcome
    done_or_raise(outcomes)


def _whole_s(delay: timedelta) -> int:
    """Whole seconds, so that nothing is visible sooner."""
    return -(-to_ms(delay) // 1000)
