"""From a claim to its record: call the poll, record what came of it, and tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from bide.clock import Clock, is_cancelled
from bide.core.pacing import FETCH_BACKOFF, about
from bide.core.schedule import failure_hold
from bide.engine.asking import HeardPoll, ask
from bide.errors import AnswerError, CallError, ProviderError
from bide.provider import Answered, Changed, Claim, NotModified, Polls, Recorded, Stale, Unchanged
from bide.telemetry import PollAnswered, PollFailed, PollQuiet, Telemetry

RECORD_TRIES = 6
"""Times that recording is tried while the provider is away. A claim not recorded comes round by itself."""

ZERO = timedelta()


class PollCalls:
    """Makes the calls that claims give the right to.

    ``hide`` takes secrets out of error texts; ``slack``: see :func:`bide.core.schedule.failure_hold`.
    """

    def __init__(
        self,
        provider: Polls,
        *,
        clock: Clock,
        telemetry: Telemetry,
        hide: Callable[[str], str],
        slack: timedelta = ZERO,
    ) -> None:
        self._provider = provider
        self._clock = clock
        self._telemetry = telemetry
        self._hide = hide
        self._slack = slack
        self._quiet: set[str] = set()

    async def make(
        self, heard: HeardPoll, claim: Claim, answered: Callable[[], None] = lambda: None
    ) -> PollAnswered | PollFailed:
        """Call, record, tell; the answer is what was told. Raises nothing that a poll can cause.

        ``answered`` is called as soon as the call is over, before it is recorded.
        """
        began = self._clock.monotonic()
        try:
            answer = await ask(heard, claim, self._clock)
        except CallError as error:
            hint = None if error.hint_ms is None else timedelta(milliseconds=error.hint_ms)
            # A function may call several addresses; that one of them is gone says nothing of the poll.
            gone = error.status == 410 and heard.poll.operation.function is None
            return await self._failed(heard, claim, error.kind, str(error), hint=hint, gone=gone)
        except AnswerError as error:
            return await self._failed(heard, claim, "answer", str(error))
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise  # we did, at a stop
            return await self._failed(heard, claim, "fault", f"it was cancelled from within: {error!r}")
        except Exception as error:  # a fault of ours, or one that no call should have
            return await self._failed(heard, claim, "fault", f"{type(error).__name__}: {error!r}")
        finally:
            answered()
        try:
            recorded = await self._provider.record_answer(claim, answer)
        except ProviderError as error:
            try:
                recorded = await self._record_again(claim, answer, error)
            except ProviderError as lasting:
                return self._tell_failure(claim, "provider", str(lasting), heard.schedule.failure_retry)
        self._watch_quiet(heard, recorded)
        told = _told(heard, claim, answer, recorded, (self._clock.monotonic() - began) * 1000)
        self._telemetry.emit(told)
        return told

    async def _record_again(
        self, claim: Claim, answer: Answered | NotModified, error: ProviderError
    ) -> Recorded:
        """Try to record again, with back-off, while it may help. Raises the last ``ProviderError``."""
        backoff = None
        for _ in range(RECORD_TRIES - 1):
            if not error.retryable:
                break
            backoff = FETCH_BACKOFF.next(backoff)
            await self._clock.sleep(about(backoff, self._clock.draw()).total_seconds())
            try:
                return await self._provider.record_answer(claim, answer)
            except ProviderError as again:
                error = again
        raise error

    async def _failed(
        self,
        heard: HeardPoll,
        claim: Claim,
        kind: str,
        error: str,
        *,
        hint: timedelta | None = None,
        gone: bool = False,
    ) -> PollFailed:
        schedule = heard.schedule
        error = self._hide(error)
        if hint is not None:
            hint = min(hint, heard.connection.hint_clamp) or None
        hold = failure_hold(
            claim.failures + 1,
            every=schedule.every,
            failure_retry=schedule.failure_retry,
            hint=hint,
            slack=self._slack,
        )
        try:
            await self._provider.record_failure(claim, error, hold)
            if gone:
                await self._provider.pause_polls([claim.name], True)
                error = f"{error}; paused until `bide polls resume {claim.name}`"
        except ProviderError as unreachable:
            error = f"{error} (and it could not be recorded: {unreachable})"
        return self._tell_failure(claim, kind, error, hold)

    def _tell_failure(self, claim: Claim, kind: str, error: str, hold: timedelta) -> PollFailed:
        failed = PollFailed(claim.name, kind, error, claim.failures + 1, hold.total_seconds() * 1000)
        self._telemetry.emit(failed)
        return failed

    def _watch_quiet(self, heard: HeardPoll, recorded: Recorded) -> None:
        """Tell once when a poll has not changed for longer than its connection allows."""
        limit, name = heard.connection.quiet_after, heard.poll.name
        quiet_for = recorded.quiet_for if isinstance(recorded, Unchanged) else None
        if limit is None or quiet_for is None or quiet_for < limit:
            self._quiet.discard(name)
        elif name not in self._quiet:
            self._quiet.add(name)
            self._telemetry.emit(PollQuiet(name, quiet_for.total_seconds() * 1000))


def _told(
    heard: HeardPoll, claim: Claim, answer: Answered | NotModified, recorded: Recorded, elapsed_ms: float
) -> PollAnswered:
    match recorded:
        case Changed(event_id=event_id, deliveries=deliveries):
            return PollAnswered(
                claim.name,
                "changed",
                claim.lag_ms,
                elapsed_ms,
                failures=claim.failures,
                event=heard.poll.event.name,
                event_id=event_id,
                deliveries=deliveries,
            )
        case Unchanged():
            return PollAnswered(
                claim.name,
                "not_modified" if isinstance(answer, NotModified) else "unchanged",
                claim.lag_ms,
                elapsed_ms,
                failures=claim.failures,
            )
        case Stale():
            return PollAnswered(claim.name, "stale", claim.lag_ms, elapsed_ms)
