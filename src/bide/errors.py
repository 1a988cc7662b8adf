"""The error tree.

- ``BideError``
    - ``DeclarationError``: what was declared is wrong; carries every mistake
        - ``SettingError``: one setting has a value that it cannot have (also a ``ValueError``)
    - ``CallError``: a call of an outside API failed; ``retryable`` and ``sent`` say what may be done
    - ``AnswerError``: an answer came and cannot be read as what was declared
    - ``NoFreeSlot``: a delivery asked for a slot and none was free; it is given back
    - ``ProviderError``: the store failed; ``retryable`` says whether asking again may help
        - ``ProviderNewer``: the store was written by a newer version
        - ``ProviderCorrupt``: the store cannot be read any more
        - ``Unsupported``: a store of this kind cannot do what was asked for; others can
    - ``KeyConflict``: a key is taken by an item with another payload
    - ``ArgumentError``: a task cannot be called with these arguments (also a ``ValueError``)
    - ``ResultError``: what a task returned cannot be kept, or what was kept cannot be read (also a ``ValueError``)
    - ``TaskFailed``: the item whose result was waited for is dead
    - ``NoResult``: nothing is kept of the item's result
    - ``ResultTimeout``: the result was not there in time (also a ``TimeoutError``)
    - ``WaitTimeout``: what was waited for did not hold in time; says all about the wait (also a ``TimeoutError``)
    - ``WaitFailed``: what was waited for will never hold
    - ``WaitStopped``: a synchronous wait was stopped from outside
    - ``UnknownName``: a command names something that is not there

Exceptions are for bugs, for the outside world and for the last answer to the caller;
what a loop expects (nothing found, unchanged, stale) is a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta

    from bide.core.declaration import Mistake


class BideError(Exception):
    """Root of every error that bide raises."""


class DeclarationError(BideError):
    """What was declared is wrong. ``mistakes`` holds every one found, not only the first."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class SettingError(BideError, ValueError):
    """A setting has a value that it cannot have.

    ``setting`` is its name as the user wrote it; ``reason`` says what is wrong and what would be right.
    """

    def __init__(self, setting: str, reason: str) -> None:
        self.setting = setting
        self.reason = reason
        super().__init__(f"{setting}: {reason}")


class CallError(BideError):
    """A call of an outside API failed.

    ``kind`` is a short stable word (``"refused"``, ``"timeout"``, ``"tls"``, ``"too_large"``, …);
    ``retryable`` says that asking again may help; ``sent`` is False only where it is certain that
    no byte of the request left; ``hint_ms`` is a delay that the server asked for, in milliseconds.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        retryable: bool = False,
        sent: bool = True,
        status: int | None = None,
        hint_ms: int | None = None,
    ) -> None:
        self.kind = kind
        self.retryable = retryable
        self.sent = sent
        self.status = status
        self.hint_ms = hint_ms
        super().__init__(message)


class AnswerError(BideError):
    """An answer came, and cannot be read as what was declared. ``where`` is the field or place."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(f"{where}: {reason}" if where else reason)


class NoFreeSlot(BideError):
    """Every slot of a connection is out, and the caller (a delivery) does not wait for one."""

    def __init__(self, connection: str) -> None:
        self.connection = connection
        super().__init__(f"connection {connection!r} has no free slot")


class ProviderError(BideError):
    """The store failed. ``retryable``: asking again later may help (locked, connection lost, disk full)."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(message)


class ProviderNewer(ProviderError):
    """The store was written by a newer version of bide; this one leaves it alone."""


class ProviderCorrupt(ProviderError):
    """The store cannot be read as what it should be."""


class Unsupported(ProviderError):
    """A store of this kind cannot do what was asked for, and never will. Nothing was done.

    ``ability`` is what it lacks (:data:`bide.core.abilities.Ability`); the text names who has it.
    """

    def __init__(self, message: str, ability: str) -> None:
        self.ability = ability
        super().__init__(message)


class UnknownName(BideError):
    """Something was named that is not there. ``suggestion`` is the nearest name that is, or None."""

    def __init__(self, kind: str, name: str, suggestion: str | None = None) -> None:
        self.kind = kind
        self.name = name
        self.suggestion = suggestion
        hint = f"; did you mean {suggestion!r}?" if suggestion else ""
        super().__init__(f"no {kind} named {name!r}{hint}")


class KeyConflict(BideError):
    """A key is taken by an item of another payload; nothing was enqueued. ``item`` is that one's id."""

    def __init__(self, queue: str, name: str, key: str, item: str) -> None:
        self.queue = queue
        self.name = name
        self.key = key
        self.item = item
        super().__init__(
            f"key {key!r} of {name} in queue {queue!r} belongs to item {item}, whose payload is another one; "
            "give this work a key of its own, or none"
        )


class ArgumentError(BideError, ValueError):
    """A task cannot be called with the arguments that it was given. ``problems`` says all that is wrong with them.

    ``damaged``: what was stored is no JSON at all, rather than arguments of another signature.
    """

    def __init__(self, message: str, problems: Sequence[str], *, damaged: bool = False) -> None:
        self.problems = tuple(problems)
        self.damaged = damaged
        super().__init__(message)


class ResultError(BideError, ValueError):
    """What a task returned cannot be written as JSON, or what was kept cannot be read as what it returns."""


class TaskFailed(BideError):
    """The item whose result was waited for is dead. ``reason`` is what ended it: its last attempt, or a person."""

    def __init__(self, task: str, item: str, reason: str) -> None:
        self.task = task
        self.item = item
        self.reason = reason
        super().__init__(f"item {item} of task {task!r} is dead: {reason}")


class NoResult(BideError):
    """Nothing is kept of an item's result. ``item`` is its id."""

    def __init__(self, item: str, why: str) -> None:
        self.item = item
        super().__init__(
            f"no result of item {item}: {why}; ask for it with keep_result=, at the task or at submit"
        )


class ResultTimeout(BideError, TimeoutError):
    """The result of an item was not there in time; the item goes on. ``state`` is how it stood then."""

    def __init__(self, item: str, state: str, seconds: float) -> None:
        self.item = item
        self.state = state
        super().__init__(f"item {item} has no result after {seconds:g} s; it is {state} and goes on")


class WaitTimeout(BideError, TimeoutError):
    """What was waited for did not hold within a limit. The text tells all of what follows.

    ``limit`` is the one that fired: ``"timeout"``, ``"attempt_timeout"`` (one attempt took too long, and
    ``TimeoutError`` is not retried), or ``"hint"`` (the other side asked to wait past the deadline). ``last`` is the
    last value that the probe answered, ``error`` what its last attempt raised, each None where there was none.
    ``attempts`` counts them; ``elapsed`` is the sum of the time spent ``calling`` and ``waiting``.
    ``still_running``: a plain probe goes on in its thread, which nothing can stop.
    """

    def __init__(
        self,
        message: str,
        *,
        limit: str,
        last: Any,
        error: Exception | None,
        attempts: int,
        elapsed: timedelta,
        calling: timedelta,
        waiting: timedelta,
        still_running: bool,
    ) -> None:
        self.limit = limit
        self.last = last
        self.error = error
        self.attempts = attempts
        self.elapsed = elapsed
        self.calling = calling
        self.waiting = waiting
        self.still_running = still_running
        super().__init__(message)


class WaitFailed(BideError):
    """What was waited for will never hold. ``value`` is the answer that says so, ``reason`` why where it is known."""

    def __init__(self, message: str, *, value: Any, reason: str = "", attempts: int = 0) -> None:
        self.value = value
        self.reason = reason
        self.attempts = attempts
        super().__init__(message)


class WaitStopped(BideError):
    """A synchronous wait ended because the event that stops it was set. ``last`` is the last value, or None."""

    def __init__(self, probe: str, *, last: Any, attempts: int) -> None:
        self.last = last
        self.attempts = attempts
        count = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(f"waiting for {probe} was stopped after {count}")
