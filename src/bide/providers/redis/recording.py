"""What comes of the answers of polls: digest, validators, event and every delivery in one step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from bide.core.change import is_change
from bide.core.delivery import envelope
from bide.core.durations import to_ms
from bide.errors import ProviderError
from bide.provider import Answered, Changed, Claim, NotModified, Recorded, Stale, Unchanged
from bide.providers.redis.rows import (
    Row,
    all_packed,
    number,
    shown_if_any,
    stored,
    stored_if_any,
    unpacked,
)
from bide.providers.redis.session import Session
from bide.providers.redis.store import Store

ANSWER_WIDTH = 16

_SEQ_AND_INSTANT = ',"seq":0,"timestamp":"1970-01-01T00:00:00.000Z"'
_PREVIOUS = "null}"

Given = list[bytes | None]
Asked = tuple[Claim, Answered | NotModified]


class RedisRecording:
    """Recording answers, a part of :class:`bide.provider.Polls`."""

    _store: Store

    async def record_answer(self, claim: Claim, answer: Answered | NotModified) -> Recorded:
        row = _given(claim, answer)  # what cannot be stored is refused before it shares a call

        async def act(session: Session) -> Recorded:
            return await session.batched(self._record_each, row)

        recorded = await self._store.on(act)
        self._ring_for([recorded])
        return recorded

    async def record_answers(self, answers: Sequence[Asked]) -> list[Recorded]:
        if not answers:
            return []
        rows = [_given(claim, answer) for claim, answer in answers]
        recorded = await self._store.on(lambda session: self._record_each(session, rows))
        self._ring_for(recorded)
        return recorded

    def _ring_for(self, recorded: Sequence[Recorded]) -> None:
        if any(isinstance(one, Changed) for one in recorded):
            self._store.bell.ring_everywhere()

    async def _record_each(self, session: Session, rows: list[Given]) -> list[Recorded]:
        """Record answers; those whose digest is of another version than the one kept are compared in full."""
        recorded: list[Recorded] = []
        for row, answer in zip(rows, await self._record(session, rows), strict=True):
            said = answer
            for _ in range(5):
                if said[0] != b"j":
                    break
                (said,) = await self._record(session, [_judged(row, said)])
            recorded.append(_recorded(row, said))
        return recorded

    async def _record(self, session: Session, rows: list[Given]) -> list[Row]:
        return list(unpacked(await self._store.asked(session, "record", all_packed(rows)), 3))


def _given(claim: Claim, answer: Answered | NotModified) -> Given:
    hold = number(0 if answer.hold is None else to_ms(answer.hold))
    validators = answer.validators
    kept = [stored_if_any(validators.etag), stored_if_any(validators.last_modified)]
    begin = [stored(claim.name), number(claim.generation)]
    if isinstance(answer, NotModified):
        return [*begin, b"n", hold, *kept, *[None] * (ANSWER_WIDTH - 6)]
    before, after = _envelope_around(claim, answer)
    return [
        *(
            *begin,
            b"a",
            hold,
            *kept,
            stored(answer.declaration),
            stored(answer.digest),
            stored(answer.payload),
        ),
        *(stored(answer.event_id), stored(answer.event)),
        *(None if answer.occurred_at is None else number(answer.occurred_at), before, after, None, None),
    ]


def _envelope_around(claim: Claim, answer: Answered) -> tuple[bytes, bytes]:
    """The envelope of an event up to its seq, and from behind its instant to where the event before it goes.

    Only the function knows these three. Quotes within a text are escaped, so what is cut at can be only what it is.
    """
    text = envelope(
        name=answer.event,
        event_id=answer.event_id,
        seq=0,
        created_at=0,
        connection=claim.name.partition(".")[0],
        poll=claim.name,
        occurred_at=answer.occurred_at,
        payload=answer.payload,
        previous=None,
    )
    before, _, after = text.partition(_SEQ_AND_INSTANT)
    return stored(f'{before},"seq":'), stored(after.removesuffix(_PREVIOUS))


def _judged(row: Given, said: Row) -> Given:
    """``row`` with the digest that it was compared with in full, and what came of that."""
    kept = shown_if_any(said[1])
    changed = is_change(kept, shown_if_any(said[2]), (row[7] or b"").decode())
    return [*row[:14], said[1], b"1" if changed else b"0"]


def _recorded(row: Given, said: Row) -> Recorded:
    kind, first, second = said
    match kind:
        case b"s":
            return Stale()
        case b"u":
            return Unchanged(None if first is None else timedelta(milliseconds=int(first)))
        case b"c":
            return Changed(
                event_id=(row[9] or b"").decode(), seq=int(first or 0), deliveries=int(second or 0)
            )
        case _:
            raise ProviderError(
                "others recorded answers of the same poll all the time; ask again", retryable=True
            )
