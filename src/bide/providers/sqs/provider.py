"""The SQS provider: work alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from bide.clock import Clock
from bide.core.abilities import SQS
from bide.core.sqs_address import sqs_address
from bide.providers.choosing import Turns
from bide.providers.lacking import NoEvents, NoJoining, NoOccurrences, NoPolls
from bide.providers.sqs.holding import Holdings
from bide.providers.sqs.inspection import SqsInspection
from bide.providers.sqs.sessions import Sessions
from bide.providers.sqs.work import SqsWork

_LOG = logging.getLogger("bide.sqs")


class SqsProvider(SqsWork, SqsInspection, NoPolls, NoEvents, NoJoining, NoOccurrences):
    """Keeps work items in standard queues of Amazon SQS, for any number of machines.

    One object serves any number of event loops of its process. What it cannot keep is refused by name
    (:class:`bide.errors.Unsupported`).
    """

    kind = SQS

    def __init__(self, address: str, *, clock: Clock) -> None:
        """``address`` as ``sqs://prefix?region=…``; ``clock`` is what it waits by, and times locks by.

        Raises ``SettingError``.
        """
        self._sessions = Sessions(sqs_address(address), clock)
        self._holdings = Holdings(clock.new_id())
        self._turns = Turns()
        self._standings = {}
        self._fetches = {}
        self._known = set()
        self._told = set()

    @property
    def place(self) -> str:
        """What is used, for people."""
        return self._sessions.address.place

    async def open(self) -> None:
        """See that SQS answers these credentials; unless that is done. Raises ``ProviderError``."""
        await self._sessions.open()

    async def close(self) -> None:
        """Finish what was begun, and close every connection.

        A receive that waits is let end, since it may bring something that has to be given back: this takes up to
        ``wait`` seconds of the address.
        """
        await self.wake()
        if self._sessions.traffic.waiting:
            _LOG.info("letting a receive end that waits at SQS: up to %d s", self._sessions.address.wait_s)
        await self._sessions.close()
        self._standings.clear()

    def requests(self) -> Mapping[str, int]:
        """Requests made so far, by class: ``receive``, ``send``, ``delete``, ``visibility``, ``other``."""
        return self._sessions.traffic.made()
