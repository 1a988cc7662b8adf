"""What follows from each attempt of a wait: the value, an error, or so many seconds before the next one.

The loops, asynchronous and not, ask and wait; everything between is here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

from bide.core.judging import Condition, judge
from bide.core.polling import RetryAfter
from bide.core.retrying import RetryRule, retries
from bide.core.verdict import Failure, NotYet, Success
from bide.core.waited import AttemptEnded, AttemptHook, AttemptOutcome, PollResult, duration_text, explain
from bide.core.waits import Wait, WaitSettings
from bide.engine.hooks import is_heard, tell
from bide.engine.probing import name_of
from bide.errors import CallError, SettingError, WaitFailed, WaitTimeout


class Measures(Protocol):
    """The part of a clock that judging needs."""

    def monotonic(self) -> float: ...

    def draw(self) -> float: ...


M = TypeVar("M", bound=Measures)


class Judge(Generic[M]):
    """One wait, told what its attempts came to. ``wait.last`` is the value once there is one.

    ``clock`` is what its driver waits by, ``probe`` the caller's function or a name for it; ``retry_on`` and the
    conditions are those of ``poll_until``.
    """

    __slots__ = ("_condition", "_failed", "_hook", "_probe", "_retries", "clock", "wait")

    def __init__(
        self,
        settings: WaitSettings,
        clock: M,
        probe: object,
        retry_on: RetryRule,
        *,
        condition: Condition | None = None,
        failed: Condition | None = None,
        hook: AttemptHook | None = None,
    ) -> None:
        for name, given in (("condition", condition), ("failed", failed), ("on_attempt", hook)):
            if given is not None and not callable(given):
                raise SettingError(name, f"{given!r} is no function; give a function of the answer")
        self.wait = Wait(settings, clock.monotonic())
        self.clock = clock
        self._probe = probe
        self._retries = retries(retry_on)
        self._condition = condition
        self._failed = failed
        self._hook = hook

    # --- what an attempt came to, and so the seconds before the next one -------------------------------------

    def answered(self, value: Any, began: float, now: float) -> float | None:
        """The probe answered; None where the value is what was waited for.

        Raises :class:`~bide.errors.WaitFailed`, :class:`~bide.errors.WaitTimeout`, and what the conditions raise.
        """
        wait = self.wait
        wait.ended(began, now)
        wait.error = None
        wait.reason = ""
        said = judge(value, self._condition, self._failed)
        if said is False:
            wait.last = value
            wait.breaks()
            return self._again("not_yet", began, now, value=value)
        if isinstance(said, NotYet):
            answer = None if isinstance(value, RetryAfter) else value
            if answer is not None:
                wait.last = answer
            wait.reason = said.reason
            wait.breaks()
            return self._again("not_yet", began, now, said.hint, value=answer)
        wait.last = said.value if isinstance(said, Success) else value
        if isinstance(said, Failure):
            self._tell("failed", began, now, None, value)
            raise self._failure(said)
        if not wait.holds(began, now):
            return self._again("held", began, now, value=value)
        self._tell("held", began, now, None, value)
        return None

    def ended(self, began: float, now: float, hint: timedelta | None) -> float | None:
        """The block of a loop ended without an exception; None where no other attempt may follow it."""
        wait = self.wait
        wait.ended(began, now)
        wait.error = None
        delay = wait.next_delay(began, now, self.clock.draw(), hint)
        self._tell("ended", began, now, delay)
        return delay

    def raised(self, error: Exception, began: float, now: float) -> float | None:
        """The probe raised ``error``; None where it is not retried, and has to be raised again."""
        answer = self._retries.answer(error)
        wait = self.wait
        wait.ended(began, now)
        wait.error = error
        wait.breaks()
        if answer is False:
            self._tell("raised", began, now, None)
            wait.error = None  # its traceback leads to whoever holds this wait
            return None
        return self._again("raised", began, now, _hint_of(answer, error))

    def ran_out(self, began: float, now: float, *, still_running: bool = False) -> float:
        """The attempt was ended by its own limit, or by the deadline."""
        wait = self.wait
        wait.ended(began, now)
        wait.breaks()
        over = now >= wait.deadline
        took = duration_text(now - began)
        wait.error = TimeoutError(f"cut short after {took}" if over else f"no answer within {took}")
        if over or self._retries.answer(wait.error) is False:
            wait.limit = "timeout" if over else "attempt_timeout"
            self._tell("timed_out", began, now, None)
            raise self.timeout(now, still_running=still_running) from wait.error
        return self._again("timed_out", began, now, still_running=still_running)

    # --- the end -------------------------------------------------------------------------------------------------

    def timeout(self, now: float, *, still_running: bool = False) -> WaitTimeout:
        """The explained error of a wait that ran out."""
        wait = self.wait
        tally = wait.tally(now)
        elapsed, calling = timedelta(seconds=tally.elapsed), timedelta(seconds=tally.calling)
        return WaitTimeout(
            explain(
                self.name,
                wait.limit,
                tally,
                last=wait.last,
                error=wait.error,
                reason=wait.reason,
                still_running=still_running,
            ),
            limit=wait.limit,
            last=wait.last,
            error=wait.error,
            attempts=wait.attempts,
            elapsed=elapsed,
            calling=calling,
            waiting=max(elapsed - calling, timedelta()),
            still_running=still_running,
        )

    def result(self, value: Any) -> PollResult[Any]:
        """The result of a wait that ends now, with ``value``."""
        return self.wait.result(value, self.clock.monotonic())

    @property
    def name(self) -> str:
        """The probe, as errors name it."""
        return self._probe if isinstance(self._probe, str) else name_of(self._probe)

    def _failure(self, said: Failure) -> WaitFailed:
        wait = self.wait
        reason = said.reason or f"failed= says so of {wait.last!r:.200}"
        text = f"{self.name} failed for good at attempt {wait.attempts}: {reason}"
        return WaitFailed(text, value=wait.last, reason=said.reason, attempts=wait.attempts)

    def _again(
        self,
        outcome: AttemptOutcome,
        began: float,
        now: float,
        hint: timedelta | None = None,
        *,
        value: Any = None,
        still_running: bool = False,
    ) -> float:
        wait = self.wait
        delay = wait.next_delay(began, now, self.clock.draw(), hint)
        if is_heard(self._hook):
            self._tell(outcome, began, now, delay, value)
        if delay is None:
            raise self.timeout(now, still_running=still_running) from wait.error
        return delay

    def _tell(
        self, outcome: AttemptOutcome, began: float, now: float, delay: float | None, value: Any = None
    ) -> None:
        if not is_heard(self._hook):
            return
        wait = self.wait
        ended = AttemptEnded(
            self.name,
            wait.attempts,
            outcome,
            timedelta(seconds=now - began),
            value,
            wait.error,
            None if delay is None else timedelta(seconds=delay),
        )
        tell(self._hook, ended)


def _hint_of(answer: bool | RetryAfter, error: Exception) -> timedelta | None:
    """What the caller's rule, or else the error of one of bide's own calls, says of the next attempt."""
    if isinstance(answer, RetryAfter):
        return answer.after
    if isinstance(error, CallError) and error.hint_ms is not None:
        return timedelta(milliseconds=error.hint_ms)
    return None
