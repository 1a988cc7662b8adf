"""Which polls may be claimed, and when a claimed one is due next.

One rule for every poll, whether it is new, due, shortened, overtaken by a changed clock or left behind by
a crash. Providers that decide in a statement of their own use the same conditions; this is the rule they are
held to. All instants are whole milliseconds of the store's clock, all durations whole milliseconds.

A claim of a poll with the interval E, at the instant ``now``, sets

- ``every_ms`` to E, ``called_at`` to ``now``, ``outstanding``, and the next ``generation``;
- ``hold_ms`` to the call's deadline plus the failure retry, and ``not_before_at`` to ``now + hold_ms``, so
  that a call that is never recorded (its caller crashed) can be claimed again then;
- ``due_at`` to :func:`next_due_at`. The gap from claim to due instant is in (E/2, 3E/2], and every due
  instant of a poll has the same place within E, so polls stay spread after starts, stops and outages.
"""

from __future__ import annotations

import hashlib
from typing import Protocol


class PollState(Protocol):
    """What the rule needs to know of a poll that has a row."""

    @property
    def due_at(self) -> int:
        """When it is due."""
        ...

    @property
    def not_before_at(self) -> int | None:
        """When its hold ends: after a claim, a failure or a server's hint; None without one."""
        ...

    @property
    def hold_ms(self) -> int:
        """How long the hold was when it was set."""
        ...

    @property
    def outstanding(self) -> bool:
        """Whether it was claimed and the claim has not been recorded."""
        ...

    @property
    def every_ms(self) -> int | None:
        """The interval it was last claimed with; None where that is not known (after a migration)."""
        ...

    @property
    def paused(self) -> bool:
        """Whether it was paused by hand."""
        ...


def phase_ms(name: str, every_ms: int) -> int:
    """The place of a poll's due instants within its interval: the same in every process and for ever.

    The first 8 bytes of the SHA-256 of the name's UTF-8, big-endian, modulo ``every_ms``.
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % every_ms


def next_due_at(now: int, every_ms: int, phase: int) -> int:
    """The least instant that is later than ``now + every_ms/2`` and lies at ``phase`` within ``every_ms``."""
    least = now + every_ms // 2 + 1
    return least + (phase - least) % every_ms


def is_claimable(row: PollState | None, *, now: int, every_ms: int, slack_ms: int = 0) -> bool:
    """Whether a poll of interval ``every_ms`` may be claimed at ``now``; ``row`` None: it never was.

    ``slack_ms`` takes polls that will be due so soon, for callers that do not come again in time; with no
    more than half the interval, a poll just claimed is still not claimable.
    """
    if row is None:
        return True
    if row.paused or _is_held(row, now):
        return False
    if row.outstanding:  # its hold is over, so whoever claimed it is gone
        return True
    return (
        row.due_at <= now + slack_ms
        or (_may_be_shortened(row, every_ms) and row.due_at > now + every_ms)
        or row.due_at > now + 2 * every_ms  # the clock was set back
    )


def claimable_at(row: PollState | None, *, now: int, every_ms: int) -> int | None:
    """The first instant from ``now`` on at which the poll will be claimable if nothing else happens to it.

    None while it is paused: no instant will do.
    """
    if row is None:
        return now
    if row.paused:
        return None
    looked_at = _free_at(row, now)
    if is_claimable(row, now=looked_at, every_ms=every_ms):
        return looked_at
    return _free_at(row, row.due_at)


def _may_be_shortened(row: PollState, every_ms: int) -> bool:
    """Whether it was last claimed with a longer interval, or with one that is not known."""
    return row.every_ms is None or row.every_ms > every_ms


def _is_held(row: PollState, now: int) -> bool:
    """Whether the hold counts at ``now``. One that ends twice its length away is older than the clock."""
    return row.not_before_at is not None and now < row.not_before_at <= now + 2 * row.hold_ms


def _free_at(row: PollState, instant: int) -> int:
    """``instant``, or the end of the hold that counts then."""
    if row.not_before_at is not None and _is_held(row, instant):
        return row.not_before_at
    return instant
