"""What a fetch has received: what of it may be handed out, and what is to become of the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from bide.providers.choosing import Candidate, choose
from bide.providers.reasons import DEATHS_BEFORE_ALONE
from bide.providers.sqs.batches import Handle, Outgoing, hide_all
from bide.providers.sqs.envelope import Envelope
from bide.providers.sqs.holding import LONGEST_LOCK_S
from bide.providers.sqs.messages import (
    Early,
    Fit,
    FromNewer,
    Message,
    Over,
    Unknown,
    Unwanted,
    given_back,
    judge,
)
from bide.providers.sqs.moving import LONGEST_DELAY_S, Move, again, give_back_foreign, move_all
from bide.providers.sqs.session import Session

BUSY_DELAY_S = 10
"""The longest that an item is put off whose name this process handles, but has no free place for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a fetch asks for. ``queues``: in their turn, with their SQS names. ``known``: names of earlier fetches
    too."""

    queues: Mapping[str, str]
    names: frozenset[str]
    known: Collection[str]
    limit: int
    most: Mapping[str, int]
    lock_s: int
    wait_s: float
    fetch_token: str


@dataclass(frozen=True, slots=True)
class Caught:
    """A message that may be handed out. ``item`` None: it is none of bide's, for the reason ``unknown``."""

    message: Message
    item: Envelope | None
    unknown: str = ""


class Catch:
    """The messages of one fetch. ``tell_unwanted`` is told queue and name of what nobody here handles."""

    def __init__(self, session: Session, wanted: Wanted, tell_unwanted: Callable[[str, str], None]) -> None:
        self._session = session
        self._wanted = wanted
        self._tell_unwanted = tell_unwanted
        self._candidates: list[Caught] = []
        self._moves: list[Move] = []
        self._hides: list[tuple[Handle, int]] = []

    @property
    def fitting(self) -> int:
        """How many messages may be handed out."""
        return len(self._candidates)

    async def sort(self, messages: Sequence[Message]) -> None:
        """What may be handed out, and what is to become of the rest."""
        if not messages:
            return
        now_ms = await self._session.now_ms()
        for message in messages:
            # the server's clock to the millisecond, where this is the first receive
            seen_ms = message.first_at if message.receives == 1 else 0
            self._place(message, max(now_ms, seen_ms))

    def _place(self, message: Message, now_ms: int) -> None:
        handle = Handle(message.name, message.receipt)
        match judge(message, self._wanted.names, now_ms):
            case Fit(item):
                self._candidates.append(Caught(message, item))
            case Unknown(reason):
                self._candidates.append(Caught(message, None, reason))
            case Over(item):
                self._moves.append(Move(handle, Outgoing(f"{message.name}-dead", item.text())))
            case Early(item, wait_ms):
                self._put_off(message, item, -(-wait_ms // 1000), now_ms)
            case Unwanted(item):
                known = item.name in self._wanted.known
                self._pass_on(message, item, BUSY_DELAY_S if known else LONGEST_DELAY_S)
                if not known:
                    self._tell_unwanted(message.queue, item.name)
            case FromNewer(said):
                outgoing = Outgoing(message.name, said.text(), passing_delay_s(said.passed, LONGEST_DELAY_S))
                self._moves.append(Move(handle, outgoing))
            case unreachable:
                assert_never(unreachable)

    def _pass_on(self, message: Message, item: Envelope, longest_s: int) -> None:
        """Leave it to others, for longer each time."""
        passed = replace(item, passed=item.passed + 1)
        self._moves.append(again(message, passed, passing_delay_s(item.passed, longest_s), 0))

    def _put_off(self, message: Message, item: Envelope, wait_s: int, now_ms: int) -> None:
        """Until its instant. The first time by its lock, which reaches further than the delay of a message; the
        receive that this costs is known by its time. After that anew."""
        if message.receives == 1:
            handle = Handle(message.name, message.receipt)
            self._hides.append((handle, min(wait_s, LONGEST_LOCK_S - 60)))
            return
        kept = again(message, item, min(wait_s, LONGEST_DELAY_S), now_ms)
        assert kept.outgoing is not None
        text = replace(item, not_before=now_ms + wait_s * 1000).text()
        self._moves.append(Move(kept.handle, replace(kept.outgoing, text=text)))

    def chosen(self) -> list[Caught]:
        """What is handed out of what was received."""
        name = min(self._wanted.names)
        alike = [
            Candidate(
                seq=seq,
                queue=each.message.queue,
                name=name if each.item is None else each.item.name,
                rank=0,
                deaths=0 if each.item is None else each.item.deaths,
            )
            for seq, each in enumerate(self._candidates)
        ]
        wanted = self._wanted
        chosen = choose(alike, tuple(wanted.queues), limit=wanted.limit, most=wanted.most)
        return [self._candidates[one.seq] for one in chosen]

    def room(self) -> int:
        """How many more may be handed out."""
        chosen = self.chosen()
        alone = any(one.item is not None and one.item.deaths >= DEATHS_BEFORE_ALONE for one in chosen)
        return 0 if alone else self._wanted.limit - len(chosen)

    async def let_go(self, chosen: Sequence[Caught]) -> None:
        """Give back whatever is not ``chosen``."""
        taken = {one.message.receipt for one in chosen}
        left = [one for one in self._candidates if one.message.receipt not in taken]
        for one in left:
            if one.item is not None:
                self._leave(one.message, one.item, chosen)
        await self.tidy()
        await give_back_foreign(self._session, [one.message for one in left if one.item is None])

    def _leave(self, message: Message, item: Envelope, chosen: Sequence[Caught]) -> None:
        """Give back a fitting item: at once where it was too many, later where its name has no place."""
        same = sum(one.item is not None and one.item.name == item.name for one in chosen)
        if same >= self._wanted.most.get(item.name, self._wanted.limit + 1):
            self._pass_on(message, given_back(item), BUSY_DELAY_S)
        else:
            self._moves.append(again(message, given_back(item), 0, 0))

    async def tidy(self) -> None:
        """Do what is to become of what was not handed out. What fails comes back by itself when its lock ends."""
        moves, self._moves = self._moves, []
        hides, self._hides = self._hides, []
        await move_all(self._session, moves)
        await hide_all(self._session, [handle for handle, _ in hides], [seconds for _, seconds in hides])


def passing_delay_s(passed: int, longest_s: int) -> int:
    """For how long an item is put off that was passed on so often before: a second, then twice as long each time."""
    return min(1 << min(passed, 20), longest_s)
