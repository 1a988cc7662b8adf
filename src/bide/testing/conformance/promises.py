"""The sixteen promises that a provider makes. Tests of promise 7 are those whose names begin with ``test_07_``."""

from __future__ import annotations

import re
from types import MappingProxyType

PROMISES = MappingProxyType(
    {
        1: "a fetch waits no longer than its poll_timeout, and ends as soon as something is eligible",
        2: "a fetch can be cancelled at any moment, and takes nothing with it",
        3: "a lock starts when items are taken, not when the fetch began to wait",
        4: "Empty means that nothing was eligible; losing to others is Contended",
        5: "an item is held by one live lock at most, and a token that has expired is dead",
        6: "settling is atomic: an ack and what it enqueues happen together or not at all",
        7: "attempts are counted at fetch, deaths apart, and what kills workers is fetched alone and buried",
        8: "visibility is not a lock: an item that waits for its instant has no token",
        9: "instants are made and compared by the store's clock",
        10: "a key makes enqueueing idempotent, and is free again a day after its item ended",
        11: "only items of the names and queues given are fetched, and others starve nobody",
        12: "urgent first and nothing starves; queues and limit keys are served fairly, limits hold over the fleet",
        13: "one of many claims a poll; what comes of an answer is kept together or not at all",
        14: "an item that cannot be read is reported, counted and buried, and blocks nobody",
        15: "errors say whether asking again may help; a lost connection may",
        16: "what is kept outlives restarts and versions; an older program refuses a newer store",
    }
)
"""What is promised, by number."""


NOT_KEPT = "not kept: "
"""What the reason begins with where a test is skipped because the provider says that it does not keep it."""

_NUMBERED = re.compile(r"test_(\d\d)_")


def promise_of(test: str) -> int | None:
    """The number of the promise that a test of this name proves a part of; None for the rest of the contract."""
    found = _NUMBERED.match(test)
    return int(found[1]) if found else None
