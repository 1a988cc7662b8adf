"""From a claim to its record: call the poll, record what came of it, and tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from bide.clock import Clock, is_cancelled
from bide.core.schedule import failure_hold
from bide.engine.asking import HeardPoll, ask
from bide.engine.recording import AnswerRecorder
from bide.errors import AnswerError, CallError
from bide.provider import Answered, Changed, Claim, NotModified, Polls, Recorded, Stale, Unchanged
from bide.telemetry import PollAnswered, PollFailed, PollQuiet, Telemetry

Told = PollAnswered | PollFailed


class PollCall:
    """The call that a claim gives the right to.

    ``ended`` is told what came of it once that was recorded, or could not be; or None where nothing came of it.
    ``slack``: see :func:`bide.core.schedule.failure_hold`. ``claimed_at`` and ``gives_up_at`` are monotonic instants.
    ``alone``: an operation that is a function may change the context that it runs in.
    """

    __slots__ = (
        *("alone", "began", "claim", "claimed_at", "connection", "ended"),
        *("gives_up_at", "heard", "name", "slack"),
    )

    def __init__(
        self,
        heard: HeardPoll,
        claim: Claim,
        slack: timedelta,
        claimed_at: float,
        ended: Callable[[PollCall, Told | None], None],
    ) -> None:
        self.heard = heard
        self.claim = claim
        self.slack = slack
        self.ended = ended
        self.name = claim.name
        self.connection = heard.poll.connection
        self.alone = heard.poll.operation.function is not None
        self.claimed_at = self.began = claimed_at
        self.gives_up_at = claimed_at + heard.patience_s


class PollCalls:
    """Makes the calls that claims give the right to.

    ``hide`` takes secrets out of error texts.
    """

    def __init__(
        self,
        provider: Polls,
        *,
        clock: Clock,
        telemetry: Telemetry,
        hide: Callable[[str], str],
    ) -> None:
        self._provider = provider
        self._clock = clock
        self._telemetry = telemetry
        self._hide = hide
        self._answers = AnswerRecorder(provider, clock)
        self._failing: set[asyncio.Task[None]] = set()
        self._unrecorded: set[PollCall] = set()
        self._quiet: set[str] = set()

    async def make(self, call: PollCall) -> None:
        """Call; returns once the answer is there, which is then recorded. Raises nothing that a poll can cause."""
        call.began = self._clock.monotonic()
        try:
            answer = await ask(call.heard, call.claim, self._clock)
        except CallError as error:
            hint = None if error.hint_ms is None else timedelta(milliseconds=error.hint_ms)
            # A function may call several addresses; that one of them is gone says nothing of the poll.
            gone = error.status == 410 and not call.alone
            self._fail(call, error.kind, str(error), hint=hint, gone=gone)
        except AnswerError as error:
            self._fail(call, "answer", str(error))
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise  # we did, at a stop
            self._fail(call, "fault", f"it was cancelled from within: {error!r}")
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # a fault of ours, or one that no call should have
            self._fail(call, "fault", f"{type(error).__name__}: {error!r}")
        else:
            self._unrecorded.add(call)
            self._answers.record(call.claim, answer, lambda recorded: self._recorded(call, answer, recorded))

    def cancel(self) -> None:
        """Record nothing more; what was not recorded comes to nothing."""
        self._answers.cancel()
        for failing in self._failing:
            failing.cancel()
        while self._unrecorded:
            call = self._unrecorded.pop()
            call.ended(call, None)

    def _recorded(
        self, call: PollCall, answer: Answered | NotModified, recorded: Recorded | Exception
    ) -> None:
        if isinstance(recorded, Exception):
            self._end(call, _failed(call.claim, "provider", str(recorded), call.heard.schedule.failure_retry))
            return
        if call.heard.connection.quiet_after is not None:
            self._watch_quiet(call, recorded, call.heard.connection.quiet_after)
        self._end(call, _told(call, answer, recorded, (self._clock.monotonic() - call.began) * 1000))

    def _fail(
        self, call: PollCall, kind: str, error: str, *, hint: timedelta | None = None, gone: bool = False
    ) -> None:
        self._unrecorded.add(call)
        failing = asyncio.ensure_future(self._record_failure(call, kind, error, hint=hint, gone=gone))
        self._failing.add(failing)
        failing.add_done_callback(self._failing.discard)

    async def _record_failure(
        self, call: PollCall, kind: str, error: str, *, hint: timedelta | None, gone: bool
    ) -> None:
        schedule, claim = call.heard.schedule, call.claim
        error = self._hide(error)
        if hint is not None:
            hint = min(hint, call.heard.connection.hint_clamp) or None
        hold = failure_hold(
            claim.failures + 1,
            every=schedule.every,
            failure_retry=schedule.failure_retry,
            hint=hint,
            slack=call.slack,
        )
        try:
            await self._provider.record_failure(claim, error, hold)
            if gone:
                await self._provider.pause_polls([claim.name], True)
                error = f"{error}; paused until `bide polls resume {claim.name}`"
        except Exception as unreachable:
            error = f"{error} (and it could not be recorded: {unreachable})"
        self._end(call, _failed(claim, kind, error, hold))

    def _end(self, call: PollCall, told: Told) -> None:
        self._unrecorded.discard(call)
        self._telemetry.emit(told)
        call.ended(call, told)

    def _watch_quiet(self, call: PollCall, recorded: Recorded, limit: timedelta) -> None:
        """Tell once when a poll has not changed for longer than its connection allows."""
        quiet_for = recorded.quiet_for if isinstance(recorded, Unchanged) else None
        if quiet_for is None or quiet_for < limit:
            self._quiet.discard(call.name)
        elif call.name not in self._quiet:
            self._quiet.add(call.name)
            self._telemetry.emit(PollQuiet(call.name, quiet_for.total_seconds() * 1000))


def _failed(claim: Claim, kind: str, error: str, hold: timedelta) -> PollFailed:
    return PollFailed(claim.name, kind, error, claim.failures + 1, hold.total_seconds() * 1000)


def _told(
    call: PollCall, answer: Answered | NotModified, recorded: Recorded, elapsed_ms: float
) -> PollAnswered:
    claim = call.claim
    match recorded:
        case Changed(event_id=event_id, deliveries=deliveries):
            return PollAnswered(
                claim.name,
                "changed",
                claim.lag_ms,
                elapsed_ms,
                failures=claim.failures,
                event=call.heard.poll.event.name,
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
