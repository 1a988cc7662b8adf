"""For probes that hold an HTTP answer in their hands: what it says of the next attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bide.clock import Clock, present_clock
from bide.core import hints
from bide.core.durations import LONGEST
from bide.core.http import Headers
from bide.core.polling import RetryAfter


def retry_after(
    headers: Mapping[str, str] | Iterable[tuple[str, str]], *, clock: Clock | None = None
) -> RetryAfter:
    """What the Retry-After of ``headers`` asks for, for a probe to answer: "not yet", and no sooner than then.

    Every legal form counts (RFC 9110, 10.2.3): whole seconds, or a date in one of its three forms, taken relative
    to the Date of the answer. Where the field is missing or not legal, the strategy alone says when to ask again.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    now_ms = (clock or present_clock()).utc_ms()
    delay = hints.retry_after(Headers(pairs), now_ms=now_ms)
    return RetryAfter() if delay is None else RetryAfter(min(delay, LONGEST))
