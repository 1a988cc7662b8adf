"""What ``until`` does: wait for what was declared or given with flags, and end with what came of it."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bide.cli.answers import Teller
from bide.cli.capturing import NotRun, WroteTooMuch, captured
from bide.cli.instants import seconds_of
from bide.cli.interrupting import Interrupted, unless_interrupted
from bide.cli.looping import run_quickly
from bide.cli.opening import load
from bide.cli.output import write_bytes
from bide.cli.printing import counted, print_json_text, tell
from bide.cli.usage import BAD_USE
from bide.cli.waiting import Watched
from bide.cli.waits import WaitFlags, wait_of
from bide.clock import Clock, SystemClock
from bide.config import read_file
from bide.core.canonical import canonical
from bide.core.names import nearest
from bide.core.seen import CommandResult, seen
from bide.core.verdict import Verdict
from bide.core.wait_declaration import Address, Program, WaitDeclaration
from bide.engine.until import poll_result
from bide.errors import (
    AnswerError,
    CallError,
    DeclarationError,
    SettingError,
    UnknownName,
    WaitFailed,
    WaitTimeout,
)

HELD, FAILED, TIMED_OUT = 0, 1, 2
"""Exit statuses, besides 3 for bad use, and 128 and the signal's number where one ended it."""

_OUTCOMES = {HELD: "held", FAILED: "failed", TIMED_OUT: "timed_out"}

_LONGEST_TOLD = 160
"""Characters of the last answer that the end of a wait tells; all of it is in the JSON."""

Probe = Callable[[], Awaitable[Any]]


def wait_named(target: str, name: str, flags: WaitFlags) -> WaitDeclaration:
    """The wait ``name`` of the app ``target``, with ``flags``. Raises ``UnknownName`` and ``DeclarationError``."""
    try:
        app = load(target)
        waits = app.declarations.waits
        if name not in waits:
            raise UnknownName("wait", name, nearest(name, waits))
    except (DeclarationError, UnknownName):
        tell(f"{name} is taken for the name of a wait; a command stands behind --: bide until … -- {name}")
        raise
    raw: Any = app.raw()
    return wait_of(flags, name=name, declared=raw["waits"][name])


def wait_in_file(path: str, flags: WaitFlags) -> WaitDeclaration:
    """The wait that a file of its own holds, as the keys of a block, with ``flags``. Raises ``DeclarationError``."""
    return wait_of(flags, name=Path(path).stem, declared=read_file(path))


def run_until(find: Callable[[], WaitDeclaration], *, quiet: bool, as_json: bool) -> int:
    """Wait for what ``find`` answers, tell of it, and answer the exit status."""
    try:
        wait = find()
    except (DeclarationError, SettingError, UnknownName) as error:
        tell(f"error: {error}")
        return BAD_USE
    waiting = _Waiting(wait, SystemClock(), quiet=quiet)
    statuses: list[int] = []

    async def work() -> None:
        try:
            ended = await unless_interrupted(waiting.ended())
        except Interrupted as signal:
            tell(f"{signal} after {counted(waiting.watched.attempts, 'attempt')}")
            statuses.append(signal.status)
            return
        except (NotRun, SettingError) as error:
            tell(f"error: {error}")
            statuses.append(BAD_USE)
            return
        if not quiet or ended.status != HELD:
            tell(ended.told)
        if as_json:
            print_json_text(ended.as_json())
        elif ended.status != TIMED_OUT and ended.value is not None:
            write_bytes(seen(ended.value).body or b"")
        statuses.append(ended.status)

    run_quickly(work)
    return statuses[0]


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a wait ended. ``told`` says it to people."""

    status: int
    told: str
    value: Any
    attempts: int
    elapsed: timedelta
    calling: timedelta | None = None
    error: str | None = None

    def as_json(self) -> str:
        """All of it for programs; the answer's JSON is exactly that of the answer."""
        fields: dict[str, Any] = {
            "outcome": _OUTCOMES[self.status],
            "attempts": self.attempts,
            "elapsed_ms": _ms(self.elapsed),
            "calling_ms": None if self.calling is None else _ms(self.calling),
            "error": self.error,
        }
        value = "null"
        if self.value is not None:
            answer = seen(self.value)
            fields["status"] = answer.status
            try:
                value = canonical(answer.json())
            except AnswerError:
                value = json.dumps(answer.text(), ensure_ascii=False)
        return f'{json.dumps(fields, ensure_ascii=False)[:-1]}, "value": {value}}}'


class _Waiting:
    """One wait of the command line."""

    def __init__(self, wait: WaitDeclaration, clock: Clock, *, quiet: bool) -> None:
        self._wait = wait
        self._clock = clock
        self._began = 0.0
        self._hide: Callable[[str], str] = lambda text: text
        if isinstance(wait.target, Address):
            from bide.cli.calling import hiding_secrets

            self._hide = hiding_secrets(wait.target, os.environ)
        self._teller = Teller(wait.acceptors, self._hide)
        self.watched = Watched(clock, self._teller, wait.timeout, quiet=quiet)

    async def ended(self) -> _Ended:
        """Wait. Raises ``NotRun`` and ``SettingError`` for what cannot even be tried."""
        match self._wait.target:
            case Program(argv):
                return await self._ended(lambda: captured(argv))
            case Address() as address:
                from bide.cli.calling import AddressProbe
                from bide.connection.transport import HttpClient

                async with HttpClient(clock=self._clock) as http:
                    try:
                        probe = AddressProbe(address, http, os.environ, self._wait.attempt_timeout)
                    except CallError as error:
                        raise SettingError("URL", self._hide(str(error))) from None
                    return await self._ended(probe)

    async def _ended(self, probe: Probe) -> _Ended:
        wait = self._wait
        self._began = self._clock.monotonic()
        try:
            async with self.watched.shown():
                result = await poll_result(
                    probe,
                    self._judge,
                    timeout=wait.timeout,
                    retry_on=self._is_passing,
                    strategy=wait.strategy,
                    attempt_timeout=wait.attempt_timeout,
                    times_in_row=wait.times_in_row,
                    stable_for=wait.stable_for,
                    hint_clamp=wait.hint_clamp,
                    on_attempt=self.watched.heard,
                    clock=self._clock,
                )
        except WaitFailed as error:
            told = f"failed after {self._took(error.attempts)}: {self._teller.value(error.value)}"
            why = self._hide(error.reason)
            return self._end(FAILED, f"{told} ({why}){_errors(error.value)}", error.value, why)
        except WaitTimeout as error:
            return self._timed_out(error)
        except (CallError, WroteTooMuch) as error:
            why = self._hide(str(error))
            return self._end(FAILED, f"failed after {self._took(self.watched.attempts)}: {why}", None, why)
        told = f"held after {counted(result.attempts, 'attempt')} in {_time(result.elapsed)}"
        return _Ended(HELD, told, result.value, result.attempts, result.elapsed, result.calling)

    def _judge(self, answer: Any) -> Verdict:
        return self._wait.acceptors.judge(answer, now_ms=self._clock.utc_ms())

    def _is_passing(self, error: BaseException) -> bool:
        if isinstance(error, CallError):
            return error.kind in self._wait.retry_on
        if isinstance(error, TimeoutError):
            return isinstance(self._wait.target, Program) or "timeout" in self._wait.retry_on
        return isinstance(error, NotRun) and error.passing

    def _timed_out(self, error: WaitTimeout) -> _Ended:
        why = {
            "hint": ", since it is asked to come back only after its end",
            "attempt_timeout": ", since one attempt took too long",
        }.get(error.limit, "")
        times = f"{_time(error.calling)} asking, {_time(error.waiting)} waiting"
        last = _clipped(self.watched.last or "nothing was answered")
        if self.watched.answer not in ("", self.watched.last):
            last = f"{last}; the last answer: {_clipped(self.watched.answer)}"
        asked = f"{counted(error.attempts, 'attempt')} in {_time(error.elapsed)} ({times})"
        told = f"timed out after {asked}{why}; last: {last}{_errors(error.last)}"
        return _Ended(
            TIMED_OUT,
            told,
            error.last,
            error.attempts,
            error.elapsed,
            error.calling,
            f"timed out{why}; last: {last}",
        )

    def _end(self, status: int, told: str, value: Any, error: str) -> _Ended:
        return _Ended(status, told, value, self.watched.attempts, self._elapsed, error=error)

    @property
    def _elapsed(self) -> timedelta:
        return timedelta(seconds=self._clock.monotonic() - self._began)

    def _took(self, attempts: int) -> str:
        return f"{counted(attempts, 'attempt')} in {_time(self._elapsed)}"


def _errors(value: object) -> str:
    """What a command wrote on standard error at last, on lines of its own."""
    return f"\n{value.errors}" if isinstance(value, CommandResult) and value.errors else ""


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST_TOLD else f"{text[: _LONGEST_TOLD - 1]}…"


def _time(time: timedelta) -> str:
    return seconds_of(time.total_seconds())


def _ms(time: timedelta) -> int:
    return round(time / timedelta(milliseconds=1))
