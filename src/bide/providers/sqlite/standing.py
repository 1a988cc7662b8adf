"""Fetches that wait are served inside the transaction that brings what they wait for: one sync of the disk, not two.

A fetch that found nothing stands from then on. When a transaction has made work eligible, what stands looks again
before that is committed; what it takes is its own once it is. It is as if it had looked right after.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from bide.provider import Empty, Items

if TYPE_CHECKING:
    from bide.providers.sqlite.writer import Transaction

MOST_SERVED = 8
"""Fetches that look within one transaction of somebody else's; the others look by themselves."""


class Offer:
    """One fetch, whose ``look`` takes what is eligible for it.

    ``waits``, which any thread may change, says whether it would have what comes later. ``found`` is what was taken
    for it while it stood, and is on disk.
    """

    __slots__ = ("found", "look", "waits")

    def __init__(self, look: Callable[[Transaction], Items | Empty], *, waits: bool) -> None:
        self.look = look
        self.waits = waits
        self.found: Items | None = None


class Standing:
    """The offers that stand, in the order in which they last looked. For the writing thread."""

    def __init__(self) -> None:
        self._offers: dict[Offer, None] = {}

    def look(self, transaction: Transaction, offer: Offer) -> Items | Empty:
        """Take what there is for ``offer``, or was found since this was asked. Where there is nothing it stands."""
        self._offers.pop(offer, None)
        found = offer.found or offer.look(transaction)
        if isinstance(found, Empty) and offer.waits:
            self._offers[offer] = None
        return found

    def withdraw(self, _: Transaction, offer: Offer) -> Items | None:
        """``offer`` stands no more; what was found for it at the last moment."""
        self._offers.pop(offer, None)
        return offer.found

    def serve(self, transaction: Transaction) -> list[tuple[Offer, Items]]:
        """Take what there is for offers that stand; to be told to them once ``transaction`` is committed.

        One that fails stands no more: it is rung like all others, and then fails by itself. Raises where the whole
        transaction was lost by it.
        """
        served = []
        for offer in list(islice(self._offers, MOST_SERVED)):
            del self._offers[offer]
            if not offer.waits:
                continue
            match _looked(transaction, offer):
                case Items() as found:
                    served.append((offer, found))
                case Empty():
                    self._offers[offer] = None
        return served


def _looked(transaction: Transaction, offer: Offer) -> Items | Empty | None:
    """What ``offer`` finds; None where it fails, and then nothing was changed."""
    connection = transaction.connection
    connection.execute("SAVEPOINT offer")
    try:
        found = offer.look(transaction)
    except Exception:
        if not connection.in_transaction:
            raise
        connection.execute("ROLLBACK TO offer")
        found = None
    connection.execute("RELEASE offer")
    return found
