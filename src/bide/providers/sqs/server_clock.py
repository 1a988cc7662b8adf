"""What time it is at SQS, as far as its answers tell."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime


class ServerClock:
    """The clock of SQS, followed by the ``Date`` of its answers, which is in whole seconds.

    Each answer bounds how far it is ahead of the monotonic clock of this process: it was stamped between the request
    and the answer. The estimate is moved no further than such bounds ask, so it becomes better with every answer, and
    is never more than a second and a round trip off. The wall clock of this machine plays no part.
    """

    def __init__(self) -> None:
        self._ahead_ms: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether there has been an answer."""
        return self._ahead_ms is not None

    def heard(self, headers: Mapping[str, str], sent_s: float, received_s: float) -> None:
        """An answer with these headers came to a request that was made at ``sent_s``, both on the monotonic clock."""
        try:
            stamp_ms = int(parsedate_to_datetime(headers["date"]).timestamp()) * 1000
        except (KeyError, ValueError):
            return
        least, most = stamp_ms - received_s * 1000, stamp_ms + 1000 - sent_s * 1000
        known = least if self._ahead_ms is None else self._ahead_ms
        self._ahead_ms = min(max(known, least), most)

    def now_ms(self, monotonic_s: float) -> int:
        """Milliseconds since the Unix epoch at SQS. To be asked once it ``is_known``."""
        assert self._ahead_ms is not None
        return round(monotonic_s * 1000 + self._ahead_ms)
