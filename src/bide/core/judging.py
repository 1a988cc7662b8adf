"""What an answer means to a wait, read from whatever the caller's condition says of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from bide.core.polling import RetryAfter
from bide.core.verdict import Failure, NotYet, Success, Verdict

Condition = Callable[[Any], object]


def judge(value: Any, condition: Condition | None, failed: Condition | None) -> bool | Verdict:
    """Whether ``value`` is what is waited for: true, false, or a verdict.

    A :class:`RetryAfter` in place of a value is "not yet"; ``failed`` is asked first; without a ``condition`` any
    value holds that counts as true. Raises ``TypeError`` where a function has to be awaited, since a coroutine
    would count as true.
    """
    if isinstance(value, RetryAfter):
        return NotYet(value.after)
    if failed is not None and _plain(failed(value), "failed"):
        return Failure("")
    said = value if condition is None else condition(value)
    if said is True or said is False:
        return said
    if isinstance(said, Success | Failure | NotYet):
        return said
    return bool(said) if condition is None else bool(_plain(said, "condition"))


def _plain(said: object, setting: str) -> object:
    if inspect.isawaitable(said):
        if inspect.iscoroutine(said):
            said.close()
        raise TypeError(f"{setting} has to be a plain function; let the probe await what it needs")
    return said
