"""Which messages this provider holds for its workers, by their lock tokens.

SQS tells of a receipt that has expired only where somebody else took the message since; so the provider itself knows
when a lock has ended, by the monotonic clock, and refuses what comes after that.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field

from bide.providers.sqs.batches import Handle
from bide.providers.sqs.envelope import Envelope
from bide.providers.sqs.messages import Message

LONGEST_LOCK_S = 43_200
"""How long a message may stay invisible after its receive, in all (Amazon SQS, ChangeMessageVisibility)."""

FORGET_S = 60.0
"""Tokens are remembered for so long after their lock has ended."""


@dataclass(slots=True)
class Held:
    """A message that was handed out. ``item`` None: it is no item of bide's. ``message`` None: another provider
    object fetched it, and only its receipt is known.

    ``claimed``: it is being settled. ``settled``: whether its settlement found it held, once that is over, and
    ``told``: whoever settled it has heard so. ``sent``: ids that its settlement has already sent, so that another try
    does not send them again; the item's own where it was sent anew.
    """

    token: str
    handle: Handle
    message: Message | None
    item: Envelope | None
    fetch_token: str
    received_s: float
    until_s: float
    claimed: bool = False
    settled: bool | None = None
    told: bool = False
    sent: set[str] = field(default_factory=set)

    def is_live(self, now_s: float) -> bool:
        return self.settled is None and self.until_s > now_s


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says by itself: for a provider object that did not fetch it. ``until`` is SQS's time, ms.

    ``by`` is the mark of the object that fetched it.
    """

    queue: str
    until: int
    by: str
    receipt: str

    def text(self) -> str:
        return f"{self.queue}:{self.until}:{self.by}:{self.receipt}"

    @classmethod
    def of(cls, text: str) -> Token | None:
        """``text`` read; None where it is no token of SQS's."""
        parts = text.split(":", 3)
        if len(parts) != 4 or not all(parts) or not (parts[1].isascii() and parts[1].isdigit()):
            return None
        return cls(parts[0], int(parts[1]), parts[2], parts[3])


class Holdings:
    """What one provider holds. Safe to use from any thread.

    ``mark`` is in the tokens of this provider, and no other's: one of its own that it does not know is dead, so that
    what was settled need not be remembered.
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._guard = threading.Lock()
        self._held: dict[str, Held] = {}

    def __len__(self) -> int:
        """How many tokens are remembered."""
        with self._guard:
            return len(self._held)

    def keep(self, held: Collection[Held], now_s: float) -> None:
        """These were handed out, or their locks prolonged; what is settled meanwhile stays so."""
        with self._guard:
            gone = [
                token
                for token, one in self._held.items()
                if one.until_s + FORGET_S < now_s and not one.claimed
            ]
            for token in gone:
                del self._held[token]
            self._held.update((one.token, one) for one in held if one.settled is None)

    def get(self, token: str) -> Held | None:
        """Whatever is known of ``token``, alive or not."""
        with self._guard:
            return self._held.get(token)

    def claim(self, token: str, now_s: float) -> Held | None:
        """What is held under ``token``, to be settled; None where that is dead or being settled already.

        What was settled by a call that failed for another's sake can be claimed once more, to be told of.
        """
        with self._guard:
            held = self._held.get(token)
            if (
                held is None
                or held.claimed
                or held.told
                or (held.settled is None and not held.is_live(now_s))
            ):
                return None
            held.claimed = True
            return held

    def unclaim(self, held: Collection[Held]) -> None:
        """Their settling failed, of one at least."""
        with self._guard:
            for one in held:
                one.claimed = False

    def forget(self, held: Collection[Held]) -> None:
        """They are settled, and whoever asked is told so; of others' the token is remembered while it lives."""
        with self._guard:
            for one in held:
                one.claimed, one.told = False, True
                if one.message is not None:
                    self._held.pop(one.token, None)

    def of_fetch(self, fetch_token: str, now_s: float) -> list[Held]:
        """What the fetch of that token took and still holds."""
        with self._guard:
            return [
                one
                for one in self._held.values()
                if one.fetch_token == fetch_token and not one.claimed and one.is_live(now_s)
            ]
